"""What does a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) mean for this scheduler?

`read_config` checks it as kube-scheduler 1.37 does, in its words, and gives the settings of each profile. What this
scheduler cannot do is refused where it would change where pods go, and named in a note where it would not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.core import NodeAffinity
from dragoman.api.gates import Gates
from dragoman.api.validate.field import Errors, FieldPath
from dragoman.api.validate.shared import node_selector, node_selector_term
from dragoman.daemon.scheduler import FILTER_TIMEOUT_GATE, FILTER_TIMEOUT_S, ProfileSettings
from dragoman.errors import Invalid
from dragoman.schedule.conditions import TIMEOUT_S
from dragoman.schedule.profile import NODE_CHECKS, POD_CHECKS, SchedulerProfile, Weights
from dragoman.schedule.queue import QueueLimits
from dragoman.schedule.units import PreemptionMode

ROOT = FieldPath()
API_VERSION, KIND = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"

# Plugins of kube-scheduler's default profile with their weights, and where each takes part.
SCORED = {
    "TaintToleration": ("taints", 3),
    "NodeAffinity": ("affinity", 2),
    "DynamicResources": ("devices", 2),
    "NodeResourcesFit": ("least", 1),
    "NodeResourcesBalancedAllocation": ("balanced", 1),
}
SWITCHED = (*NODE_CHECKS, *POD_CHECKS)
FIXED = ("SchedulingGates", "PrioritySort", "NodeName", "DefaultBinder", "DynamicResources")
"""What this scheduler always does."""
NOT_SCORED = {"PodTopologySpread": 2, "InterPodAffinity": 2, "ImageLocality": 1}
"""Score plugins of the default profile that change no decision here."""
NOT_DONE = ("NodeVolumeLimits", "NodeDeclaredFeatures")
GROUPS = ("GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount")
PREEMPTION = "DefaultPreemption"
KNOWN = {*SCORED, *SWITCHED, *FIXED, *NOT_SCORED, *NOT_DONE, *GROUPS, PREEMPTION}
REMOVED = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
FILTERS = {*SWITCHED, "NodeName", "DynamicResources", *NOT_DONE}
SCORES = {*SCORED, *NOT_SCORED, "VolumeBinding"}
_REMOVED = f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'
CHANGED_POINTS = ("multiPoint", "filter", "score", "postFilter")
_DURATION = re.compile(r"([+-]?)((?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|s|m|h))+|[+-]?0")
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class _Part(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pass


class _Election(_Part):
    leader_elect: bool | None = None
    lease_duration: str | None = None
    renew_deadline: str | None = None
    retry_period: str | None = None
    resource_lock: str | None = None
    resource_name: str | None = None
    resource_namespace: str | None = None


class _Connection(_Part):
    kubeconfig: str | None = None
    accept_content_types: str | None = None
    content_type: str | None = None
    qps: float | None = None
    burst: int | None = None


class _Plugin(_Part):
    name: str = ""
    weight: int | None = None


class _PluginSet(_Part):
    enabled: list[_Plugin] | None = None
    disabled: list[_Plugin] | None = None


class _Plugins(_Part):
    multi_point: _PluginSet | None = None
    pre_enqueue: _PluginSet | None = None
    queue_sort: _PluginSet | None = None
    pre_filter: _PluginSet | None = None
    filter: _PluginSet | None = None
    post_filter: _PluginSet | None = None
    pre_score: _PluginSet | None = None
    score: _PluginSet | None = None
    reserve: _PluginSet | None = None
    permit: _PluginSet | None = None
    pre_bind: _PluginSet | None = None
    bind: _PluginSet | None = None
    post_bind: _PluginSet | None = None
    placement_generate: _PluginSet | None = None
    placement_score: _PluginSet | None = None
    pod_group_post_filter: _PluginSet | None = None

    def points(self) -> Iterable[tuple[str, _PluginSet]]:
        for field in msgspec.structs.fields(self):
            found = getattr(self, field.name)
            if found is not None:
                yield field.encode_name, found


class _PluginConfig(_Part):
    name: str = ""
    args: Any = None


class _Profile(_Part):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: int | None = None
    plugins: _Plugins | None = None
    plugin_config: list[_PluginConfig] | None = None


class _Config(_Part):
    api_version: str = ""
    kind: str = ""
    parallelism: int | None = None
    leader_election: _Election | None = None
    client_connection: _Connection | None = None
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int | None = None
    pod_max_backoff_seconds: int | None = None
    profiles: list[_Profile] | None = None
    extenders: list[Any] | None = None
    delay_cache_until_active: bool | None = None


class _PluginArgs(_Part):
    api_version: str = ""
    kind: str = ""


class _DynamicResourcesArgs(_PluginArgs):
    filter_timeout: str | None = None
    binding_timeout: str | None = None


class _NodeAffinityArgs(_PluginArgs):
    added_affinity: Any = None


class _FitArgs(_PluginArgs):
    ignored_resources: list[str] | None = None
    ignored_resource_groups: list[str] | None = None
    scoring_strategy: Any = None


class _BalancedArgs(_PluginArgs):
    resources: list[Any] | None = None


class _SpreadArgs(_PluginArgs):
    default_constraints: list[Any] | None = None
    defaulting_type: str | None = None


class SchedulerConfig(msgspec.Struct, frozen=True):
    """What the file says. profiles: settings by spec.schedulerName, in order. lease: its name; "": no election; None:
    not stated (then flags say). timing: leaseDuration, renewDeadline, retryPeriod in seconds. notes: what is accepted
    and changes nothing, one line each."""

    profiles: dict[str, ProfileSettings]
    limits: QueueLimits
    lease: str | None
    lease_namespace: str
    timing: tuple[int, float, float]
    kubeconfig: str
    notes: tuple[str, ...]


def read_config(value: Any, where: str, gates: Gates, preemption: PreemptionMode) -> SchedulerConfig:
    """The configuration. where: the file, for errors. preemption: that of profiles that do not speak of it.

    Raises Invalid with every error found, in kube-scheduler's words where it validates the same.
    """
    if not isinstance(value, dict) or value.get("kind") != KIND or value.get("apiVersion") != API_VERSION:
        found = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else ("", "")
        raise Invalid(
            where, f"must be a {KIND} of {API_VERSION}, got {found[1] or 'no kind'} of {found[0] or 'no API'}"
        )
    config = _strict(value, _Config, where, "")
    reader = _Reader(gates, preemption, where)
    found_config = reader.config(config)
    if reader.errors:
        raise Invalid(where, "; ".join(map(str, reader.errors)))
    return found_config


def seconds(text: str) -> float | None:
    """Seconds of a Go duration; None if it is none."""
    if not _DURATION.fullmatch(text):
        return None
    size = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return -size if text.startswith("-") else size


def _strict(value: Any, type_: type[Any], where: str, path: str) -> Any:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        place = f"{path}{place.rstrip('`')}".lstrip(".")
        unknown = re.search(r"unknown field `(.+)`", what)
        if unknown:
            field = f"{place}.{unknown[1]}" if place else unknown[1]
            raise Invalid(where, f'strict decoding error: unknown field "{field}"') from None
        raise Invalid(where, f"{place}: {what}" if place else what) from None


class _Reader:
    """Collects errors and notes on the way through one file."""

    def __init__(self, gates: Gates, preemption: PreemptionMode, where: str) -> None:
        self.errors: Errors = []
        self.notes: list[str] = []
        self._gates = gates
        self._preemption = preemption
        self._where = where

    # ---- the whole

    def config(self, config: _Config) -> SchedulerConfig:
        election = config.leader_election or _Election()
        connection = config.client_connection or _Connection()
        if connection.burst is not None and connection.burst < 0:
            self.errors.append((ROOT / "clientConnection" / "burst").invalid(connection.burst, "must be non-negative"))
        lease, timing = self._election(election)
        if config.parallelism is not None and config.parallelism <= 0:
            detail = "should be an integer value greater than zero"
            self.errors.append((ROOT / "parallelism").invalid(config.parallelism, detail))
        profiles = self._profiles(config.profiles or [_Profile()])
        self._percentage(config.percentage_of_nodes_to_score, ROOT)
        first, most = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
        first, most = 1 if first is None else first, 10 if most is None else most
        if first <= 0:
            self.errors.append((ROOT / "podInitialBackoffSeconds").invalid(first, "must be greater than 0"))
        if most < first:
            detail = "must be greater than or equal to PodInitialBackoffSeconds"
            self.errors.append((ROOT / "podMaxBackoffSeconds").invalid(most, detail))
        if config.extenders:
            self.errors.append((ROOT / "extenders").forbidden("scheduler extenders are not called by Dragoman"))
        self._without_effect(config, connection)
        return SchedulerConfig(
            profiles,
            QueueLimits(backoff_first_s=float(first), backoff_max_s=float(most)),
            lease,
            election.resource_namespace or "kube-system",
            timing,
            connection.kubeconfig or "",
            tuple(self.notes),
        )

    def _without_effect(self, config: _Config, connection: _Connection) -> None:
        if config.parallelism is not None:
            self.notes.append("parallelism: changes nothing, equal nodes are checked once")
        if connection.qps is not None or connection.burst is not None:
            self.notes.append(
                "clientConnection.qps, burst: change nothing, the API server's priority and fairness limits"
            )
        if connection.content_type or connection.accept_content_types:
            self.notes.append("clientConnection.contentType: changes nothing, JSON is used")
        if config.enable_profiling or config.enable_contention_profiling:
            self.notes.append("enableProfiling, enableContentionProfiling: there is no such endpoint")
        if config.delay_cache_until_active is not None:
            self.notes.append("delayCacheUntilActive: changes nothing, replicas that do not lead watch nothing")

    def _election(self, election: _Election) -> tuple[str | None, tuple[int, float, float]]:
        path = ROOT / "leaderElection"
        given = (election.lease_duration, election.renew_deadline, election.retry_period)
        names = ("leaseDuration", "renewDeadline", "retryPeriod")
        times: list[float] = []
        for name, text, default in zip(names, given, (15.0, 10.0, 2.0), strict=True):
            found = seconds(text) if text is not None else default
            if found is None:
                self.errors.append((path / name).invalid(text, "must be a duration such as 15s"))
                found = default
            elif found <= 0:
                self.errors.append((path / name).invalid(text, "must be greater than zero"))
                found = default
            times.append(found)
        if election.leader_elect is False:
            return "", (15, 10.0, 2.0)
        if election.resource_lock not in (None, "", "leases"):
            detail = 'resourceLock value must be "leases"'
            self.errors.append((path / "resourceLock").invalid(election.resource_lock, detail))
        duration, deadline, retry = times
        if duration <= deadline:
            detail = "must be greater than `RenewDeadline`"
            self.errors.append((path / "leaseDuration").invalid(election.lease_duration or "15s", detail))
        if deadline <= retry:
            detail = "must be greater than `RetryPeriod`"
            self.errors.append((path / "renewDeadline").invalid(election.renew_deadline or "10s", detail))
        return election.resource_name or None, (max(1, round(duration)), deadline, retry)

    def _percentage(self, percent: int | None, path: FieldPath) -> None:
        if percent is None:
            return
        place = path / "percentageOfNodesToScore"
        if not 0 <= percent <= 100:
            self.errors.append(place.invalid(percent, "not in valid range [0-100]"))
        else:
            self.notes.append(f"{place}: changes nothing, every node is checked, equal ones once")

    # ---- profiles

    def _profiles(self, profiles: list[_Profile]) -> dict[str, ProfileSettings]:
        found: dict[str, ProfileSettings] = {}
        places: dict[str, FieldPath] = {}
        for index, profile in enumerate(profiles):
            path = (ROOT / "profiles")[index]
            name = profile.scheduler_name
            if name is None and len(profiles) == 1:
                name = "default-scheduler"
            if not name:
                self.errors.append((path / "schedulerName").required(""))
                continue
            if name in places:
                self.errors.append((path / "schedulerName").duplicate(str(places[name] / "schedulerName")))
            places.setdefault(name, path)
            self._percentage(profile.percentage_of_nodes_to_score, path)
            found[name] = self._profile(profile, path)
        return found

    def _profile(self, profile: _Profile, path: FieldPath) -> ProfileSettings:
        plugins = profile.plugins or _Plugins()
        self._check_plugins(plugins, path / "plugins")
        filters = _effective(plugins, "filter", FILTERS)
        scores = _effective(plugins, "score", SCORES)
        after = _effective(plugins, "post_filter", {PREEMPTION, "DynamicResources"})
        weights = {field: scores.get(name, 0) for name, (field, _) in SCORED.items()}
        for name in sorted(set(_asked(plugins)) & {*NOT_SCORED, *NOT_DONE}):
            what = "preferences are not scored" if name in NOT_SCORED else "not done by Dragoman"
            self.notes.append(f"{path / 'plugins'}: {name}: {what}, so its settings change nothing")
        for name in FIXED:
            if name in FILTERS and name not in filters:
                self.errors.append((path / "plugins").forbidden(f"{name} cannot be disabled here"))
        timeouts = [FILTER_TIMEOUT_S, TIMEOUT_S]
        added = self._plugin_config(profile.plugin_config or [], path / "pluginConfig", timeouts)
        preemption = self._preemption
        if PREEMPTION not in after:
            preemption = "off"
        elif PREEMPTION in _asked(plugins) and preemption == "off":
            preemption = "nodes"
        elif preemption == "off":
            note = "DefaultPreemption is off unless the file enables it by name or --preemption says nodes"
            if note not in self.notes:
                self.notes.append(note)
        off = frozenset(name for name in SWITCHED if name not in filters)
        return ProfileSettings(SchedulerProfile(Weights(**weights), off, added), timeouts[0], timeouts[1], preemption)

    def _check_plugins(self, plugins: _Plugins, path: FieldPath) -> None:
        for point, chosen in plugins.points():
            place = path / point
            for index, plugin in enumerate(chosen.enabled or ()):
                entry = (place / "enabled")[index]
                if plugin.name in REMOVED:
                    self.errors.append(entry.invalid(plugin.name, _REMOVED))
                elif plugin.name not in KNOWN:
                    self.errors.append(
                        entry.invalid(plugin.name, "does not exist: Dragoman has no out-of-tree plugins")
                    )
            disabled = [plugin.name for plugin in chosen.disabled or ()]
            enabled = {plugin.name for plugin in chosen.enabled or ()}
            if point not in CHANGED_POINTS and disabled and not set(disabled) - {"*"} <= enabled:
                detail = f"nothing can be disabled at this point: use {', '.join(CHANGED_POINTS)}"
                self.errors.append((place / "disabled").forbidden(detail))
            for index, name in enumerate(disabled):
                if name in FIXED and name not in enabled and point in ("multiPoint", "filter"):
                    entry = (place / "disabled")[index]
                    self.errors.append(entry.forbidden(f"{name} cannot be disabled here"))

    # ---- arguments of plugins

    def _plugin_config(
        self, configs: list[_PluginConfig], path: FieldPath, timeouts: list[float]
    ) -> NodeAffinity | None:
        added = None
        seen: set[str] = set()
        for index, config in enumerate(configs):
            place = path[index]
            args = place / "args"
            if config.name in seen:
                self.errors.append(place.duplicate(config.name))
            seen.add(config.name)
            given = config.args or {}
            match config.name:
                case "DynamicResources":
                    self._timeouts(_strict(given, _DynamicResourcesArgs, self._where, str(args)), args, timeouts)
                case "NodeAffinity":
                    wanted = _strict(given, _NodeAffinityArgs, self._where, str(args)).added_affinity
                    added = self._added(wanted, args / "addedAffinity")
                case "NodeResourcesFit":
                    self._fit(_strict(given, _FitArgs, self._where, str(args)), args)
                case "NodeResourcesBalancedAllocation":
                    asked = _strict(given, _BalancedArgs, self._where, str(args)).resources
                    self._resources(asked, args / "resources", balanced=True)
                case "PodTopologySpread":
                    self._spread(_strict(given, _SpreadArgs, self._where, str(args)), args)
                case "InterPodAffinity" | "DefaultPreemption" | "VolumeBinding":
                    self.notes.append(f"{args}: {config.name}: its arguments change nothing here")
                case name if name in REMOVED:
                    self.errors.append(place.invalid(name, _REMOVED))
                case name if name not in KNOWN:
                    self.errors.append(place.invalid(name, "does not exist: Dragoman has no out-of-tree plugins"))
                case _:
                    pass
        return added

    def _timeouts(self, args: _DynamicResourcesArgs, path: FieldPath, timeouts: list[float]) -> None:
        given = (("filterTimeout", args.filter_timeout), ("bindingTimeout", args.binding_timeout))
        for index, (name, text) in enumerate(given):
            if text is None:
                continue
            found = seconds(text)
            place = path / name
            if found is None:
                self.errors.append(place.invalid(text, "must be a duration such as 10s"))
            elif index == 0 and not self._gates.on(FILTER_TIMEOUT_GATE):
                self.errors.append(place.forbidden("DRASchedulingFilterTimeout feature gate is disabled"))
            elif index == 1 and not (
                self._gates.on("DRADeviceBindingConditions") and self._gates.on("DRAResourceClaimDeviceStatus")
            ):
                detail = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"
                self.errors.append(place.forbidden(detail))
            elif index == 0 and found < 0:
                self.errors.append(place.invalid(text, "must be zero or positive"))
            elif index == 1 and found < 1:
                self.errors.append(place.invalid(text, "must be at least 1 second"))
            else:
                timeouts[index] = found

    def _added(self, affinity: Any, path: FieldPath) -> NodeAffinity | None:
        if affinity is None:
            return None
        if not isinstance(affinity, dict):
            self.errors.append(path.invalid(affinity, "must be a NodeAffinity"))
            return None
        before = len(self.errors)
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required is not None:
            self.errors += node_selector(required, path / "requiredDuringSchedulingIgnoredDuringExecution")
        place = path / "preferredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            preference = term.get("preference") if isinstance(term, dict) else None
            self.errors += node_selector_term(preference, place[index] / "preference")
        return codec.decode(NodeAffinity, affinity) if len(self.errors) == before else None

    def _fit(self, args: _FitArgs, path: FieldPath) -> None:
        if args.ignored_resources or args.ignored_resource_groups:
            name = "ignoredResources" if args.ignored_resources else "ignoredResourceGroups"
            self.errors.append((path / name).forbidden("resources cannot be ignored by Dragoman"))
        if args.scoring_strategy is None:
            return
        place = path / "scoringStrategy"
        strategy = args.scoring_strategy if isinstance(args.scoring_strategy, dict) else {}
        kind = strategy.get("type", "")
        known = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
        if kind not in known:
            self.errors.append((place / "type").not_supported(kind, known))
        elif kind != "LeastAllocated":
            detail = f"{kind} is not scored by Dragoman, only LeastAllocated; --policy pack packs devices"
            self.errors.append((place / "type").forbidden(detail))
        self._resources(strategy.get("resources"), place / "resources")

    def _resources(self, resources: Any, path: FieldPath, *, balanced: bool = False) -> None:
        for index, one in enumerate(resources or ()):
            weight = one.get("weight", 1) if isinstance(one, dict) else 0
            name = one.get("name", "") if isinstance(one, dict) else ""
            place = path[index] / "weight"
            if balanced and weight != 1:
                self.errors.append(place.invalid(weight, "must be 1"))
            elif not 0 < weight <= 100:
                self.errors.append(place.invalid(weight, f"resource weight of {name} not in valid range (0, 100]"))
            elif name not in ("cpu", "memory") or weight != 1:
                detail = "Dragoman scores cpu and memory with weight 1 each"
                self.errors.append(path[index].forbidden(detail))
        names = {one.get("name") for one in resources or () if isinstance(one, dict)}
        if names and names != {"cpu", "memory"} and names < {"cpu", "memory"}:
            self.errors.append(path.forbidden("Dragoman scores cpu and memory with weight 1 each"))

    def _spread(self, args: _SpreadArgs, path: FieldPath) -> None:
        kind = args.defaulting_type or "System"
        if kind not in ("System", "List"):
            self.errors.append((path / "defaultingType").not_supported(kind, ("System", "List")))
        elif kind == "System" and args.default_constraints:
            self.errors.append((path / "defaultingType").invalid(kind, "when .defaultConstraints are not empty"))
        for index, one in enumerate(args.default_constraints or ()):
            place = (path / "defaultConstraints")[index]
            when = one.get("whenUnsatisfiable") if isinstance(one, dict) else None
            if when == "DoNotSchedule":
                self.errors.append(place.forbidden("constraints for all pods are not made by Dragoman"))
            elif when != "ScheduleAnyway":
                self.errors.append(
                    (place / "whenUnsatisfiable").not_supported(when, ("DoNotSchedule", "ScheduleAnyway"))
                )
            else:
                self.notes.append(f"{place}: preferences are not scored, so it changes nothing")


# ---- which plugins take part


def _effective(plugins: _Plugins, point: str, taking_part: set[str]) -> dict[str, int]:
    """Plugin to weight at one point: the default ones, changed by multiPoint, then by the point itself."""
    found = dict.fromkeys(KNOWN, 1)
    found |= NOT_SCORED | {name: weight for name, (_, weight) in SCORED.items()}
    for chosen in (plugins.multi_point, getattr(plugins, point)):
        if chosen is None:
            continue
        disabled = {plugin.name for plugin in chosen.disabled or ()}
        found = {name: weight for name, weight in found.items() if name not in disabled and "*" not in disabled}
        found |= {plugin.name: plugin.weight or 1 for plugin in chosen.enabled or ()}
    return {name: weight for name, weight in found.items() if name in taking_part}


def _asked(plugins: _Plugins) -> list[str]:
    """The plugins that the file enables by name."""
    return [plugin.name for _, chosen in plugins.points() for plugin in chosen.enabled or ()]
