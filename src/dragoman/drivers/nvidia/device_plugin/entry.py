"""What does Dragoman have to know of NVIDIA's device plugin? Its flags, and the machines it runs on."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.drivers.entry import DevicePluginEntry, DevicePluginFactory, MachineProfile
from dragoman.drivers.nvidia.classes import GPU

if TYPE_CHECKING:
    from dragoman.api.shape import Object


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--config-file", type=Path, metavar="FILE", help="configuration file, in the format of NVIDIA's plugin"
    )
    parser.add_argument(
        "--config-map",
        default="",
        metavar="NAMESPACE/NAME",
        help="ConfigMap of configurations; the node label nvidia.com/device-plugin.config chooses the key",
    )
    parser.add_argument(
        "--default-config", default="", metavar="KEY", help="key of --config-map for nodes without the label"
    )
    parser.add_argument("--mig-strategy", metavar="none|single|mixed", help="default: none")
    parser.add_argument(
        "--device-list-strategy",
        metavar="NAME,...",
        help="envvar, volume-mounts, cdi-annotations, cdi-cri; default: envvar",
    )
    parser.add_argument("--device-id-strategy", metavar="uuid|index", help="default: uuid")
    parser.add_argument("--cdi-annotation-prefix", metavar="PREFIX", help="default: cdi.k8s.io/")
    parser.add_argument("--shared-devices-allocation-policy", metavar="distributed|packed", help="default: distributed")
    parser.add_argument("--nvidia-driver-root", metavar="DIR", help="where the driver's files are; default: /")
    parser.add_argument(
        "--driver-root-ctr-path", default="", metavar="DIR", help="the same folder as this process sees it"
    )
    parser.add_argument("--mps-root", metavar="DIR", help="folder of MPS control daemons; default: /run/nvidia/mps")
    for flag, text in (
        ("fail-on-init-error", "exit if there is no kernel driver, instead of waiting for one; default: yes"),
        ("pass-device-specs", "name device nodes, too, for runtimes without NVIDIA's toolkit; default: no"),
        ("gdrcopy-enabled", "let containers use GDRCopy"),
        ("gds-enabled", "let containers use GPUDirect Storage"),
        ("mofed-enabled", "let containers use MOFED"),
    ):
        parser.add_argument(f"--{flag}", action=BooleanOptionalAction, default=None, help=text)


def _up_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--device-plugin-config",
        type=Path,
        metavar="FILE",
        help="configuration of NVIDIA's device plugin on simulated nodes; a key of the ConfigMap "
        "kube-system/nvidia-device-plugin-config that applies to a node takes precedence",
    )
    parser.add_argument(
        "--nvidia-container-toolkit",
        default="",
        metavar="NAME=true,...",
        help="settings of the container toolkit of nodes with the device plugin",
    )


def _up_settings(args: Namespace) -> Any:
    from dragoman.drivers.nvidia.device_plugin import factory

    return factory.up_settings(args)


def _on_machine(machine: MachineProfile, settings: Any) -> DevicePluginFactory | None:
    from dragoman.drivers.nvidia.device_plugin import factory

    return factory.on_machine(machine, settings or factory.SETTINGS)


def _standalone(args: Namespace, machine: MachineProfile | None) -> DevicePluginFactory:
    from dragoman.drivers.nvidia.device_plugin import factory

    return factory.standalone(args, machine)


async def _before(args: Namespace) -> None:
    from dragoman.drivers.nvidia.device_plugin import other_path

    await other_path.refuse_driver(args.root_dir)


def _installed() -> tuple[Object, ...]:
    from dragoman.drivers.nvidia.device_plugin import factory

    return factory.installed()


ENTRY = DevicePluginEntry(
    "nvidia-device-plugin",
    GPU,
    "nvidia-mig-1g.10gb.me.shared.sock",
    standalone=_standalone,
    on_machine=_on_machine,
    flags=_flags,
    up_flags=_up_flags,
    up_settings=_up_settings,
    installed=_installed,
    before=_before,
)
