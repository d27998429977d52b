"""`dragoman driver NAME`: a driver as the process beside a kubelet, real or ours."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import driver_bench, places, serve
from dragoman.node.paths import CDI, KUBELET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.cli.shell import Shell, Work
    from dragoman.drivers.nvidia.driver import DriverOptions
    from dragoman.drivers.nvidia.hardware import Hardware
    from dragoman.node.plugin import Plugin
    from dragoman.profiles import Catalog, Profile

LONGEST_SOCKET = "plugins_registry/gpu.example.com-reg.sock"
"""Below a node's folder, of the drivers that are built in."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags: which driver, then its own."""
    drivers = parser.add_subparsers(dest="driver", required=True, metavar="DRIVER", parser_class=type(parser))
    one = drivers.add_parser("example", help="made-up GPUs, gpu.example.com")
    one.add_argument("--count", type=int, default=8, metavar="N", help="devices; default 8")
    _node_arguments(one)
    nvidia = drivers.add_parser("nvidia", help="NVIDIA GPUs through NVML, or simulated ones, gpu.nvidia.com")
    _nvidia_arguments(nvidia)
    _node_arguments(nvidia)
    nic = drivers.add_parser("nic", help="network adapters of simulated machines, dra.net")
    nic.add_argument("--simulate", required=True, metavar="PROFILE", help="the adapters of this machine profile")
    nic.add_argument("--profile", action="append", type=Path, metavar="FILE", help="machine profiles of your own")
    _node_arguments(nic)
    driver_bench.arguments(drivers.add_parser("bench", help="examine a driver of any language"))


def _nvidia_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--simulate", metavar="PROFILE", help="the GPUs of a machine profile instead of this machine's")
    parser.add_argument("--profile", action="append", type=Path, metavar="FILE", help="machine profiles of your own")
    parser.add_argument("--feature-gates", default="", metavar="NAME=true,...", help="of the driver, as upstream's")
    parser.add_argument(
        "--consumable-shares",
        default="",
        metavar="MODE",
        help="disabled, memory, unlimited or a number of shares; needs the gate ConsumableShares",
    )
    parser.add_argument(
        "--xid-effect",
        choices=["NoSchedule", "NoExecute", "None"],
        default="NoSchedule",
        help="of the taint after an XID that counts, with the gate NVMLDeviceHealthCheck; default: NoSchedule",
    )
    parser.add_argument(
        "--additional-xids-to-ignore", default="", metavar="N,...", help="beside 13, 31, 43, 45, 68 and 109"
    )
    parser.add_argument(
        "--clear-taints-on-recovery", action="store_true", help="default: taints stay until the driver starts again"
    )
    parser.add_argument(
        "--nvidia-driver-root", default="/", metavar="DIR", help="where the kernel driver's files are on the host"
    )
    parser.add_argument(
        "--driver-root-ctr-path", default="", metavar="DIR", help="the same folder as this process sees it"
    )


