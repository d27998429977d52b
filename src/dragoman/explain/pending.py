"""What is reported of a pending pod, and when is the reason another one than before?

For those who explain a scheduler that is not ours: they write Events only. Texts are for readers of the pod's
namespace. Never decides and never writes.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

from dragoman.api.core import Pod
from dragoman.api.meta import Ref
from dragoman.effects import Create, Patch
from dragoman.explain.messages import message, topic
from dragoman.explain.user_names import in_user_words, user_names
from dragoman.schedule.decision import Refused, UndecidedPod

Topics: TypeAlias = tuple[tuple[str, ...], ...]

REASON = "Explained"
_NAME_MAX = 200


def topics(refused: Refused | UndecidedPod) -> Topics:
    """What the refusal is about, without its numbers: equal for reasons that people would call the same."""
    if isinstance(refused, UndecidedPod):
        return (("SearchLimitReached",),)
    found = {topic(reason) for reason in refused.reasons}
    found |= {topic(reason) for some in refused.nodes for reason in some.reasons}
    return tuple(sorted(found))


def event(pod: Pod, refused: Refused | UndecidedPod, when: str, component: str) -> Create:
    """The Event of one reason of one pod; its name tells both, so that whoever writes it again finds it there."""
    meta = pod.metadata
    reported = hashlib.sha256(repr((meta.uid, topics(refused))).encode()).hexdigest()[:16]
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta.name[:_NAME_MAX]}.{reported}", "namespace": meta.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        },
        "type": "Warning",
        "reason": REASON,
        "message": in_user_words(message(refused, meta.namespace), user_names(pod.spec)),
        "action": "Scheduling",
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "count": 1,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "eventTime": None,
    }
    return Create(body)


def seen_again(first: Create, count: int) -> Patch:
    """The same reason once more, after another one: the Event that is there counts it."""
    body = first.body
    ref = Ref("Event", body["metadata"]["namespace"], body["metadata"]["name"])
    patch = {"count": count, "lastTimestamp": body["lastTimestamp"], "message": body["message"]}
    return Patch(ref, patch)
