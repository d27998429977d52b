"""How does a driver's program begin and end? Flags and environment, one line for what is wrong, a clean end on SIGTERM.

    if __name__ == "__main__":
        main(MyDriver)            # MyDriver(node_name) implements node.driver.Driver

It decides nothing about devices, and leaves them prepared when it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.cluster.http import HttpClient
from dragoman.cluster.kubeconfig import find
from dragoman.errors import DragomanError
from dragoman.node.classes import install_classes
from dragoman.node.driver import Driver
from dragoman.node.paths import CDI, KUBELET, check_kubelet
from dragoman.node.plugin import Places, Plugin, PluginOptions
from dragoman.runtime import log
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.values.visible import visible_lines


def main(
    make: Callable[[str], Driver], *, classes: Iterable[Object] = (), argv: Sequence[str] | None = None
) -> NoReturn:
    """Serve make(node name) until SIGINT or SIGTERM, then exit with 0; with 2 and one line for what cannot be used.

    classes: DeviceClasses to create where they are missing. argv: the command line, by default the process's own.
    """
    args = _parser().parse_args(argv)
    log.setup(level=args.log_level, format="auto")
    try:
        check_kubelet(args.root_dir)
        asyncio.run(_serve(make, tuple(classes), args))
    except DragomanError as error:
        sys.stderr.write(f"error: {visible_lines(str(error))}\n")
        sys.exit(2)
    sys.exit(0)


def _parser() -> argparse.ArgumentParser:
    given = os.environ
    parser = argparse.ArgumentParser(
        description="A DRA driver, beside a kubelet or a `dragoman node-agent`.", allow_abbrev=False
    )
    node = given.get("NODE_NAME", "")
    parser.add_argument(
        "--node-name", default=node, required=not node, metavar="NAME", help="name of the node; default: $NODE_NAME"
    )
    parser.add_argument(
        "--root-dir", type=Path, default=KUBELET, metavar="DIR", help="folder of the kubelet; default: %(default)s"
    )
    parser.add_argument(
        "--cdi-dir",
        type=Path,
        default=Path(given["CDI_ROOT"]) if given.get("CDI_ROOT") else None,
        metavar="DIR",
        help=f"folder for CDI files; default: $CDI_ROOT, else {CDI}; with another --root-dir: its folder cdi",
    )
    parser.add_argument(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="kubeconfig to use; default: as kubectl, else the service account of the pod",
    )
    parser.add_argument(
        "--pod-uid",
        default=given.get("POD_UID", ""),
        help="UID of the driver's pod, for rolling updates with two instances; default: $POD_UID",
    )
    parser.add_argument("--boot-id", default="", help="boot ID of a simulated machine; default: that of this machine")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


async def _serve(make: Callable[[str], Driver], classes: tuple[Object, ...], args: argparse.Namespace) -> None:
    clock, entropy = Clock(), Entropy()
    driver = make(args.node_name)
    cdi_dir = args.cdi_dir or (CDI if args.root_dir == KUBELET else args.root_dir / "cdi")
    client = HttpClient(find(args.kubeconfig or None), clock, entropy)
    try:
        plugin = Plugin(
            driver,
            client,
            clock,
            entropy,
            node_name=args.node_name,
            places=Places.under(args.root_dir, driver.name, cdi_dir),
            options=PluginOptions(pod_uid=args.pod_uid, boot_id=args.boot_id, publish_at_once=False),
        )
        work = asyncio.ensure_future(_run(plugin, client, classes))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        with suppress(asyncio.CancelledError):
            await work
    finally:
        await client.close()


async def _run(plugin: Plugin, client: Client, classes: tuple[Object, ...]) -> None:
    try:
        await install_classes(client, classes)
    except DragomanError as error:  # the devices can be published all the same
        log.get("driver", driver=plugin.driver.name).warning("DeviceClasses not created", error=str(error))
    await plugin.run()
