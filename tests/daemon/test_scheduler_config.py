"""KubeSchedulerConfiguration: what each profile comes to, what is refused in kube-scheduler's words, what is noted."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.gates import DEFAULTS, gates_with
from dragoman.daemon.scheduler_config import SchedulerConfig, read_config, seconds
from dragoman.errors import Invalid
from dragoman.schedule.profile import DEFAULT_PROFILE, Weights

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def read(**fields: Any) -> SchedulerConfig:
    return read_config({**HEAD, **fields}, "file.yaml", DEFAULTS, "off")


def one(**fields: Any) -> Any:
    return read(profiles=[{"schedulerName": "gpu", **fields}]).profiles["gpu"]


def test_an_empty_file_is_the_default_profile() -> None:
    found = read()
    assert list(found.profiles) == ["default-scheduler"]
    assert found.profiles["default-scheduler"].profile == DEFAULT_PROFILE
    assert (found.lease, found.timing) == (None, (15, 10.0, 2.0))


def test_plugins_and_weights() -> None:
    plugins = {
        "multiPoint": {"disabled": [{"name": "NodePorts"}, {"name": "NodeAffinity"}]},
        "filter": {"disabled": [{"name": "PodTopologySpread"}]},
        "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 7}]},
    }
    profile = one(plugins=plugins).profile
    assert profile.off == {"NodePorts", "NodeAffinity", "PodTopologySpread"}
    assert profile.weights == Weights(taints=0, affinity=0, devices=0, least=7, balanced=0)


def test_a_plugin_that_is_enabled_without_weight_has_weight_1() -> None:
    assert one(plugins={"multiPoint": {"enabled": [{"name": "TaintToleration"}]}}).profile.weights.taints == 1


def test_enabled_wins_over_disabled() -> None:
    plugins = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "DynamicResources", "weight": 9}]}}
    with pytest.raises(Invalid, match="NodeName cannot be disabled here"):
        one(plugins=plugins)
    plugins["multiPoint"]["enabled"] += [{"name": "NodeName"}]
    assert one(plugins=plugins).profile.weights == Weights(0, 0, 9, 0, 0)


def test_arguments_of_plugins() -> None:
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}]
    added = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = one(
        pluginConfig=[
            {"name": "DynamicResources", "args": {"filterTimeout": "0s", "bindingTimeout": "1m30s"}},
            {"name": "NodeAffinity", "args": {"addedAffinity": added}},
        ]
    )
    assert (found.filter_timeout_s, found.binding_timeout_s) == (0.0, 90.0)
    assert found.profile.added.required.node_selector_terms[0].match_expressions[0].values == ("a",)


def test_preemption_is_on_only_where_it_is_asked_for() -> None:
    assert one().preemption == "off"
    assert one(plugins={"postFilter": {"enabled": [{"name": "DefaultPreemption"}]}}).preemption == "nodes"
    config = {**HEAD, "profiles": [{"plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}}]}
    assert read_config(config, "", DEFAULTS, "devices").profiles["default-scheduler"].preemption == "off"


def test_leader_election() -> None:
    timing = {"leaseDuration": "30s", "renewDeadline": "20s", "retryPeriod": "4s", "resourceName": "x"}
    found = read(leaderElection={"resourceNamespace": "infra", **timing})
    assert (found.lease, found.lease_namespace, found.timing) == ("x", "infra", (30, 20.0, 4.0))
    assert read(leaderElection={"leaderElect": False}).lease == ""


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"extra": 1}, 'strict decoding error: unknown field "extra"'),
        ({"profiles": [{"plugin": {}}]}, 'unknown field "profiles[0].plugin"'),
        ({"parallelism": 0}, "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        ({"percentageOfNodesToScore": -1}, "percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]"),
        ({"podInitialBackoffSeconds": 11}, "must be greater than or equal to PodInitialBackoffSeconds"),
        ({"extenders": [{"urlPrefix": "http://x"}]}, "extenders: Forbidden"),
        ({"profiles": [{}, {"schedulerName": "b"}]}, "profiles[0].schedulerName: Required value"),
        ({"profiles": [{"schedulerName": "b"}] * 2}, "profiles[1].schedulerName: Duplicate value"),
        ({"leaderElection": {"leaderElect": True, "resourceLock": "endpoints"}}, 'resourceLock value must be "leases"'),
        ({"clientConnection": {"burst": -2}}, "clientConnection.burst: Invalid value: -2: must be non-negative"),
    ],
)
def test_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid) as error:
        read(**fields)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ({"plugins": {"filter": {"enabled": [{"name": "Coscheduling"}]}}}, '"Coscheduling": does not exist'),
        ({"plugins": {"score": {"enabled": [{"name": "EBSLimits"}]}}}, "score.enabled[0]: Invalid value"),
        ({"plugins": {"bind": {"disabled": [{"name": "DefaultBinder"}]}}}, "bind.disabled: Forbidden"),
        ({"plugins": {"filter": {"disabled": [{"name": "DynamicResources"}]}}}, "DynamicResources cannot be disabled"),
        (
            {"pluginConfig": [{"name": "DynamicResources", "args": {"bindingTimeout": "999ms"}}]},
            'profiles[0].pluginConfig[0].args.bindingTimeout: Invalid value: "999ms": must be at least 1 second',
        ),
        (
            {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]},
            "Lea",
        ),
        ({"pluginConfig": [{"name": "Mine"}]}, "does not exist"),
    ],
)
def test_refused_in_a_profile(profile: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid) as error:
        one(**profile)
    assert text in str(error.value)


def test_a_time_limit_needs_its_gate() -> None:
    config = {**HEAD, "profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "1s"}}]}]}
    with pytest.raises(Invalid, match="filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled"):
        read_config(config, "", gates_with({"DRASchedulerFilterTimeout": False})[0], "off")


def test_what_changes_nothing_is_said() -> None:
    plugins = {"score": {"enabled": [{"name": "ImageLocality", "weight": 4}]}}
    found = read(percentageOfNodesToScore=30, profiles=[{"plugins": plugins}])
    assert any("percentageOfNodesToScore" in note for note in found.notes)
    assert any("ImageLocality" in note for note in found.notes)


def test_another_kind_is_refused() -> None:
    with pytest.raises(Invalid, match="must be a KubeSchedulerConfiguration"):
        read_config({**HEAD, "apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "", DEFAULTS, "off")


@pytest.mark.parametrize(("text", "size"), [("1h2m", 3720), ("1.5s", 1.5), ("-2ms", -0.002), ("0", 0), ("5", None)])
def test_durations(text: str, size: float | None) -> None:
    assert seconds(text) == size
