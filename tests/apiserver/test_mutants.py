"""Is no input answered with 500? Sound objects with one part replaced by something else, in every kind of write."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.bootstrap import in_memory
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

from .test_http import Api

pytestmark = pytest.mark.slow

CONTAINER = {
    "name": "c",
    "image": "i",
    "ports": [{"containerPort": 80}],
    "env": [{"name": "A", "value": "1"}],
    "resources": {"claims": [{"name": "g"}], "limits": {"cpu": "1"}},
}
POD_SPEC = {
    "containers": [CONTAINER],
    "resourceClaims": [{"name": "g", "resourceClaimName": "c"}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "nodeSelector": {"a": "b"},
    "schedulingGates": [{"name": "example.com/g"}],
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
REQUESTS = [
    {
        "name": "r",
        "exactly": {
            "deviceClassName": "d.example.com",
            "selectors": [{"cel": {"expression": "true"}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "capacity": {"requests": {"memory": "1Gi"}},
        },
    },
    {"name": "s", "firstAvailable": [{"name": "x", "deviceClassName": "d.example.com", "count": 2}]},
]
CLAIM_SPEC = {
    "devices": {
        "requests": REQUESTS,
        "constraints": [{"requests": ["r"], "matchAttribute": "d.example.com/a"}],
        "config": [{"requests": ["r"], "opaque": {"driver": "d.example.com", "parameters": {"a": 1}}}],
    }
}
DEVICE = {
    "name": "gpu-0",
    "attributes": {"index": {"int": 0}, "v": {"version": "1.0.0"}},
    "capacity": {"memory": {"value": "80Gi"}},
    "taints": [{"key": "a", "effect": "NoSchedule"}],
}
SAMPLES: dict[str, Object] = {
    "Pod": {"spec": POD_SPEC},
    "Deployment": {"spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}},
    "Job": {"spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}},
    "ResourceClaim": {"spec": CLAIM_SPEC},
    "ResourceClaimTemplate": {"spec": {"metadata": {"labels": {"a": "b"}}, "spec": CLAIM_SPEC}},
    "ResourceSlice": {
        "spec": {
            "driver": "d.example.com",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [DEVICE],
        }
    },
    "DeviceClass": {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
    "DeviceTaintRule": {"spec": {"deviceSelector": {"driver": "d"}, "taint": {"key": "a", "effect": "NoExecute"}}},
    "Service": {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}},
    "Node": {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "1"}}},
    "Secret": {"data": {"a": "Yg=="}, "stringData": {"b": "c"}},
    "PriorityClass": {"value": 1},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
    "Event": {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "r"},
}
STATUS: dict[str, Object] = {
    "ResourceClaim": {
        "allocation": {
            "devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "n", "device": "gpu-0"}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        "devices": [{"driver": "d.example.com", "pool": "n", "device": "gpu-0", "conditions": []}],
    },
    "Pod": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": []},
    "Node": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "1"}},
    "Deployment": {"replicas": 1, "conditions": [{"type": "Available", "status": "True"}]},
}
VALUES = st.sampled_from([None, True, 0, -1, 2**63, 1.5, "", "x", "é" * 300, [], [None], ["x"], [{}], {}, {"": None}])


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All paths in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] * bool(at) + [place for key, part in inner for place in places(part, (*at, key))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a path."""
    copy = msgspec.json.decode(msgspec.json.encode(value))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = new
    return copy


@st.composite
def mutants(draw: st.DrawFn, samples: dict[str, Object]) -> tuple[str, Object]:
    kind = draw(st.sampled_from(sorted(samples)))
    sample = {"metadata": {"name": "made", "labels": {"a": "b"}, "annotations": {"c": "d"}}, **samples[kind]}
    return kind, replaced(sample, draw(st.sampled_from(places(sample))), draw(VALUES))


API = Api(in_memory(Clock(), Entropy(1)))
many = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def ask(method: str, url: str, body: Any, **headers: str) -> None:
    answer = asyncio.run(API.ask(method, url, body, **headers))
    assert answer.status != 500, answer.json()["message"]


@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
@given(mutant=mutants(SAMPLES))
@many
def test_creation(validation: str, mutant: tuple[str, Object]) -> None:
    kind = BY_NAME[mutant[0]]
    body = {"apiVersion": kind.api_version, "kind": kind.kind, **mutant[1]}
    for version in kind.versions:
        body = {**body, "apiVersion": kind.version_text(version)}
        url = kind.path("default", version=version) + f"?dryRun=All&fieldValidation={validation}"
        ask("POST", url, body)


@pytest.mark.parametrize("media", ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"])
@given(mutant=mutants(SAMPLES))
@many
def test_patches(media: str, mutant: tuple[str, Object]) -> None:
    kind = BY_NAME[mutant[0]]
    if API.registry.find(kind, "made", "default" if kind.namespaced else "") is None:
        sound = {"metadata": {"name": "made"}, **SAMPLES[kind.kind]}
        ask("POST", kind.path("default"), sound)
    body = {"apiVersion": kind.api_version, "kind": kind.kind, **mutant[1]}
    url = kind.path("default", "made") + "?dryRun=All&fieldManager=m"
    ask("PATCH", url, body, content_type=f"application/{media}")


@given(mutant=mutants({kind: {"status": status} for kind, status in STATUS.items()}))
@many
def test_status(mutant: tuple[str, Object]) -> None:
    kind = BY_NAME[mutant[0]]
    if API.registry.find(kind, "made", "default" if kind.namespaced else "") is None:
        ask("POST", kind.path("default"), {"metadata": {"name": "made"}, **SAMPLES[kind.kind]})
    url = kind.path("default", "made", "status") + "?dryRun=All"
    ask("PATCH", url, mutant[1], content_type="application/merge-patch+json")
    ask("PUT", url, {"apiVersion": kind.api_version, "kind": kind.kind, **mutant[1]})


OTHERS: dict[str, tuple[str, Object]] = {
    "binding": ("/api/v1/namespaces/default/pods/made/binding", {"target": {"kind": "Node", "name": "n"}}),
    "eviction": ("/api/v1/namespaces/default/pods/made/eviction", {"deleteOptions": {"preconditions": {"uid": "u"}}}),
    "token": ("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {"expirationSeconds": 600}}),
    "review": ("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": "u", "groups": ["g"]}}),
    "tokenreview": ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "t"}}),
}


@given(name=st.sampled_from(sorted(OTHERS)), data=st.data())
@many
def test_other_bodies(name: str, data: st.DataObject) -> None:
    url, body = OTHERS[name]
    body = {"metadata": {"name": "made", "uid": "u"}, **body}
    ask("POST", url + "?dryRun=All", replaced(body, data.draw(st.sampled_from(places(body))), data.draw(VALUES)))


@given(data=st.data())
@many
def test_delete_options(data: st.DataObject) -> None:
    body = {"gracePeriodSeconds": 1, "propagationPolicy": "Orphan", "preconditions": {"uid": "u"}, "dryRun": ["All"]}
    changed = replaced(body, data.draw(st.sampled_from(places(body))), data.draw(VALUES))
    ask("DELETE", "/api/v1/namespaces/default/pods/made?dryRun=All", changed)
