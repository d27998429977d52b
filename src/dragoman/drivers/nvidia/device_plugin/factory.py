"""How is the device plugin made? For a real node, for a simulated one, and for all machines of a profile."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api.shape import Object
from dragoman.drivers.entry import DevicePluginFactory, MachineProfile, RunningDevicePlugin, Site
from dragoman.drivers.nvidia import smi_script
from dragoman.drivers.nvidia.accounts import account
from dragoman.drivers.nvidia.device_plugin import config as configs
from dragoman.drivers.nvidia.device_plugin import node_config, other_path, preference
from dragoman.drivers.nvidia.device_plugin.config import PluginConfig
from dragoman.drivers.nvidia.device_plugin.health import HealthChecks, from_environment
from dragoman.drivers.nvidia.device_plugin.mig_labels import OWN_MAP
from dragoman.drivers.nvidia.device_plugin.node_config import NodeConfig
from dragoman.drivers.nvidia.device_plugin.parts import (
    DISCOVERY_ACCOUNT,
    MIG_ACCOUNT,
    NAMESPACE,
    NodeParts,
    node_labels,
)
from dragoman.drivers.nvidia.device_plugin.service import NAME, DevicePluginService
from dragoman.drivers.nvidia.hardware import Gpu, Hardware
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.drivers.nvidia.toolkit import Toolkit, ToolkitOptions, parse_options
from dragoman.drivers.nvidia.topology import link
from dragoman.drivers.stand_ins import StandIns
from dragoman.errors import Invalid
from dragoman.kubelet.injection import Injector
from dragoman.profiles.machine import Profile
from dragoman.runtime.tasks import Tasks

ACCOUNT = NAME
CONFIG_MAP = (NAMESPACE, "nvidia-device-plugin-config")
LINKED = 100
"""A link by NVLink is worth so much, and more with every link in it."""


class PluginSettings(msgspec.Struct, frozen=True):
    """How the plugin behaves. text: of its configuration file; over: flags over it; config_map: namespace and name, ()
    for none; default: of its keys."""

    text: str = ""
    where: str = "configuration"
    over: Mapping[str, Any] = {}
    config_map: tuple[str, str] | tuple[()] = CONFIG_MAP
    default: str = ""
    checks: HealthChecks = HealthChecks()
    toolkit: ToolkitOptions = ToolkitOptions()


SETTINGS = PluginSettings()


class NvidiaDevicePlugin(RunningDevicePlugin):
    """The plugin of one node, with what decides on its configuration, and the parts of the GPU operator beside it."""

    def __init__(self, service: DevicePluginService, manager: NodeConfig | None, beside: NodeParts | None) -> None:
        self.service = service
        self.manager = manager
        self.beside = beside
        self.registered = service.registered
        self.hardware = service.hardware

    async def run(self) -> None:
        """Serve until cancelled."""
        async with Tasks(NAME, self.service.clock, self.service.entropy) as tasks:
            if self.manager is not None:
                tasks.supervise("configuration", self.manager.run)
                await self.manager.ready.wait()
            if self.beside is None:
                tasks.supervise("plugin", self.service.run)
            else:
                tasks.supervise("parts", self.beside.run)

    def restart(self) -> None:
        """As after SIGHUP."""
        self.service.restart()


def on_machine(machine: MachineProfile, settings: PluginSettings) -> DevicePluginFactory | None:
    """On the GPUs of a machine profile; None where it has none. Raises Invalid for a bad configuration."""
    if not machine.profile.gpus:
        return None
    config = configs.parse(settings.text, settings.where, settings.over)

    def make(node_name: str, site: Site, cdi_dir: Path, adapted: bool) -> RunningDevicePlugin:
        hardware = SimulatedHardware(
            machine.catalog, machine.profile, node_name, site.simulated_dir, site.boot_id, durable=site.durable
        )
        hardware.check(shared=site.is_shared)
        return _plugin(node_name, site, cdi_dir, hardware, settings, config, adapted=adapted)

    def injector(plugin: Any) -> Injector:
        return Toolkit(plugin.hardware, settings.toolkit)

    return DevicePluginFactory(NAME, make, lambda rack: node_labels(machine, rack), injector)


def standalone(args: Namespace, machine: MachineProfile | None) -> DevicePluginFactory:
    """Of the command: on this machine's GPUs, or with --simulate on those of a profile. Raises Invalid, Denied."""
    settings = _settings(args)
    if machine is not None:
        made = on_machine(machine, settings)
        if made is None:
            raise Invalid(f"--simulate {args.simulate}", "this machine has no NVIDIA GPUs")
        return made
    from dragoman.drivers.nvidia.nvml import NvmlHardware  # not for simulated GPUs

    config = configs.parse(settings.text, settings.where, settings.over)
    hardware = NvmlHardware(driver_root=Path(args.driver_root_ctr_path or config.driver_root))
    if config.fail_on_init_error:
        hardware.open()

    def make(node_name: str, site: Site, cdi_dir: Path, adapted: bool) -> RunningDevicePlugin:
        return _plugin(node_name, site, cdi_dir, hardware, settings, config, adapted=False)

    return DevicePluginFactory(NAME, make)


