"""`dragoman up`: a whole cluster in this process, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import connect, named, output, simulate
from dragoman.cli.nodes import node_argument
from dragoman.cli.versions import minor_of
from dragoman.drivers.registry import DEVICE_PLUGINS, DRIVERS
from dragoman.errors import Denied, Invalid

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from dragoman.daemon.allinone import Cluster, ClusterSettings
    from dragoman.kubelet.processes import ImageMap
    from dragoman.web.server import WebPage

OLDEST = 32
"""Versions that can be played; resource.k8s.io/v1 came with 1.34."""
SLOWEST, FASTEST = 0.001, 10_000.0
"""Bounds of --speed."""
DETACH_S = 120.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of up."""
    parser.add_argument(
        "--node",
        action="append",
        type=node_argument,
        metavar="NAME=PROFILE[*N]",
        help="add a node, or N of them named NAME-0 to NAME-(N-1); PROFILE@device-plugin or PROFILE@dra says how "
        "containers get its GPUs; default: node-0=example",
    )
    parser.add_argument(
        "--gpu-path",
        choices=["dra", "device-plugin"],
        default="dra",
        help="how containers get GPUs on nodes whose --node does not say it: by DRA, or as an extended resource of a "
        "device plugin; default: dra",
    )
    parser.add_argument(
        "--profile",
        action="append",
        type=Path,
        metavar="FILE",
        help="file with more machine profiles; `dragoman profiles` lists the built-in ones",
    )
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="NAME=true,...",
        help="feature gates, with Kubernetes' names and defaults",
    )
    simulate.preemption(parser, "nodes")
    parser.add_argument(
        "--runtime-config",
        default="",
        metavar="GROUP/VERSION=true,...",
        help="turn API versions on or off, as for kube-apiserver, for example api/beta=true",
    )
    for entry in DRIVERS:
        entry.up_flags(parser)
    for plugin in DEVICE_PLUGINS:
        plugin.up_flags(parser)
    parser.add_argument(
        "--without",
        default="",
        metavar="PART,...",
        help="do not run these parts: scheduler, controllers, nodes",
    )
    parser.add_argument("--port", type=int, default=0, help="port of the API on 127.0.0.1; default: any free one")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the state in this folder; default: in memory")
    parser.add_argument(
        "--repair-data",
        action="store_true",
        help="if the log in --data is damaged, continue with what precedes the damage and keep a copy of the rest",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help=f"kubeconfig to write; default: ./{connect.EMBEDDED}, with --name ./dragoman-NAME.kubeconfig",
    )
    parser.add_argument("--name", metavar="NAME", help="name of the cluster in `dragoman clusters`")
    parser.add_argument(
        "--detach", action="store_true", help="run in the background and return once the API is ready; needs --name"
    )
    parser.add_argument(
        "--kubernetes",
        metavar="1.NN",
        default="1.37",
        help="Kubernetes version to serve; default: 1.37",
    )
    parser.add_argument(
        "--authorization",
        choices=["rbac", "allow"],
        default="rbac",
        help="rbac as in a real cluster, or allow everything to everyone; default: rbac",
    )
    parser.add_argument(
        "--user",
        action="append",
        type=_user,
        metavar="NAME[:GROUP,...]",
        help="add a user with its own kubeconfig and no rights until you bind roles; may be repeated",
    )
    parser.add_argument("--speed", type=float, default=1.0, metavar="N", help="run the cluster's clock N times as fast")
    parser.add_argument(
        "--runtime",
        choices=["simulated", "process"],
        default="simulated",
        help="simulated, or process: run containers of images in --image-map as local processes; default: simulated",
    )
    parser.add_argument(
        "--image-map",
        action="append",
        metavar="IMAGE=COMMAND",
        help="run COMMAND instead of the entry point of IMAGE, with the container's args; an empty COMMAND "
        "stands for the container's own command; IMAGE may be a pattern",
    )
    parser.add_argument(
        "--process-network",
        choices=["host", "pod"],
        default="host",
        help="network of pods whose containers are processes: this machine's, as hostNetwork pods have it, or one for "
        "each pod, which reaches the API server alone; default: host",
    )
    parser.add_argument(
        "--web",
        nargs="?",
        type=int,
        const=0,
        metavar="PORT",
        help="serve the page of `dragoman web` on 127.0.0.1, with actions: apply, delete, faults, clock; "
        "default: any free port",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log what each part does")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    from dragoman.cli import signals  # --help is fast without these
    from dragoman.runtime import log

    record = _record(args)
    if args.detach:
        return _detached(record)
    log.setup(level="INFO" if args.verbose else "WARNING", format="human")
    settings = settings_of(args, Path(record.kubeconfig))
    if note := switched_off(settings.minor, settings.runtime_config):
        output.say(f"note: {note}")
    with named.registered(record):
        return signals.run(lambda stop: _up(settings, record, stop, args.web))


def settings_of(args: argparse.Namespace, kubeconfig: Path) -> ClusterSettings:
    """What the flags say. Raises Invalid."""
    from dragoman.allocate.allocator import AllocatorOptions
    from dragoman.api.gates import strict_gates
    from dragoman.apiserver.served import parse_runtime_config
    from dragoman.daemon.allinone import ClusterSettings

    without = _parts(args.without)
    if args.node and "nodes" in without:
        raise Invalid("--node", "cannot be combined with --without nodes")
    groups = args.node or ([] if "nodes" in without else [(("node-0", "example"),)])
    return ClusterSettings(
        images=_images(args),
        nodes=tuple(pair for group in groups for pair in group),
        port=args.port,
        data=args.data,
        repair_data=args.repair_data,
        kubeconfig=_writable(kubeconfig),
        minor=minor_of(args.kubernetes, OLDEST),
        runtime_config=parse_runtime_config(args.runtime_config),
        without=without,
        speed=_speed(args.speed),
        authorization=args.authorization,
        users=tuple(args.user or ()),
        options=AllocatorOptions(gates=strict_gates(args.feature_gates)),
        preemption=args.preemption,
        profiles=tuple(args.profile or ()),
        gpu_path=args.gpu_path,
        drivers={entry.name: entry.up_settings(args) for entry in DRIVERS}
        | {plugin.name: plugin.up_settings(args) for plugin in DEVICE_PLUGINS},
    )


def _record(args: argparse.Namespace) -> named.ClusterRecord:
    name = named.checked(args.name) if args.name else f"up-{os.getpid()}"
    if args.detach and not args.name:
        raise Invalid("--detach", "needs --name, so that the cluster can be found again")
    file = args.kubeconfig or Path(f"dragoman-{name}.kubeconfig" if args.name else connect.EMBEDDED)
    data = str(args.data.absolute()) if args.data else ""
    pid = os.getpid()
    return named.ClusterRecord(name, pid, named.began_at(pid), str(file.absolute()), data, listed=bool(args.name))


def _detached(record: named.ClusterRecord) -> int:
    """The same command in the background; returns once it is ready."""
    import subprocess
    import sys
    import time

    words = [word for word in sys.argv[1:] if word != "--detach"]
    log = named.log_of(record.name)
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    began = time.time()
    with log.open("wb") as file:
        child = subprocess.Popen(  # noqa: S603 - this program itself
            [sys.executable, "-m", "dragoman.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    while child.poll() is None:
        if any(r.name == record.name and r.pid == child.pid and r.ready for r in named.records()):
            output.say(
                log.read_text().replace("Ctrl-C ends it.", f"end it: dragoman clusters stop {record.name}").rstrip()
            )
            child.returncode = 0  # it goes on: nobody waits for it any more
            return 0
        if time.time() - began > DETACH_S:
            child.terminate()
            raise Denied(f"cluster {record.name} is not ready after {DETACH_S:.0f} s; see {log}")
        time.sleep(named.POLL_S)
    print(log.read_text(), end="", file=sys.stderr)
    return child.returncode or 2


def _parts(text: str) -> frozenset[str]:
    from dragoman.daemon.allinone import PARTS

    named = [part.strip() for part in text.split(",") if part.strip()]
    for part in named:
        if part not in PARTS:
            raise Invalid("--without", f"unknown part {part!r}, only {', '.join(PARTS)}")
    return frozenset(named)


def switched_off(minor: int, runtime_config: dict[str, bool]) -> str:
    """What to say where no version of resource.k8s.io is served; empty where one is."""
    from dragoman.api.kinds import BY_NAME
    from dragoman.apiserver.served import Served

    claim = BY_NAME["ResourceClaim"]
    if Served(minor=minor, runtime_config=runtime_config).versions(claim):
        return ""
    known = Served(minor=minor, runtime_config={"api/all": True}).versions(claim)
    flags = ",".join(f"{claim.group}/{version}=true" for version in reversed(known))
    return f"{claim.group} is off, as in Kubernetes 1.{minor} by default; to use it: --runtime-config {flags}"


def _images(args: argparse.Namespace) -> ImageMap:
    from dragoman.kubelet import podnetwork
    from dragoman.kubelet.processes import ImageMap

    given = args.image_map or []
    if given and args.runtime != "process":
        raise Invalid("--image-map", "needs --runtime process")
    if args.runtime == "process" and not given:
        raise Invalid("--runtime process", "needs --image-map: images that it does not name stay simulated")
    own_network = args.process_network == "pod"
    if own_network and args.runtime != "process":
        raise Invalid("--process-network", "needs --runtime process")
    if own_network and not podnetwork.possible():
        raise Denied(
            "--process-network pod: this machine does not allow it; it needs unshare, nsenter and setpriv "
            "(util-linux), and root or the right to make user namespaces"
        )
    return ImageMap.parse(given, own_network=own_network)


def _user(text: str) -> tuple[str, tuple[str, ...]]:
    """NAME[:GROUP,...]; a name that begins with `system:` is taken whole, without groups."""
    name, groups = text, ""
    if not text.startswith("system:"):
        name, _, groups = text.partition(":")
    listed = tuple(group.strip() for group in groups.split(",") if group.strip())
    if not name.strip() or name != name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} names no user: write NAME or NAME:GROUP,GROUP")
    return name, listed


def _speed(number: float) -> float:
    if not SLOWEST <= number <= FASTEST:
        raise Invalid("--speed", f"must be {SLOWEST} to {FASTEST:,.0f}, got {number}")
    return number


def _writable(file: Path) -> Path:
    """The kubeconfig is written last, but an error about it is reported first."""
    if file.is_dir():
        raise Invalid(f"--kubeconfig {file}", "is a folder; name a file")
    if not file.parent.is_dir():
        raise Invalid(f"--kubeconfig {file}", f"there is no folder {file.parent}")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise Denied(f"--kubeconfig {file}: not allowed to write in {file.parent.absolute()}; name another file")
    return file


async def _up(
    settings: ClusterSettings, record: named.ClusterRecord, stop: asyncio.Event, web_port: int | None = None
) -> None:
    from dragoman.apiserver.kubeconfig import of_user
    from dragoman.daemon.allinone import Cluster

    async with Cluster(settings) as cluster, AsyncExitStack() as stack:
        page = await stack.enter_async_context(_page(cluster, web_port)) if web_port is not None else None
        names = [machine.name for machine in cluster.machines]
        record.server, record.nodes, record.ready = cluster.access.server, len(names), True
        with suppress(OSError):
            named.write(record)
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        output.say(f"API server: {cluster.access.server}")
        output.say(f"nodes: {shown or 'none'}")
        if settings.without:
            output.say(f"left out: {', '.join(sorted(settings.without))}")
        output.say(f"state: {settings.data or 'in memory only'}")
        output.say(f"use it: export KUBECONFIG={settings.kubeconfig}; kubectl get nodes")
        for name, _ in settings.users:
            if settings.kubeconfig is not None:
                output.say(f"user {name}: {of_user(settings.kubeconfig, name)}")
        if page is not None:
            output.say(f"page: {page.access.address()} (works once)")
        output.say("Ctrl-C ends it.")
        await stop.wait()


@asynccontextmanager
async def _page(cluster: Cluster, port: int) -> AsyncIterator[WebPage]:
    """The page of the cluster, with the rights of its administrator."""
    from dragoman.cli import web
    from dragoman.cluster.http import HttpClient
    from dragoman.drivers.registry import fault_kinds
    from dragoman.runtime.clock import Clock
    from dragoman.web.actions import Actions

    settings, clock = cluster.settings, Clock()
    given = web.page_settings(settings.options, settings.preemption, port, settings.minor)
    client = HttpClient(cluster.access, clock, cluster.entropy, manager="dragoman")
    try:
        actions = Actions(client, clock, cluster.entropy, fault_kinds())
        async with web.page_of_cluster(client, "", given, actions=actions, now=cluster.clock.utc) as page:
            yield page
    finally:
        await client.close()
