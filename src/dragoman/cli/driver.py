"""`dragoman driver NAME`: a driver as the process beside a kubelet, real or ours."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import driver_bench, places, serve
from dragoman.drivers.entry import MachineProfile, Site
from dragoman.drivers.registry import DEVICE_PLUGINS, DRIVERS, catalog_with
from dragoman.errors import Invalid
from dragoman.node.paths import CDI, KUBELET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.cli.shell import Shell
    from dragoman.drivers.entry import DriverEntry, DriverFactory

CONTROLLER = "-controller"
"""Ends the command of what a driver runs once for a cluster."""
SIMULATED = "simulated"
"""In the plugin's folder: what simulated hardware keeps."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags: which driver, then its own."""
    drivers = parser.add_subparsers(dest="driver", required=True, metavar="DRIVER", parser_class=type(parser))
    for entry in DRIVERS:
        one = drivers.add_parser(entry.command, help=entry.summary)
        if entry.simulate:
            one.add_argument("--simulate", required=entry.only_simulated, metavar="PROFILE", help=entry.simulate)
            one.add_argument(
                "--profile", action="append", type=Path, metavar="FILE", help="file with more machine profiles"
            )
        entry.flags(one)
        _node_arguments(one, faults=bool(entry.simulate))
        if entry.control is not None:
            once = drivers.add_parser(f"{entry.command}{CONTROLLER}", help=f"run the controller of {entry.name}")
            entry.flags(once)
            serve.arguments(once, lease=f"dragoman-{entry.command}{CONTROLLER}")
            serve.from_environment(once)
    driver_bench.arguments(drivers.add_parser("bench", help="test a driver written in any language"))


def _node_arguments(parser: argparse.ArgumentParser, *, faults: bool) -> None:
    parser.add_argument("--node-name", required=True, metavar="NAME")
    parser.add_argument("--root-dir", type=Path, default=KUBELET, metavar="DIR", help="folder of the kubelet")
    parser.add_argument(
        "--cdi-dir",
        type=Path,
        metavar="DIR",
        help="folder for CDI files; default: /var/run/cdi; with --root-dir DIR: DIR/cdi",
    )
    parser.add_argument(
        "--pod-uid", default="", help="UID of the driver's pod, for rolling updates with two instances at a time"
    )
    parser.add_argument("--boot-id", default="", help="boot ID of the simulated machine; default: that of this machine")
    if faults:
        parser.add_argument(
            "--faults",
            type=Path,
            metavar="DIR",
            help="break the simulated hardware as files in this folder say (`dragoman fault ... --to DIR`)",
        )
    parser.add_argument("--no-device-classes", action="store_true", help="do not create missing DeviceClasses")
    serve.arguments(parser)
    serve.from_environment(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until signalled; devices stay prepared."""
    if args.driver == "bench":
        return driver_bench.run(args)
    if args.driver.endswith(CONTROLLER):
        return _run_controller(args)
    entry = next(entry for entry in DRIVERS if entry.command == args.driver)
    places.check_node(args.node_name)
    # Bad flags, profiles and hardware are refused before anything is made or served.
    factory = entry.standalone(args, _machine(entry, args))
    places.check_root(args.root_dir, f"plugins_registry/{entry.name}-reg.sock")
    if not args.pod_uid:  # with one, two instances share the folder and have sockets of their own
        places.hold_root(args.root_dir, f"driver {entry.command}")
    # With a plugin that is allowed beside it, the kubelet says which devices are whose.
    allowed = getattr(args, "allow_device_plugin", False)
    if not allowed and any(plugin.instead_of == entry.name for plugin in DEVICE_PLUGINS):
        places.hold_devices(args.root_dir, entry.name, f"driver {entry.command}", shared=True)
    return serve.serve(args, lambda shell: _serving(shell, entry, factory, args))


def _run_controller(args: argparse.Namespace) -> int:
    from dragoman.drivers.entry import ClusterSite

    entry = next(entry for entry in DRIVERS if f"{entry.command}{CONTROLLER}" == args.driver)
    control = entry.control
    assert control is not None
    settings = entry.control_settings(args)

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        site = ClusterSite(shell.client, shell.clock, shell.entropy, shell.metrics)
        return lambda: control(site, settings)

    return serve.serve(args, work)


def _machine(entry: DriverEntry, args: argparse.Namespace) -> MachineProfile | None:
    if not entry.simulate:
        return None
    if not args.simulate:
        if args.profile:
            raise Invalid("--profile", "is for --simulate, which is not given")
        return None
    catalog = catalog_with(tuple(args.profile or ()))
    return MachineProfile(catalog, catalog.named(args.simulate, f"--simulate {args.simulate}"))


def _serving(
    shell: Shell, entry: DriverEntry, factory: DriverFactory, args: argparse.Namespace
) -> Callable[[], Awaitable[None]]:
    import msgspec

    from dragoman.daemon.fault_folder import FaultFolder
    from dragoman.drivers.stand_ins import StandIns
    from dragoman.node.checkpoint import kernel_boot_id
    from dragoman.node.classes import install_classes
    from dragoman.node.plugin import Places, Plugin, PluginOptions
    from dragoman.runtime.tasks import Tasks

    boot_id = args.boot_id or kernel_boot_id()
    site = Site(
        args.root_dir,
        boot_id,
        shell.client,
        shell.clock,
        shell.entropy,
        shell.metrics,
        durable=True,
        hardware_dir=Places.under(args.root_dir, entry.name).data_dir / SIMULATED,
    )
    driver = factory.make(args.node_name, site)
    delay_s = [0.0]
    places = Places.under(args.root_dir, entry.name, _cdi_dir(args))
    options = PluginOptions(pod_uid=args.pod_uid, boot_id=boot_id, metadata=factory.metadata, publish_at_once=False)
    if entry.simulate and args.simulate:
        stand_ins = StandIns(places.data_dir / "stand-ins", factory.scripts(driver), places.data_dir)
        options = msgspec.structs.replace(options, adapt=stand_ins.of)
    faults: FaultFolder | None = None
    if entry.simulate and args.faults is not None:
        if not args.simulate:
            raise Invalid("--faults", "is for simulated hardware: --simulate is not given")
        faults = FaultFolder(
            args.faults, entry, driver, args.node_name, shell.clock, lambda seconds: delay_s.__setitem__(0, seconds)
        )
        options = msgspec.structs.replace(options, delay_s=lambda: delay_s[0])
    plugin = Plugin(
        driver,
        shell.client,
        shell.clock,
        shell.entropy,
        node_name=args.node_name,
        places=places,
        options=options,
        metrics=shell.metrics,
    )
    if (before := entry.before) is not None:
        shell.before = lambda: before(args)

    async def live() -> bool:
        # One that waits to be started, for the API server as an example, is not mended by a restart.
        return not plugin.is_running or await plugin.is_live()

    shell.ready = lambda: plugin.is_ready
    shell.live = live

    async def run() -> None:
        async with Tasks(f"driver {entry.command}", shell.clock, shell.entropy) as tasks:
            if not args.no_device_classes:
                # Claims are prepared and unprepared whether or not the classes can be written.
                tasks.supervise("classes", lambda: install_classes(shell.client, entry.classes))
            if faults is not None:
                tasks.supervise("faults", faults.run)
            await plugin.run()

    return run


def _cdi_dir(args: argparse.Namespace) -> Path:
    default = CDI if args.root_dir == KUBELET else args.root_dir / "cdi"
    return args.cdi_dir or default
