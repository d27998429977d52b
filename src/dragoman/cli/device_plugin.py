"""`dragoman device-plugin`: GPUs as extended resources, beside a kubelet, real or ours."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import places, serve
from dragoman.drivers.entry import MachineProfile, Site
from dragoman.drivers.registry import DEVICE_PLUGINS, catalog_with
from dragoman.errors import Invalid
from dragoman.node.paths import CDI, KUBELET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.cli.shell import Shell
    from dragoman.drivers.entry import DevicePluginFactory

(ENTRY,) = DEVICE_PLUGINS


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the plugin, and of a daemon of a node."""
    parser.add_argument("--simulate", metavar="PROFILE", help="the GPUs of a machine profile instead of this machine's")
    parser.add_argument("--profile", action="append", type=Path, metavar="FILE", help="file with more machine profiles")
    ENTRY.flags(parser)
    parser.add_argument("--node-name", required=True, metavar="NAME")
    parser.add_argument("--root-dir", type=Path, default=KUBELET, metavar="DIR", help="folder of the kubelet")
    parser.add_argument(
        "--cdi-dir",
        type=Path,
        metavar="DIR",
        help="folder for CDI files; default: /var/run/cdi; with --root-dir DIR: DIR/cdi",
    )
    parser.add_argument("--boot-id", default="", help="boot ID of the simulated machine; default: that of this machine")
    serve.arguments(parser)
    serve.from_environment(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; SIGHUP begins again. Devices stay with the containers that have them."""
    places.check_node(args.node_name)
    factory = ENTRY.standalone(args, _machine(args))
    places.check_root(args.root_dir, f"device-plugins/{ENTRY.longest_socket}")
    places.hold_root(args.root_dir, "device plugin")
    places.hold_devices(args.root_dir, ENTRY.instead_of, "device plugin")
    return serve.serve(args, lambda shell: _serving(shell, factory, args))


def _machine(args: argparse.Namespace) -> MachineProfile | None:
    if not args.simulate:
        if args.profile:
            raise Invalid("--profile", "is for --simulate, which is not given")
        return None
    catalog = catalog_with(tuple(args.profile or ()))
    return MachineProfile(catalog, catalog.named(args.simulate, f"--simulate {args.simulate}"))


def _serving(shell: Shell, factory: DevicePluginFactory, args: argparse.Namespace) -> Callable[[], Awaitable[None]]:
    import asyncio

    from dragoman.node.checkpoint import kernel_boot_id
    from dragoman.node.plugin import Places

    site = Site(
        args.root_dir,
        args.boot_id or kernel_boot_id(),
        shell.client,
        shell.clock,
        shell.entropy,
        shell.metrics,
        durable=True,
        # Where the DRA driver of these GPUs keeps them: it is the same machine.
        hardware_dir=Places.under(args.root_dir, ENTRY.instead_of).data_dir / "simulated",
    )
    cdi_dir = args.cdi_dir or (CDI if args.root_dir == KUBELET else args.root_dir / "cdi")
    plugin = factory.make(args.node_name, site, cdi_dir, adapted=bool(args.simulate))
    shell.ready = plugin.registered.is_set
    if (before := ENTRY.before) is not None:
        shell.before = lambda: before(args)

    async def work() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, plugin.restart)
        await plugin.run()

    return work