def _plugin(
    node_name: str,
    site: Site,
    cdi_dir: Path,
    hardware: Hardware,
    settings: PluginSettings,
    config: PluginConfig,
    *,
    adapted: bool,
) -> NvidiaDevicePlugin:
    adapt = None
    score: preference.Score = preference.place_score
    if isinstance(hardware, SimulatedHardware):
        score = profile_score(hardware.profile)
        if adapted:
            scripts = {smi_script.PATH: smi_script.script(hardware.gpus(), hardware.profile.driver)}
            folder = site.simulated_dir
            adapt = StandIns(folder / "stand-ins", scripts, folder).of
    service = DevicePluginService(
        node_name,
        hardware,
        site.root,
        cdi_dir,
        site.clock,
        site.entropy,
        config=config,
        checks=settings.checks,
        score=score,
        adapt=adapt,
        withheld=lambda: other_path.held_by_claims(site.root, hardware),
    )
    manager = None
    if settings.config_map:
        manager = NodeConfig(
            site.as_account(NAMESPACE, ACCOUNT),
            site.clock,
            site.entropy,
            node_name=node_name,
            config_map=settings.config_map,
            apply=service.configure,
            default=settings.default,
            base=settings.text,
            over=settings.over,
            nodes=site.nodes,
        )
    beside = None
    if isinstance(hardware, SimulatedHardware) and site.nodes is not None:
        beside = NodeParts(service, site, hardware)
    return NvidiaDevicePlugin(service, manager, beside)


def profile_score(profile: Profile) -> preference.Score:
    """How well GPUs of a machine profile are linked: NVLinks first, then their places."""

    def score(a: Gpu, b: Gpu) -> int:
        text = link(profile, a, b).strip()
        nvlinks = int(text[2:]) if text.startswith("NV") and text[2:].isdecimal() else 0
        return (LINKED + nvlinks if nvlinks else 0) + preference.place_score(a, b)

    return score


# ---- flags


def _settings(args: Namespace) -> PluginSettings:
    text, where = _file(args.config_file, "--config-file")
    over = {name: getattr(args, name) for name in configs.OVER}
    return PluginSettings(
        text,
        where,
        {name: value for name, value in over.items() if value is not None},
        _map(args.config_map, "--config-map"),
        args.default_config,
        from_environment(os.environ),
    )


def up_settings(args: Namespace) -> PluginSettings:
    """From the flags of `dragoman up`. Raises Invalid."""
    text, where = _file(args.device_plugin_config, "--device-plugin-config")
    configs.parse(text, where)
    return PluginSettings(
        text, where, toolkit=parse_options(args.nvidia_container_toolkit, "--nvidia-container-toolkit")
    )


def _file(path: Path | None, flag: str) -> tuple[str, str]:
    if path is None:
        return "", "configuration"
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except FileNotFoundError:
        raise Invalid(f"{flag} {path}", "there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{flag} {path}", f"cannot be read: {error}") from None


def _map(text: str, flag: str) -> tuple[str, str] | tuple[()]:
    if not text:
        return ()
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise Invalid(flag, f"must be NAMESPACE/NAME, got {text!r}")
    return namespace, name


# ---- rights


def installed() -> tuple[Object, ...]:
    """The accounts of the plugin and of the parts beside it, with what each may do."""
    read = ["get", "list", "watch"]
    nodes = {"apiGroups": [""], "resources": ["nodes"]}
    own_map = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [CONFIG_MAP[1]], "verbs": read}
    mig_map = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [OWN_MAP[1]], "verbs": read}
    maps = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]}
    events = {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}
    return (
        *account(NAMESPACE, ACCOUNT, [{**nodes, "verbs": read}], [own_map]),
        *account(NAMESPACE, DISCOVERY_ACCOUNT, [{**nodes, "verbs": ["get", "patch"]}], []),
        *account(NAMESPACE, MIG_ACCOUNT, [{**nodes, "verbs": ["get", "patch"]}, events], [mig_map, maps]),
    )


LABEL = node_config.LABEL
