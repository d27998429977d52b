"""Do all parts of the cluster have the same DRA feature gates, and those that its objects need?

Seen are the API server's metric `kubernetes_feature_enabled`, the flags of control plane pods, and kubeadm's
configuration of the kubelets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

from dragoman.api.gated import unused_fields
from dragoman.api.gates import GATES
from dragoman.api.shape import dig, items, objects, text
from dragoman.doctor.check import BLOCKER, Evidence, NotSeen, Seen
from dragoman.doctor.state import ExaminedCluster, name_of, namespace_of, subject_of
from dragoman.errors import Invalid

_FLAG = "--feature-gates="
_PARTS = ("kube-apiserver", "kube-scheduler", "kube-controller-manager")
_WRITTEN = ("ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate")


def parts(state: ExaminedCluster) -> dict[str, Mapping[str, bool]]:
    """What each part says about gates, by where that stands. A gate that it does not name has its default."""
    found: dict[str, Mapping[str, bool]] = {}
    if state.server.gates is not None:
        found["API server (kubernetes_feature_enabled)"] = state.server.gates
    for pod in state.all("Pod"):
        if namespace_of(pod) != "kube-system":
            continue
        for container in objects(dig(pod, "spec"), "containers"):
            if text(container, "name") in _PARTS:
                flags = [*items(container, "command"), *items(container, "args")]
                if flags:
                    found[f"{subject_of('Pod', pod)} ({text(container, 'name')})"] = _parsed(flags)
    for config in state.all("ConfigMap"):
        if name_of(config) == "kubelet-config" and namespace_of(config) == "kube-system":
            gates = _of_kubelets(text(dig(config, "data"), "kubelet"))
            if gates is not None:
                found["ConfigMap kube-system/kubelet-config (kubelets)"] = gates
    return found


def _parsed(flags: list[object]) -> Mapping[str, bool]:
    value = next((flag for flag in flags if isinstance(flag, str) and flag.startswith(_FLAG)), "")
    pairs = (entry.partition("=") for entry in value.removeprefix(_FLAG).split(",") if entry)
    return {name.strip(): text_.strip().lower() in ("true", "t", "1") for name, _, text_ in pairs}


def _of_kubelets(config: str) -> Mapping[str, bool] | None:
    try:
        body = yaml.safe_load(config)
    except yaml.YAMLError:
        return None
    gates = dig(body, "featureGates") if isinstance(body, dict) else {}
    return {name: on for name, on in gates.items() if isinstance(on, bool)}


def differing(state: ExaminedCluster) -> Iterator[Seen]:
    """Gates that are on in one part and off in another."""
    every = parts(state)
    if len(every) < 2:
        yield NotSeen(
            "the gates of "
            + (f"{next(iter(every))} alone are" if every else "no part are")
            + " visible; managed control planes hide theirs, and reading /metrics of the API server needs that right"
        )
        return
    for name in GATES:
        states = {where: gates.get(name, GATES[name].default) for where, gates in every.items()}
        named = any(name in gates for gates in every.values())
        if named and len(set(states.values())) > 1:
            on = [where for where, value in states.items() if value]
            off = [where for where, value in states.items() if not value]
            message = f"{name} is on in {', '.join(on)} and off in {', '.join(off)}"
            yield Evidence(off[0], name, "false", message)


def dra_off(state: ExaminedCluster) -> Iterator[Seen]:
    """DynamicResourceAllocation turned off somewhere."""
    every = parts(state)
    if not every:
        yield NotSeen("the gates of no part are visible")
    for where, gates in every.items():
        if gates.get("DynamicResourceAllocation") is False:
            message = f"DynamicResourceAllocation is off in {where}"
            yield Evidence(where, "DynamicResourceAllocation", "false", message, severity=BLOCKER)


def needed(state: ExaminedCluster) -> Iterator[Seen]:
    """What objects use and the API server has off."""
    if state.server.gates is None:
        yield NotSeen("the gates of the API server are not known: its /metrics may not be read")
        return
    for kind in _WRITTEN:
        for obj in state.all(kind):
            for field, off in unused_fields(kind, obj, state.gates):
                message = f"{subject_of(kind, obj)} has {field}, which needs {' and '.join(off)}: off in the API server"
                yield Evidence(subject_of(kind, obj), field, ",".join(f"{gate}=false" for gate in off), message)


def of_drivers(state: ExaminedCluster) -> Iterator[Seen]:
    """Drivers whose own gates exclude each other, so that they end at once."""
    checks = state.gate_checks
    for workload in state.all("DaemonSet"):
        for container in objects(dig(workload, "spec", "template", "spec"), "containers"):
            value = next((text(e, "value") for e in objects(container, "env") if e.get("name") == "FEATURE_GATES"), "")
            changes = _parsed([_FLAG + value]) if value else {}
            for check in checks.values() if changes else ():
                try:
                    check(changes, "FEATURE_GATES")
                except Invalid as error:
                    if "unknown feature gate" not in error.what:
                        subject = subject_of("DaemonSet", workload)
                        message = f"{subject}: {error.what}: the driver ends at once"
                        yield Evidence(subject, "FEATURE_GATES", value, message)
