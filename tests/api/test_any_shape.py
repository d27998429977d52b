"""Nothing in api raises on an object of a wrong shape: what is wrong is a finding."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api import convert, defaults, validate
from dragoman.api.gated import gates_drop
from dragoman.api.gates import DEFAULTS, GATES, gates_with
from dragoman.api.kinds import BY_NAME, KINDS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALL_OFF, _ = gates_with(dict.fromkeys(GATES, False))

FIELDS = [
    "metadata",
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "spec",
    "status",
    "devices",
    "requests",
    "exactly",
    "firstAvailable",
    "deviceClassName",
    "selectors",
    "cel",
    "expression",
    "allocationMode",
    "count",
    "tolerations",
    "capacity",
    "constraints",
    "config",
    "opaque",
    "parameters",
    "matchAttribute",
    "requestPolicy",
    "validRange",
    "validValues",
    "min",
    "max",
    "step",
    "default",
    "value",
    "attributes",
    "string",
    "version",
    "ints",
    "consumesCounters",
    "counterSet",
    "counters",
    "sharedCounters",
    "taints",
    "basic",
    "nodeSelector",
    "nodeSelectorTerms",
    "matchExpressions",
    "allocation",
    "results",
    "reservedFor",
    "template",
    "containers",
    "initContainers",
    "image",
    "resources",
    "limits",
    "claims",
    "resourceClaims",
    "resourceClaimName",
    "volumes",
    "volumeMounts",
    "env",
    "valueFrom",
    "ports",
    "selector",
    "matchLabels",
    "replicas",
    "strategy",
    "rollingUpdate",
    "type",
    "jobTemplate",
    "data",
    "limits",
    "hard",
    "schedulingPolicy",
    "gang",
    "podGroupTemplates",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "networkData",
    "ips",
    "poolCount",
    "pools",
    "conditions",
    "taint",
    "deviceSelector",
    "key",
    "operator",
    "effect",
    "values",
    "pool",
    "driver",
    "nodeName",
    "mapping",
    "overhead",
    "nodeAllocatableResources",
    "bindingConditions",
    "bindingFailureConditions",
    "derivedAttributes",
    "livenessProbe",
    "httpGet",
    "subsets",
    "completions",
    "updateStrategy",
    "volumeClaimTemplates",
    "status",
    "resourceClaimStatuses",
    "requestMappings",
    "roleRef",
    "subjects",
]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 200),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
)
shapes = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)),
    max_leaves=40,
)
objects = st.dictionaries(st.sampled_from(["metadata", "spec", "status", "data", "subsets", "roleRef"]), shapes)


@pytest.mark.slow
@given(st.sampled_from(KINDS), objects, objects)
def test_any_shape_is_judged_without_a_traceback(kind: Any, one: dict[str, Any], two: dict[str, Any]) -> None:
    for version in kind.versions:
        done = defaults.apply(kind.kind, version, one, NOW)
        stored = convert.to_stored(kind.kind, version, done)
        convert.from_stored(kind.kind, version, stored)
        assert all(str(error) for error in validate.create(kind.kind, stored))
    for subresource in ("", "status"):
        assert all(str(error) for error in validate.update(kind.kind, one, two, subresource))
    gates_drop(kind.kind, one, two, ALL_OFF)
    gates_drop(kind.kind, one, None, ALL_OFF)


# One rich valid object a kind; then any one value in it is replaced by something else.
RICH: dict[str, dict[str, Any]] = {
    "ResourceClaim": {
        "metadata": {"name": "c", "namespace": "d", "labels": {"a": "b"}},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "a",
                        "exactly": {
                            "deviceClassName": "c",
                            "allocationMode": "ExactCount",
                            "count": 1,
                            "selectors": [{"cel": {"expression": "true"}}],
                            "tolerations": [{"operator": "Exists"}],
                            "capacity": {"requests": {"m": "1Gi"}},
                        },
                    },
                    {
                        "name": "b",
                        "firstAvailable": [
                            {"name": "s", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
                        ],
                    },
                ],
                "constraints": [{"requests": ["a", "b/s"], "matchAttribute": "d/x"}],
                "config": [{"requests": ["a"], "opaque": {"driver": "d", "parameters": {"x": None}}}],
            }
        },
    },
    "ResourceSlice": {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d",
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
            },
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "g",
                    "attributes": {"a": {"int": 1}, "v": {"version": "1.0.0"}},
                    "capacity": {
                        "m": {"value": "10", "requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "2"}}}
                    },
                    "allowMultipleAllocations": True,
                    "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "1"}}}],
                    "taints": [{"key": "k", "effect": "NoSchedule"}],
                    "bindingConditions": ["x"],
                    "bindingFailureConditions": ["y"],
                }
            ],
        },
    },
    "Deployment": {
        "metadata": {"name": "d", "namespace": "n"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "image": "i",
                            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                            "ports": [{"containerPort": 1}],
                            "resources": {"limits": {"cpu": "1"}, "claims": [{"name": "g"}]},
                            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                            "readinessProbe": {"httpGet": {"port": 1}},
                        }
                    ],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}],
                    "tolerations": [{"key": "k", "operator": "Exists"}],
                    "nodeSelector": {"a": "b"},
                },
            },
        },
    },
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


STRANGE: list[Any] = [None, True, -1, 10**12, 1.5, "", "x y", "A" * 300, [], [None], [{}], {}, {"x": None}, {"": []}]


@pytest.mark.slow
@pytest.mark.parametrize("kind", RICH)
def test_any_value_in_a_valid_object_may_be_strange(kind: str) -> None:
    group = BY_NAME[kind]
    stored = defaults.apply(kind, group.versions[0], RICH[kind], NOW)
    assert [str(error) for error in validate.create(kind, stored)] == []
    for path in places(RICH[kind]):
        for strange in STRANGE:
            obj = copy.deepcopy(RICH[kind])
            holder = obj
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = strange
            for version in group.versions:
                sent = convert.from_stored(kind, version, obj)
                stored = convert.to_stored(kind, version, defaults.apply(kind, version, sent, NOW))
                errors = validate.create(kind, stored) + validate.update(kind, stored, RICH[kind])
                assert all(json.dumps([error.path, error.body]) for error in errors)
                gates_drop(kind, stored, None, DEFAULTS)
