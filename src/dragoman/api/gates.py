"""Which optional behaviours are on? Kubernetes' feature gates, by its names, with the defaults of 1.37.

`Gates` is an argument of whoever decides and is read where a claim enters; nothing here is global. Source:
the release tables of Kubernetes' feature gates; stages as of 1.37.
"""

from __future__ import annotations

import msgspec

from dragoman.errors import Invalid


class Gate(msgspec.Struct, frozen=True):
    """A gate's default, whether Kubernetes lets it be changed, and the gates it cannot work without."""

    default: bool
    locked: bool = False
    needs: tuple[str, ...] = ()


_DRA = ("DynamicResourceAllocation",)
GATES: dict[str, Gate] = {
    "DynamicResourceAllocation": Gate(True, locked=True),
    "DRAAdminAccess": Gate(True, locked=True, needs=_DRA),
    "DRAPrioritizedList": Gate(True, locked=True, needs=_DRA),
    "DRAResourceClaimDeviceStatus": Gate(True, locked=True, needs=_DRA),
    "DRADeviceTaints": Gate(True, needs=_DRA),
    "DRADeviceTaintRules": Gate(True, needs=("DRADeviceTaints",)),
    "DRAPartitionableDevices": Gate(True, needs=_DRA),
    "DRAConsumableCapacity": Gate(True, needs=_DRA),
    "DRAFractionalCapacityRange": Gate(False, needs=("DRAConsumableCapacity",)),
    "DRADeviceBindingConditions": Gate(True, needs=("DRAResourceClaimDeviceStatus",)),
    "DRAExtendedResource": Gate(True, locked=True, needs=_DRA),
    "DRASchedulerFilterTimeout": Gate(True, needs=_DRA),
    "DRAListTypeAttributes": Gate(False, needs=_DRA),
    "DRANodeAllocatableResources": Gate(False, needs=_DRA),
    "DRAResourcePoolStatus": Gate(False, needs=_DRA),
    "DRAPartitionableDevicesType": Gate(False, needs=("DRAPartitionableDevices",)),
    "DRAResourceClaimGranularStatusAuthorization": Gate(True, needs=_DRA),
    "DRAWorkloadResourceClaims": Gate(False, needs=("DynamicResourceAllocation", "GenericWorkload")),
    "DRAOptionalNodeOperations": Gate(False, needs=_DRA),
    "DRADerivedAttributes": Gate(False, needs=_DRA),
    "DRADeviceCompatibilityGroups": Gate(False, needs=("DRAPartitionableDevices",)),
    "ResourceHealthStatus": Gate(True),
    "ResourceHealthStatusMessage": Gate(True, needs=("ResourceHealthStatus",)),
    "GenericWorkload": Gate(False),
    "TopologyAwareWorkloadScheduling": Gate(False, needs=("GenericWorkload",)),
    "WorkloadWithJob": Gate(False, needs=("GenericWorkload",)),
    "KubeletPodResourcesDynamicResources": Gate(True, locked=True),
    "KubeletPodResourcesGet": Gate(True, locked=True),
}
_STABLE = frozenset(name for name, gate in GATES.items() if gate.locked) | {"DRADeviceTaints", "DRADeviceTaintRules"}
_BETA_AND_OFF = frozenset({"DRAFractionalCapacityRange", "DRAWorkloadResourceClaims", "GenericWorkload"})


def stage(name: str) -> str:
    """Where a gate is in 1.37, as Kubernetes' metrics write it: ALPHA, BETA, or nothing for a stable one."""
    if name in _STABLE:
        return ""
    return "BETA" if GATES[name].default or name in _BETA_AND_OFF else "ALPHA"


_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class Gates(msgspec.Struct, frozen=True):
    """The gates that are on. `gates.on("DRAAdminAccess")`; unknown names are Invalid, never just off."""

    enabled: frozenset[str]

    def on(self, name: str) -> bool:
        """Whether a gate is on. Raises Invalid for a name that is no gate."""
        if name not in GATES:
            raise _unknown(name)
        return name in self.enabled


def gates_with(changes: dict[str, bool]) -> tuple[Gates, tuple[str, ...]]:
    """Defaults with changes, and the gates that were turned off because one they need is off.

    A gate turned on explicitly is turned off too when one that it needs was turned off; a gate that is on while
    one it needs is off by default turns that one on. Any gate may be changed, locked ones too: that is for tools
    that ask "what if". Raises Invalid for an unknown name.
    """
    for name in changes:
        if name not in GATES:
            raise _unknown(name)
    state = {name: gate.default for name, gate in GATES.items()}
    state.update(changes)
    for name, wanted in changes.items():
        if wanted:
            for needed in _all_needed(name):
                if needed not in changes:
                    state[needed] = True
    dropped: list[str] = []
    settled = False
    while not settled:
        settled = True
        for name, gate in GATES.items():
            if state[name] and any(not state[needed] for needed in gate.needs):
                state[name] = settled = False
                dropped.append(name)
    # A gate that is off by default was never there to lose.
    reported = tuple(name for name in dropped if GATES[name].default or changes.get(name))
    return Gates(frozenset(name for name, is_on in state.items() if is_on)), reported


def parse_gates(text: str) -> tuple[Gates, tuple[str, ...]]:
    """`NAME=true,NAME=false` as in --feature-gates; empty text gives the defaults. Returns as `gates_with`.

    Raises Invalid, naming the entry.
    """
    return gates_with(_changes(text))


def strict_gates(text: str) -> Gates:
    """The same for what runs: raises Invalid also for changes that Kubernetes would not start with."""
    changes = _changes(text)
    if refusals := refusals_of(changes):
        raise Invalid("feature-gates", "; ".join(refusals))
    return gates_with(changes)[0]


def lenient_gates(text: str) -> tuple[Gates, tuple[str, ...]]:
    """The same for what runs beside Kubernetes: names that are no gates here are returned, since the server's version
    may know them. Raises Invalid for all else that `strict_gates` does."""
    changes = _changes(text)
    unknown = tuple(name for name in changes if name not in GATES)
    known = {name: wanted for name, wanted in changes.items() if name in GATES}
    if refusals := refusals_of(known):
        raise Invalid("feature-gates", "; ".join(refusals))
    return gates_with(known)[0], unknown


def _changes(text: str) -> dict[str, bool]:
    changes: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = entry.partition("=")
        wanted = _BOOLEANS.get(value.strip().lower())
        if not equals or wanted is None:
            raise Invalid("feature-gates", f"{entry!r} must be NAME=true or NAME=false")
        changes[name.strip()] = wanted
    return changes


def refusals_of(changes: dict[str, bool]) -> tuple[str, ...]:
    """Why Kubernetes would not start with these changes, one line each: locked gates and missing dependencies."""
    lines = []
    for name, wanted in changes.items():
        gate = GATES.get(name)
        if gate is None:
            lines.append(_unknown(name).what)
        elif gate.locked and wanted != gate.default:
            lines.append(f"cannot set feature gate {name} to {str(wanted).lower()}, it is locked")
        elif wanted:
            off = [n for n in gate.needs if not changes.get(n, GATES[n].default)]
            lines += [f"feature gate {name} needs {needed}, which is off" for needed in off]
    return tuple(lines)


def _all_needed(name: str) -> tuple[str, ...]:
    found: list[str] = []
    for needed in GATES[name].needs:
        found += [needed, *_all_needed(needed)]
    return tuple(found)


def _unknown(name: str) -> Invalid:
    return Invalid("feature-gates", f"unknown feature gate {name!r}")


DEFAULTS = gates_with({})[0]
"""The gates of 1.37 as they come."""
