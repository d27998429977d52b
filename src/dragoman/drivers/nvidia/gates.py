"""Which optional behaviours of the driver are on? Its feature gates, by upstream's names and defaults.

Not to be confused with Kubernetes' gates (`api.gates`). Source: the driver's documentation of v0.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dragoman.errors import Invalid

GATES: dict[str, bool] = {
    "TimeSlicingSettings": False,
    "MPSSupport": False,
    "IMEXDaemonsWithDNSNames": True,
    "PassthroughSupport": False,
    "DynamicMIG": False,
    "NVMLDeviceHealthCheck": False,
    "ComputeDomainCliques": True,
    "CrashOnNVLinkFabricErrors": True,
    "DeviceMetadata": False,
    "DRAListTypeAttributes": False,
    "FabricManagerPartitioning": False,
    "HostManagedIMEXDaemon": False,
    "ConsumableShares": False,
    "ContextualLogging": True,
}
"""Name -> default."""
EXCLUSIVE = (
    ("DynamicMIG", "PassthroughSupport"),
    ("DynamicMIG", "NVMLDeviceHealthCheck"),
    ("DynamicMIG", "MPSSupport"),
    ("PassthroughSupport", "NVMLDeviceHealthCheck"),
)
NEEDS = (("ComputeDomainCliques", "IMEXDaemonsWithDNSNames"), ("DeviceMetadata", "PassthroughSupport"))
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class DriverGates(msgspec.Struct, frozen=True):
    """The gates that are on."""

    enabled: frozenset[str]

    def on(self, name: str) -> bool:
        """Whether a gate is on; the name must be one of GATES."""
        assert name in GATES, name
        return name in self.enabled

    def __str__(self) -> str:
        return ",".join(f"{name}=true" for name in GATES if name in self.enabled and not GATES[name])


def gates_with(changes: Mapping[str, bool], where: str = "feature gates") -> DriverGates:
    """Defaults with changes. Raises Invalid for unknown names and for what cannot be on together."""
    for name in changes:
        if name not in GATES:
            raise Invalid(where, f"unknown feature gate {name!r}; there are: {', '.join(sorted(GATES))}")
    state = {**GATES, **changes}
    made = DriverGates(frozenset(name for name, on in state.items() if on))
    if reasons := list(_contradictions(made)):
        raise Invalid(where, "; ".join(reasons))
    return made


def _contradictions(gates: DriverGates) -> Iterator[str]:
    for one, other in EXCLUSIVE:
        if gates.on(one) and gates.on(other):
            yield f"{one} and {other} exclude each other"
    for one, needed in NEEDS:
        if gates.on(one) and not gates.on(needed):
            yield f"{one} needs {needed}, which is off"


def parse_gates(text: str, where: str = "--feature-gates") -> dict[str, bool]:
    """`NAME=true,OTHER=false` as changes. Raises Invalid, naming the entry."""
    changes: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = entry.partition("=")
        wanted = _BOOLEANS.get(value.strip().lower())
        if not equals or wanted is None:
            raise Invalid(where, f"{entry!r} must be NAME=true or NAME=false")
        changes[name.strip()] = wanted
    return changes


DEFAULTS = gates_with({})
"""The gates as they come."""
