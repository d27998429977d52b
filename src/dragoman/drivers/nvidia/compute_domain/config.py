"""What did a claim configure, and for which domain? Opaque parameters of the two kinds, decoded strictly.

Pure: decodes, validates, and finds the entry that applies to each device, as the GPU driver's `config` does.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from dragoman.drivers.nvidia.compute_domain.names import API_VERSION
from dragoman.errors import Invalid
from dragoman.node.driver import ClaimToPrepare

DomainDeviceType: TypeAlias = Literal["channel", "daemon"]
MODES = ("Single", "All")


class ChannelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """ComputeDomainChannelConfig: domainID is the domain's uid; allocationMode Single or All."""

    domain_id: str = msgspec.field(name="domainID", default="")
    allocation_mode: str = "Single"


class DaemonConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ComputeDomainDaemonConfig: domainID is the domain's uid."""

    domain_id: str = msgspec.field(name="domainID", default="")


DomainConfig: TypeAlias = ChannelConfig | DaemonConfig
KINDS: dict[str, type[DomainConfig]] = {
    "ComputeDomainChannelConfig": ChannelConfig,
    "ComputeDomainDaemonConfig": DaemonConfig,
}
FITTING: dict[DomainDeviceType, str] = {"channel": "ComputeDomainChannelConfig", "daemon": "ComputeDomainDaemonConfig"}


def decode(parameters: Any, where: str) -> tuple[str, DomainConfig]:
    """(kind, configuration) of opaque parameters. Raises Invalid with the field."""
    if not isinstance(parameters, dict):
        raise Invalid(where, "must be an object with apiVersion and kind")
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if version != API_VERSION:
        raise Invalid(f"{where}.apiVersion", f"must be {API_VERSION}, got {version!r}")
    made = KINDS.get(kind) if isinstance(kind, str) else None
    if made is None:
        raise Invalid(f"{where}.kind", f"must be one of {', '.join(KINDS)}, got {kind!r}")
    fields = {name: value for name, value in parameters.items() if name not in ("apiVersion", "kind")}
    try:
        return str(kind), msgspec.convert(fields, made)
    except msgspec.ValidationError as error:
        raise Invalid(where, str(error)) from None


def resolved(claim: ClaimToPrepare, request: str, wanted: DomainDeviceType) -> DomainConfig:
    """The configuration for a request that was given a device of that type; later entries win.

    An entry that names the request must fit the device, one that names none is taken only if it fits. Raises Invalid.
    """
    top = request.partition("/")[0]
    kind = FITTING[wanted]
    chosen: tuple[DomainConfig, str] = KINDS[kind](), f"claim {claim.ref}"
    for index, entry in enumerate(claim.config):
        where = f"claim {claim.ref}: status.allocation.devices.config[{index}].opaque.parameters"
        assert entry.opaque is not None
        found, config = decode(entry.opaque.parameters, where)
        named = request in entry.requests or top in entry.requests
        if named and found != kind:
            raise Invalid(where, f"{found} cannot configure request {request}, whose device is of type {wanted}")
        if (named or not entry.requests) and found == kind:
            chosen = config, where
    config, where = chosen
    if not config.domain_id:
        raise Invalid(f"{where}: domainID", "domainID cannot be empty")
    if isinstance(config, ChannelConfig) and config.allocation_mode not in MODES:
        raise Invalid(f"{where}.allocationMode", f"must be Single or All, got {config.allocation_mode!r}")
    return config
