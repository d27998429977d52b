"""How is the device plugin configured? Its file, with flags and environment over it, checked.

The file's fields are those of NVIDIA/k8s-device-plugin `api/config/v1`. What that parses and ignores is ignored here
too, and named as a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec
import yaml

from dragoman.errors import Invalid

MigStrategy: TypeAlias = Literal["none", "single", "mixed"]
ListStrategy: TypeAlias = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]
IdStrategy: TypeAlias = Literal["uuid", "index"]
AllocationPolicy: TypeAlias = Literal["distributed", "packed"]
MIG_STRATEGIES, LIST_STRATEGIES, ID_STRATEGIES, POLICIES = map(
    get_args, (MigStrategy, ListStrategy, IdStrategy, AllocationPolicy)
)
REPLICAS_MIN = 2
PREFIX = "nvidia.com/"
NAME_MAX = 63
MPS_ROOT = "/run/nvidia/mps"
IGNORED = ("rename", "devices")
"""Fields of a shared resource that released builds parse and ignore."""


class SharedResource(msgspec.Struct, frozen=True):
    """A resource of which every device is advertised `replicas` times."""

    name: str
    replicas: int


class ResourceSharing(msgspec.Struct, frozen=True, rename="camel"):
    """Time-slicing or MPS. fail_requests_greater_than_one None: as the kind of sharing has it."""

    resources: tuple[SharedResource, ...] = ()
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None


class SharingModes(msgspec.Struct, frozen=True, rename="camel"):
    """At most one of them has resources; MPS wins."""

    time_slicing: ResourceSharing = ResourceSharing()
    mps: ResourceSharing | None = None


class PluginFlags(msgspec.Struct, frozen=True, rename="camel"):
    """flags.plugin of the file."""

    pass_device_specs: bool = False
    device_list_strategy: tuple[str, ...] | str = ("envvar",)
    device_id_strategy: str = "uuid"
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    shared_devices_allocation_policy: str = "distributed"


class ConfigFlags(msgspec.Struct, frozen=True, rename="camel"):
    """flags of the file, as far as they concern the plugin."""

    mig_strategy: str = "none"
    fail_on_init_error: bool = True
    nvidia_driver_root: str = "/"
    mps_root: str = MPS_ROOT
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    plugin: PluginFlags = PluginFlags()


class ImexChannels(msgspec.Struct, frozen=True):
    """IMEX channels that every container of the resource gets."""

    channel_ids: tuple[int, ...] = msgspec.field(name="channelIDs", default=())
    required: bool = False


class ConfigFile(msgspec.Struct, frozen=True):
    """The file."""

    version: str = "v1"
    flags: ConfigFlags = ConfigFlags()
    sharing: SharingModes = SharingModes()
    imex: ImexChannels = ImexChannels()


SharingKind: TypeAlias = Literal["time-slicing", "mps", "none"]


class PluginConfig(msgspec.Struct, frozen=True):
    """What the plugin does. sharing: of `resources`, by its kind; xids are in `health`."""

    mig_strategy: MigStrategy = "none"
    fail_on_init_error: bool = True
    driver_root: str = "/"
    mps_root: str = MPS_ROOT
    gdrcopy: bool = False
    gds: bool = False
    mofed: bool = False
    pass_device_specs: bool = False
    list_strategies: tuple[ListStrategy, ...] = ("envvar",)
    id_strategy: IdStrategy = "uuid"
    annotation_prefix: str = "cdi.k8s.io/"
    policy: AllocationPolicy = "distributed"
    kind: SharingKind = "none"
    sharing: ResourceSharing = ResourceSharing()
    channels: tuple[int, ...] = ()
    channels_required: bool = False
    warnings: tuple[str, ...] = ()

    def replicas(self, resource: str) -> int:
        """How often each device of a resource is advertised; 1 for those that are not shared."""
        return next((one.replicas for one in self.sharing.resources if one.name == resource), 1)

    @property
    def fails_greater_than_one(self) -> bool:
        """Whether a container may ask for one shared device at most."""
        asked = self.sharing.fail_requests_greater_than_one
        return self.kind == "mps" if asked is None else asked

    @property
    def uses_cdi(self) -> bool:
        """Whether containers get devices by CDI."""
        return bool({"cdi-annotations", "cdi-cri"} & set(self.list_strategies))


DEFAULT = PluginConfig()


def parse(text: str, where: str, over: Mapping[str, Any] | None = None) -> PluginConfig:
    """The configuration of a file's text, with flags over it. over: flat names of `OVER`. Raises Invalid."""
    try:
        body = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise Invalid(where, f"is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(body, dict):
        raise Invalid(where, f"must be a configuration of the device plugin (version: v1, ...), got {body!r:.40}")
    try:
        file = msgspec.convert(body, ConfigFile, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(where, str(error)) from None
    if file.version != "v1":
        raise Invalid(f"{where}: version", f"must be v1, got {file.version!r}")
    return _checked(file, where, over or {}, tuple(_ignored(body)))


OVER = {
    "mig_strategy": ("flags", "migStrategy"),
    "fail_on_init_error": ("flags", "failOnInitError"),
    "nvidia_driver_root": ("flags", "nvidiaDriverRoot"),
    "mps_root": ("flags", "mpsRoot"),
    "pass_device_specs": ("flags", "plugin", "passDeviceSpecs"),
    "device_list_strategy": ("flags", "plugin", "deviceListStrategy"),
    "device_id_strategy": ("flags", "plugin", "deviceIDStrategy"),
    "cdi_annotation_prefix": ("flags", "plugin", "cdiAnnotationPrefix"),
    "shared_devices_allocation_policy": ("flags", "plugin", "sharedDevicesAllocationPolicy"),
    "gdrcopy_enabled": ("flags", "gdrcopyEnabled"),
    "gds_enabled": ("flags", "gdsEnabled"),
    "mofed_enabled": ("flags", "mofedEnabled"),
}
"""ConfigFlags of the command that stand over the file, and where the file has them."""


def _ignored(body: Mapping[str, Any]) -> Iterator[str]:
    if body.get("resources"):
        yield "resources is ignored, as in released builds of the device plugin: resources cannot be renamed by it"
    for kind in ("timeSlicing", "mps"):
        for index, one in enumerate(((body.get("sharing") or {}).get(kind) or {}).get("resources") or ()):
            for field in IGNORED if isinstance(one, dict) else ():
                if one.get(field) not in (None, "", "all"):
                    at = f"sharing.{kind}.resources[{index}].{field}"
                    yield f"{at} is ignored, as in released builds of the device plugin"
    known = {"version", "flags", "resources", "sharing", "imex"}
    for name in body.keys() - known:
        yield f"{name} is unknown and ignored"


def _checked(file: ConfigFile, where: str, over: Mapping[str, Any], warnings: tuple[str, ...]) -> PluginConfig:
    flags, plugin = file.flags, file.flags.plugin
    given = {name: value for name, value in over.items() if value is not None}

    def value(name: str, of_file: Any) -> Any:
        return given.get(name, of_file)

    def choice(name: str, of_file: str, choices: Sequence[str]) -> Any:
        found = value(name, of_file)
        if found not in choices:
            place = f"--{name.replace('_', '-')}" if name in given else f"{where}: {'.'.join(OVER[name])}"
            raise Invalid(place, f"must be one of {', '.join(choices)}, got {found!r}")
        return found

    listed = value("device_list_strategy", plugin.device_list_strategy)
    names = tuple(listed.split(",")) if isinstance(listed, str) else tuple(listed)
    for name in names:
        if name not in LIST_STRATEGIES:
            place = "--device-list-strategy" if "device_list_strategy" in given else f"{where}: deviceListStrategy"
            raise Invalid(place, f"must be of {', '.join(LIST_STRATEGIES)}, got {name!r}")
    kind, sharing = _sharing(file.sharing, where)
    strategy = choice("mig_strategy", flags.mig_strategy, MIG_STRATEGIES)
    if kind == "mps" and strategy == "mixed":
        raise Invalid(f"{where}: sharing.mps", "cannot be used with MIG strategy mixed")
    if file.imex.channel_ids not in ((), (0,)):
        raise Invalid(f"{where}: imex.channelIDs", f"must be [] or [0], got {list(file.imex.channel_ids)}")
    return PluginConfig(
        mig_strategy=strategy,
        fail_on_init_error=value("fail_on_init_error", flags.fail_on_init_error),
        driver_root=value("nvidia_driver_root", flags.nvidia_driver_root),
        mps_root=value("mps_root", flags.mps_root) or MPS_ROOT,
        gdrcopy=value("gdrcopy_enabled", flags.gdrcopy_enabled),
        gds=value("gds_enabled", flags.gds_enabled),
        mofed=value("mofed_enabled", flags.mofed_enabled),
        pass_device_specs=value("pass_device_specs", plugin.pass_device_specs),
        list_strategies=names,  # type: ignore[arg-type]
        id_strategy=choice("device_id_strategy", plugin.device_id_strategy, ID_STRATEGIES),
        annotation_prefix=value("cdi_annotation_prefix", plugin.cdi_annotation_prefix),
        policy=choice("shared_devices_allocation_policy", plugin.shared_devices_allocation_policy, POLICIES),
        kind=kind,
        sharing=sharing,
        channels=file.imex.channel_ids,
        channels_required=file.imex.required,
        warnings=warnings,
    )


def _sharing(modes: SharingModes, where: str) -> tuple[SharingKind, ResourceSharing]:
    mps = modes.mps if modes.mps is not None and modes.mps.resources else None
    kind: SharingKind = "mps" if mps else "time-slicing" if modes.time_slicing.resources else "none"
    sharing = mps or modes.time_slicing
    field = "mps" if mps else "timeSlicing"
    for index, one in enumerate(sharing.resources):
        at = f"{where}: sharing.{field}.resources[{index}]"
        if one.replicas < REPLICAS_MIN:
            raise Invalid(f"{at}.replicas", f"must be {REPLICAS_MIN} or more, got {one.replicas}")
        if not one.name.startswith(PREFIX):
            raise Invalid(f"{at}.name", f"must begin with {PREFIX}, got {one.name!r}")
        if len(one.name) > NAME_MAX:
            raise Invalid(f"{at}.name", f"must have at most {NAME_MAX} characters, got {len(one.name)}")
        if mps and one.name.startswith(f"{PREFIX}mig-"):
            raise Invalid(f"{at}.name", f"MPS cannot share MIG devices, got {one.name!r}")
    return kind, sharing
