"""How is it said what keeps a bound pod or a deletion waiting? Sentences for `explain.state`; `explain.text` uses it.

Never decides and never looks anything up.
"""

from __future__ import annotations

from typing import assert_never

from dragoman.explain import state

_FATES = {
    "gone": "which does not exist",
    "replaced": "which does not exist (another pod has its name now)",
    "finished": "which is finished",
    "deleting": "which is being deleted",
    "running": "which is running",
    "pending": "which has not started",
    "other": "which is not a pod",
}


def sentence(reason: state.StateReason) -> str:
    """The fact as a sentence, no full stop."""
    match reason:
        case state.DriverNotRegistered():
            return (
                f"bound to {reason.node}, driver {reason.driver} not registered there{_since(reason.since_s)}; "
                "NodePrepareResources not called; delete the pod to move it"
            )
        case state.NoResourceSlices():
            return f"no ResourceSlice of driver {reason.driver} for {reason.node}"
        case state.DeviceNotPublished():
            return f"claim {reason.claim}: device {reason.device} is no longer published"
        case state.DeviceReplaced():
            return (
                f"claim {reason.claim}: device {reason.device} is another card now: its {reason.attribute} is "
                f"{reason.now}, it was {reason.before} when it was allocated"
            )
        case state.PrepareResourcesFailed():
            times = f" ({reason.count} times)" if reason.count > 1 else ""
            return f"bound to {reason.node}, preparing its devices fails{_since(reason.since_s)}{times}: {reason.error}"
        case state.ClaimNotAllocated():
            return f"claim {reason.claim} has no devices although the pod is bound: it did not go through a scheduler"
        case state.ClaimNotReserved():
            return f"claim {reason.claim} is not reserved for the pod, so the node does not start it"
        case state.PodClaimNotFound():
            name = f"claim {reason.claim} does not exist" if reason.claim else "its claim was never created"
            return f"claim entry {reason.pod_claim}: {name}"
        case state.PodNodeNotFound():
            return f"node {reason.node} does not exist"
        case state.NodeNotReady():
            return f"node {reason.node} is not ready{_since(reason.since_s)}" + (
                f" ({reason.reported})" if reason.reported else ""
            )
        case state.DeviceTaintEviction():
            return _eviction(reason)
        case state.Starting():
            return f"bound to {reason.node}{_since(reason.since_s)}, not started yet; no problem found"
        case state.DeletionBlocked():
            return _deletion(reason)
        case _:
            assert_never(reason)


def _eviction(reason: state.DeviceTaintEviction) -> str:
    value = f"={reason.value}" if reason.value else ""
    source = f"DeviceTaintRule {reason.rule}" if reason.rule else "its driver"
    when = f"at {reason.at} (in {reason.left_s} s), when its toleration ends" if reason.left_s else "now"
    head = f"device {reason.device} of claim {reason.claim} is tainted {reason.key}{value}:NoExecute by {source}"
    why = "; its toleration does not name the effect NoExecute, which alone keeps a running pod"
    return f"{head}: the pod is evicted {when}{why if reason.not_covering else ''}"


def _deletion(reason: state.DeletionBlocked) -> str:
    held = [f"still reserved for pod {c.name} (uid {c.uid or 'unknown'}), {_FATES[c.state]}" for c in reason.consumers]
    devices = [name.split("/") for name in reason.devices]
    blocked = [f"{parts[-1]} of pool {'/'.join(parts[1:-1])} stays blocked" for parts in devices]
    reported = "; ".join([*held, *blocked])
    head = f"deletion of {reason.object} is pending{_since(reason.since_s)} on {', '.join(reason.finalizers)}"
    return f"{head}: {reported}" if reported else head


def _since(seconds: int) -> str:
    if seconds < 0:
        return ""
    if seconds < 120:
        return f" since {seconds} s"
    if seconds < 7200:
        return f" since {seconds // 60} min"
    return f" since {seconds // 3600} h" if seconds < 172_800 else f" since {seconds // 86_400} days"