def _node_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--node-name", required=True, metavar="NAME")
    parser.add_argument("--root-dir", type=Path, default=KUBELET, metavar="DIR", help="the kubelet's folder")
    parser.add_argument(
        "--cdi-dir", type=Path, metavar="DIR", help="default: /var/run/cdi; with --root-dir DIR: DIR/cdi"
    )
    parser.add_argument("--pod-uid", default="", help="for rolling updates with two instances at a time")
    parser.add_argument("--boot-id", default="", help="of the simulated machine; default: this machine's")
    serve.arguments(parser)
    serve.from_environment(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until told to end; devices stay prepared."""
    if args.driver == "bench":
        return driver_bench.run(args)
    places.check_node(args.node_name)
    places.check_root(args.root_dir, LONGEST_SOCKET)
    work = {"example": _example, "nvidia": _nvidia, "nic": _nic}[args.driver](args)
    if not args.pod_uid:  # with one, two instances share the folder and have sockets of their own
        places.hold_root(args.root_dir, f"driver {args.driver}")
    return serve.serve(args, work)


def _cdi_dir(args: argparse.Namespace) -> Path:
    default = CDI if args.root_dir == KUBELET else args.root_dir / "cdi"
    return args.cdi_dir or default


def _example(args: argparse.Namespace) -> Work:
    from dragoman.drivers.example.run import install, plugin  # --help is fast without gRPC

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        made = plugin(
            shell.client,
            shell.clock,
            shell.entropy,
            node_name=args.node_name,
            root_dir=args.root_dir,
            cdi_dir=_cdi_dir(args),
            count=args.count,
            pod_uid=args.pod_uid,
            boot_id=args.boot_id,
            metrics=shell.metrics,
        )
        return _serving(shell, made, install)

    return work


def _serving(shell: Shell, made: Plugin, prepare: Callable[..., Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    shell.ready = made.registered.is_set

    async def run() -> None:
        await prepare(shell.client)
        await made.run()

    return run


def _nvidia(args: argparse.Namespace) -> Work:
    from dragoman.drivers.nvidia import run as nvidia

    # Bad flags and profiles are told before anything is served.
    hardware = _hardware(args)
    options = _options(args)

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        made = nvidia.plugin(
            shell.client,
            shell.clock,
            shell.entropy,
            hardware,
            node_name=args.node_name,
            root_dir=args.root_dir,
            cdi_dir=_cdi_dir(args),
            options=options,
            metrics=shell.metrics,
            pod_uid=args.pod_uid,
            boot_id=args.boot_id,
        )
        return _serving(shell, made, nvidia.install)

    return work


def _options(args: argparse.Namespace) -> DriverOptions:
    from dragoman.drivers.nvidia.devices import Shares
    from dragoman.drivers.nvidia.driver import DriverOptions
    from dragoman.drivers.nvidia.gates import gates_with, parse_gates
    from dragoman.drivers.nvidia.health import IGNORED, HealthOptions, parse_xids

    health = HealthOptions(
        xid_effect=args.xid_effect,
        ignored=IGNORED | parse_xids(args.additional_xids_to_ignore, "--additional-xids-to-ignore"),
        clear_on_recovery=args.clear_taints_on_recovery,
    )
    gates = gates_with(parse_gates(args.feature_gates), "--feature-gates")
    return DriverOptions(gates, Shares.parse(args.consumable_shares), health, args.nvidia_driver_root)


def _hardware(args: argparse.Namespace) -> Hardware:
    if not args.simulate:
        from dragoman.drivers.nvidia.nvml import NvmlHardware

        real = NvmlHardware(driver_root=Path(args.driver_root_ctr_path or args.nvidia_driver_root))
        # A machine without the driver is told at once, not by a loop that fails again and again.
        real.open()
        return real
    from dragoman.drivers.nvidia.simulated import SimulatedHardware
    from dragoman.node.checkpoint import kernel_boot_id

    catalog, profile = _profile(args)
    return SimulatedHardware(
        catalog, profile, args.node_name, args.root_dir / "simulated", args.boot_id or kernel_boot_id(), durable=True
    )


def _profile(args: argparse.Namespace) -> tuple[Catalog, Profile]:
    from dragoman.drivers.nvidia.gates import gates_with
    from dragoman.errors import Invalid
    from dragoman.profiles import Catalog

    catalog = Catalog.packaged()
    for file in args.profile or ():
        catalog = catalog.adding(file, gates_with)
    profile = catalog.profile(args.simulate)
    if profile is None:
        raise Invalid(f"--simulate {args.simulate}", "no such profile; `dragoman profiles` lists them")
    return catalog, profile


def _nic(args: argparse.Namespace) -> Work:
    from dragoman.drivers.nic import DEVICE_CLASSES, DRIVER, NicDriver
    from dragoman.node.classes import install_classes
    from dragoman.node.plugin import Places, Plugin

    catalog, profile = _profile(args)

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        made = Plugin(
            NicDriver(args.node_name, profile, catalog.nics, shell.clock),
            shell.client,
            shell.clock,
            shell.entropy,
            node_name=args.node_name,
            places=Places.under(args.root_dir, DRIVER, _cdi_dir(args)),
            metrics=shell.metrics,
            pod_uid=args.pod_uid,
            boot_id=args.boot_id,
        )
        return _serving(shell, made, lambda client: install_classes(client, DEVICE_CLASSES))

    return work
