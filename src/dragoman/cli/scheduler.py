"""`dragoman scheduler`: the scheduler as a daemon, for pods with schedulerName `dragoman`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import msgspec

from dragoman.cli import output, serve, simulate
from dragoman.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.cli.shell import Shell
    from dragoman.daemon.scheduler import SchedulerSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the scheduler."""
    parser.add_argument(
        "--scheduler-name",
        action="append",
        metavar="NAME",
        help="spec.schedulerName to schedule for; default: dragoman",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): profiles, plugins, weights, time limits",
    )
    parser.add_argument(
        "--nodes",
        default="",
        metavar="SELECTOR",
        help="bind pods only to nodes whose labels match, such as example.com/stage=dragoman",
    )
    parser.add_argument(
        "--devices",
        default="",
        metavar="DRIVER[/POOL],...",
        help="allocate only devices of these drivers or pools",
    )
    parser.add_argument("--policy", choices=["first-fit", "pack"], default="first-fit")
    simulate.strict(parser)
    simulate.preemption(parser, "off")
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="NAME=true,...",
        help="feature gates, with Kubernetes' names and defaults",
    )
    parser.add_argument(
        "--filter-timeout",
        default="10s",
        metavar="DURATION",
        help="time limit of the search for devices of a pod (DynamicResourcesArgs.filterTimeout); 0s: no limit",
    )
    parser.add_argument(
        "--share-devices",
        action="store_true",
        help="start although another scheduler may allocate the same devices; each decision is then checked twice",
    )
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="decide what another scheduler decides and compare, writing nothing; --scheduler-name says whose pods, "
        "default here: default-scheduler",
    )
    serve.arguments(parser, lease="dragoman-scheduler")
    serve.from_environment(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until signalled."""
    from dragoman.allocate.allocator import AllocatorOptions  # --help is fast without them
    from dragoman.api.gates import lenient_gates
    from dragoman.daemon import coexistence
    from dragoman.daemon.scheduler import Scheduler, SchedulerSettings
    from dragoman.runtime.config import duration_s
    from dragoman.schedule.scope import DeviceScope

    gates, unknown = lenient_gates(args.feature_gates)
    for name in unknown:
        output.say(f"warning: --feature-gates: {name} is not known here and changes nothing")
    names = args.scheduler_name or ["default-scheduler" if args.shadow else "dragoman"]
    settings = SchedulerSettings(
        names=tuple(names.split(",") if isinstance(names, str) else names),
        options=AllocatorOptions(gates=gates, policy=args.policy, strict=args.strict),
        preemption=args.preemption,
        filter_timeout_s=duration_s(args.filter_timeout, "--filter-timeout"),
    )
    if args.config:
        settings = _configured(args, settings)
    if args.nodes:
        settings = _only_nodes(args.nodes, settings)
    settings = msgspec.structs.replace(settings, scope=DeviceScope.parse(args.devices))
    if args.shadow:
        return _shadow(args, settings)
    settings = msgspec.structs.replace(settings, own_lease=args.lease_name or "dragoman-scheduler")

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        scheduler = Scheduler(shell.client, shell.clock, shell.entropy, settings, shell.metrics)

        async def before() -> None:
            found = await coexistence.check(
                shell.client, shell.clock, settings.own_lease, share=args.share_devices, scope=settings.scope
            )
            scheduler.shared = found if found.is_shared else None

        shell.before = before
        shell.ready = lambda: scheduler.ready
        return scheduler.run

    return serve.serve(args, work)


def _configured(args: argparse.Namespace, settings: SchedulerSettings) -> SchedulerSettings:
    """The settings with what the file of --config says; it also sets the flags of the Lease. Raises Invalid."""
    from dragoman.api import yamltext
    from dragoman.cli import manifests
    from dragoman.daemon.scheduler_config import read_config

    if args.scheduler_name:
        raise Invalid("--scheduler-name", "the profiles of --config name the schedulers")
    ((_, text),) = list(manifests.texts([args.config]))
    try:
        value = yamltext.parse(text, args.config)
    except yamltext.Broken as error:
        raise Invalid(args.config, error.what) from None
    found = read_config(value, args.config, settings.options.gates, args.preemption)
    for note in found.notes:
        output.say(f"{args.config}: {note}")
    if found.lease is not None:
        args.lease_name = found.lease
    args.lease_namespace, args.lease_timing = found.lease_namespace, found.timing
    args.kubeconfig = args.kubeconfig or found.kubeconfig or None
    return msgspec.structs.replace(settings, names=tuple(found.profiles), profiles=found.profiles, limits=found.limits)


def _only_nodes(text: str, settings: SchedulerSettings) -> SchedulerSettings:
    """The settings with nodes limited to those that a label selector matches, in every profile. Raises Invalid."""
    from dragoman.api.core import NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
    from dragoman.apiserver.selectors import parse_labels
    from dragoman.apiserver.status import StatusError

    operators = {"in": "In", "notin": "NotIn", "exists": "Exists", "absent": "DoesNotExist", "gt": "Gt", "lt": "Lt"}
    try:
        wanted = [NodeSelectorRequirement(one.key, operators[one.operator], one.values) for one in parse_labels(text)]
    except StatusError as error:
        raise Invalid("--nodes", str(error)) from None
    profiles = {}
    for name in settings.names:
        found = settings.profile(name)
        added = found.profile.added or NodeAffinity()
        terms = added.required.node_selector_terms if added.required is not None else (NodeSelectorTerm(),)
        both = tuple(
            msgspec.structs.replace(term, match_expressions=(*term.match_expressions, *wanted)) for term in terms
        )
        added = msgspec.structs.replace(added, required=NodeSelector(both))
        profiles[name] = msgspec.structs.replace(found, profile=msgspec.structs.replace(found.profile, added=added))
    return msgspec.structs.replace(settings, profiles=profiles)


def _shadow(args: argparse.Namespace, settings: SchedulerSettings) -> int:
    """Serve without a Lease, which would have to be written."""
    from dragoman.daemon.shadow import Shadow, ShadowSettings
    from dragoman.explain import comparison

    args.lease_name = ""
    profiles = {name: settings.profile(name).profile for name in settings.names}
    wanted = ShadowSettings(settings.names, settings.options, profiles)

    def work(shell: Shell) -> Callable[[], Awaitable[None]]:
        shadow = Shadow(shell.client, shell.clock, shell.entropy, wanted, shell.metrics)
        shell.ready = lambda: shadow.ready
        shell.reports["/shadow"] = lambda: output.versioned("ShadowReport", comparison.as_json(shadow.tally))
        return shadow.run

    return serve.serve(args, work)
