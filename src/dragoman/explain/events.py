"""What do people hear of a decision? The events and the pod condition that go with it, as effects.

Texts are `explain.text`'s, for readers of the pod's namespace only. Never decides.
"""

from __future__ import annotations

from datetime import datetime

from dragoman.api.core import Pod, PodGroup
from dragoman.api.meta import Ref, format_time
from dragoman.effects import Effect, Emit, Patch
from dragoman.explain import messages
from dragoman.explain.messages import message
from dragoman.explain.user_names import in_user_words, user_names
from dragoman.schedule.decision import Placement, Refused, Wait
from dragoman.schedule.double_allocations import DoubleAllocation
from dragoman.schedule.refusal import ClaimInFlight, ClaimNotCreated, SchedulingGated

SCHEDULED = "PodScheduled"
GROUP_SCHEDULED = "PodGroupInitiallyScheduled"


def refusal_effects(pod: Pod, refused: Refused, now: datetime, component: str) -> tuple[Effect, ...]:
    """The pod's condition PodScheduled=False and, but for gates, a FailedScheduling event."""
    text = in_user_words(message(refused, pod.metadata.namespace), user_names(pod.spec))
    is_gated = bool(refused.reasons) and isinstance(refused.reasons[0], SchedulingGated)
    condition = condition_effect(pod, "SchedulingGated" if is_gated else "Unschedulable", text, now)
    if is_gated:
        return condition
    return (*condition, Emit(_about(refused), "Warning", "FailedScheduling", text, component, "Scheduling"))


def is_passing(refused: Refused) -> bool:
    """Whether the reason mostly goes away by itself in a moment, so that telling can wait."""
    return bool(refused.reasons) and all(
        isinstance(reason, ClaimInFlight)
        or (isinstance(reason, ClaimNotCreated) and reason.template_exists and not reason.unlabelled)
        for reason in refused.reasons
    )


def condition_effect(pod: Pod, reason: str, text: str, now: datetime) -> tuple[Effect, ...]:
    """PodScheduled=False with that reason; () if the pod says so already."""
    known = next((c for c in pod.status.conditions if c.type == SCHEDULED), None)
    if known is not None and (known.status, known.reason, known.message) == ("False", reason, text):
        return ()
    changed = format_time(now)
    if known is not None and known.status == "False" and known.last_transition_time:
        changed = known.last_transition_time
    condition = {
        "type": SCHEDULED,
        "status": "False",
        "reason": reason,
        "message": text,
        "lastTransitionTime": changed,
    }
    meta = pod.metadata
    ref = Ref("Pod", meta.namespace, meta.name, meta.uid)
    return (Patch(ref, {"status": {"conditions": [condition]}}, type="strategic", subresource="status"),)


def group_effects(group: PodGroup, reason: str, text: str, now: datetime) -> tuple[Effect, ...]:
    """The group's condition PodGroupInitiallyScheduled: True once it was, never False again; () if it says so."""
    known = next((c for c in group.status.conditions if c.type == GROUP_SCHEDULED), None)
    status = "True" if reason == "Scheduled" else "False"
    if known is not None and (
        known.status == "True" or (known.status, known.reason, known.message) == (status, reason, text)
    ):
        return ()
    kept = known.last_transition_time if known is not None and known.status == status else None
    meta = group.metadata
    condition = {
        "type": GROUP_SCHEDULED,
        "status": status,
        "reason": reason,
        "message": text,
        "lastTransitionTime": kept or format_time(now),
        **({"observedGeneration": meta.generation} if meta.generation else {}),
    }
    ref = Ref("PodGroup", meta.namespace, meta.name, meta.uid)
    return (Patch(ref, {"status": {"conditions": [condition]}}, type="strategic", subresource="status"),)


def error_effects(pod: Pod, error: str, now: datetime, component: str) -> tuple[Effect, ...]:
    """A write of the decision failed for good: say so."""
    meta = pod.metadata
    about = Ref("Pod", meta.namespace, meta.name, meta.uid)
    return (
        *condition_effect(pod, "SchedulerError", error, now),
        Emit(about, "Warning", "FailedScheduling", error, component, "Scheduling"),
    )


def placed_effect(placement: Placement, component: str) -> Emit:
    """The pod has its node."""
    namespace, name = placement.pod
    text = f"Successfully assigned {namespace}/{name} to {placement.node}"
    return Emit(Ref("Pod", namespace, name, placement.uid), "Normal", "Scheduled", text, component, "Binding")


def warning_effects(placement: Placement, component: str) -> tuple[Emit, ...]:
    """What should be known of the devices that a placed pod got, without names of other namespaces."""
    namespace, name = placement.pod
    about = Ref("Pod", namespace, name, placement.uid)
    return tuple(
        Emit(about, "Warning", messages.code(fact), messages.sentence(fact, namespace), component, "Scheduling")
        for fact in placement.warnings
    )


def wait_effect(wait: Wait, uid: str, component: str) -> Emit:
    """The pod has its place and waits for its devices."""
    namespace, name = wait.pod
    text = f"waiting for binding conditions for device on node {wait.node}"
    return Emit(Ref("Pod", namespace, name, uid), "Normal", "BindingConditionsPending", text, component, "Scheduling")


def double_allocation_effects(double_allocation: DoubleAllocation, component: str) -> tuple[Emit, ...]:
    """A device went to two claims: each event is about its own pod, without the other's name."""
    reported = []
    for key in double_allocation.claims:
        if key == double_allocation.loser:
            text = f"device {double_allocation.device} is allocated to two claims; this newer allocation is released"
        else:
            text = f"device {double_allocation.device} is allocated to two claims"
        reported.append(
            Emit(Ref("ResourceClaim", *key), "Warning", "DeviceAllocatedTwice", text, component, "Scheduling")
        )
    if double_allocation.loser is not None:
        for pod in double_allocation.pods:
            text = (
                f"device {double_allocation.device} was allocated to two claims and the other one keeps it: this pod "
                "is pending on its node without a device; delete it to have it scheduled again"
            )
            reported.append(Emit(Ref("Pod", *pod), "Warning", "DeviceAllocatedTwice", text, component, "Scheduling"))
    return tuple(reported)


def _about(refused: Refused) -> Ref:
    namespace, name = refused.pod
    return Ref("Pod", namespace, name, refused.uid)
