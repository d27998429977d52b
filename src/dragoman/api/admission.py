"""What does a cluster add to a new object, and what does it refuse that the object alone does not show?

Shared by the API server and by what-if, so that both refuse in the same words. Works on JSON-shaped dicts of the stored
version; functions that add change the object they are given. What is wrong with an object by itself is for
`api.validate` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dragoman.api.kinds import Kind
from dragoman.api.resource import ADMIN_ACCESS_LABEL
from dragoman.api.shape import Object, dig, items

TOLERATION_S = 300
LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
_Cause = tuple[str, str, str]
"""Reason, text, field path."""


# ---- the words of a refusal


def qualified(kind: Kind) -> str:
    """`pods` or `deployments.apps`."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def forbidden_text(kind: Kind, name: str, why: str) -> str:
    """The message of a 403 of admission."""
    return f'{qualified(kind)} "{name}" is forbidden: {why}'


def invalid_text(kind: Kind, name: str, causes: Iterable[_Cause]) -> str:
    """The message of a 422."""
    texts = [f"{field}: {text}" if field else text for _, text, field in causes]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    full_kind = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return f'{full_kind} "{name}" is invalid: {joined}'


NO_RESOURCE = "the server could not find the requested resource"
"""The message of a 404 for a path that is not served."""


def not_served_text(kind: Kind) -> str:
    """The message for a new object of a kind that only a server with the kind's feature gate has."""
    return f"{NO_RESOURCE} (post {qualified(kind)}): {kind.kind} needs feature gate {kind.gate}"


def conflict_text(kind: Kind, name: str) -> str:
    """The message of a 409 for a change of an object that is not what was sent."""
    return (
        f'Operation cannot be fulfilled on {qualified(kind)} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


# ---- refusals


def admin_access_refused(kind: str, obj: Object, namespace_labels: Mapping[str, str] | None) -> tuple[str, str]:
    """Field path and reason where a claim or template asks for admin access that its namespace does not allow
    (KEP-5018), else ("", ""). namespace_labels: None for a namespace that does not exist."""
    inner = ("spec", "spec") if kind == "ResourceClaimTemplate" else ("spec",)
    requests = items(dig(obj, *inner, "devices"), "requests")
    at = [
        i
        for i, request in enumerate(requests)
        if isinstance(request, dict) and dig(request, "exactly").get("adminAccess")
    ]
    if not at or (namespace_labels is not None and namespace_labels.get(ADMIN_ACCESS_LABEL) == "true"):
        return "", ""
    path = ".".join(inner) + f".devices.requests[{at[0]}].adminAccess"
    text = f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
    return path, text


def terminating_text(kind: Kind, name: str, namespace: str) -> str:
    """The message of a 403 for new content in a namespace that is being deleted."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden_text(kind, name, why)


# ---- additions


def tolerate_lost_nodes(spec: Object) -> None:
    """Gives a pod the tolerations of DefaultTolerationSeconds where it has none for these taints."""
    tolerations = spec.get("tolerations") or []
    for key in LOST_NODE_TAINTS:
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations = [
                *tolerations,
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_S},
            ]
    spec["tolerations"] = tolerations


def _covers(toleration: Any, key: str) -> bool:
    if not isinstance(toleration, dict):
        return False
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def select_own_pods(job: Object) -> None:
    """Gives a Job the selector and pod labels made of its uid, unless it brings a selector of its own."""
    spec = job.setdefault("spec", {})
    template = spec.get("template")
    if "manualSelector" in spec and not spec["manualSelector"] and isinstance(template, dict):
        meta = job["metadata"]
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        for key, value in (
            (CONTROLLER_UID, meta["uid"]),
            ("controller-uid", meta["uid"]),
            (JOB_NAME, meta["name"]),
            ("job-name", meta["name"]),
        ):
            labels.setdefault(key, value)
        spec.setdefault("selector", {"matchLabels": {CONTROLLER_UID: meta["uid"]}})
