"""Protobuf bodies: what the real kubectl sends, zero values, broken bytes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.apiserver.protobuf import MAGIC, NotProtobuf, decode, go_duration

from .conftest import Recorder

# Command -> the path it posts to. What it sends must be what `--dry-run=client -o json` prints.
CREATES = {
    "configmap c --from-literal=a=b --from-literal=empty=": "/api/v1/namespaces/default/configmaps",
    "secret generic s --from-literal=password=x": "/api/v1/namespaces/default/secrets",
    "secret docker-registry r --docker-username=u --docker-password=p": "/api/v1/namespaces/default/secrets",
    "namespace n": "/api/v1/namespaces",
    "serviceaccount sa": "/api/v1/namespaces/default/serviceaccounts",
    "service clusterip web --tcp=80:8080": "/api/v1/namespaces/default/services",
    "service externalname out --external-name=example.com": "/api/v1/namespaces/default/services",
    "quota q --hard=cpu=1,memory=1Gi,pods=2": "/api/v1/namespaces/default/resourcequotas",
    "deployment web --image=nginx --replicas=0 --port=80": "/apis/apps/v1/namespaces/default/deployments",
    "job once --image=busybox -- echo hello": "/apis/batch/v1/namespaces/default/jobs",
    "cronjob tick --image=busybox --schedule=0/5_*_*_*_?": "/apis/batch/v1/namespaces/default/cronjobs",
    "poddisruptionbudget b --selector=a=b --min-available=50%": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "poddisruptionbudget c --selector=a=b --max-unavailable=1": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "priorityclass high --value=0 --global-default": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "rolebinding rb --role=r --user=u --serviceaccount=a:b": (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    ),
    "clusterrole cr --verb=get --non-resource-url=/metrics": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "clusterrolebinding crb --clusterrole=r --group=g": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ingress in --rule=example.com/*=web:80": "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
}


def without_empty(value: Any) -> Any:
    """Empty objects, nulls and empty lists left out: clients print structs that are held by value."""
    if isinstance(value, dict):
        cleaned = {name: without_empty(entry) for name, entry in value.items()}
        return {name: entry for name, entry in cleaned.items() if entry not in (None, {}, [])}
    return [without_empty(entry) for entry in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize("command", CREATES)
def test_kubectl_create_decodes_to_what_kubectl_means(recorder: Recorder, command: str) -> None:
    words = ["create", *(word.replace("_", " ") for word in command.split())]
    at = words.index("--") if "--" in words else len(words)
    dry = recorder.run(*words[:at], "--dry-run=client", "-o", "json", *words[at:])
    path, content_type, body = recorder.sent(*words)
    assert (path, content_type) == (CREATES[command], "application/vnd.kubernetes.protobuf")
    assert without_empty(decode(body)) == without_empty(json.loads(dry))


@pytest.mark.slow
def test_questions_about_rights_and_tokens_decode(recorder: Recorder) -> None:
    path, _, body = recorder.sent("create", "token", "sa", "--duration=1h", "--audience=a", ok=False)
    assert path == "/api/v1/namespaces/default/serviceaccounts/sa/token"
    sent = decode(body)
    assert (sent["apiVersion"], sent["kind"]) == ("authentication.k8s.io/v1", "TokenRequest")
    assert sent["spec"] == {"audiences": ["a"], "expirationSeconds": 3600}


# ---- by hand: one message of each wire form


def varint(number: int) -> bytes:
    out = b""
    number &= (1 << 64) - 1
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, raw: bytes, *more: bytes) -> bytes:
    return MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, raw) + b"".join(more)


def metadata(name: str = "x") -> bytes:
    return field(1, field(1, name))


def deployment(spec: bytes) -> dict[str, Any]:
    return decode(envelope("apps/v1", "Deployment", metadata() + field(2, spec)))["spec"]


def test_zero_is_kept_behind_a_pointer_and_dropped_where_json_omits_it() -> None:
    # replicas (1) is *int32; minReadySeconds (5) and paused (7) are values with omitempty.
    assert deployment(field(1, 0) + field(5, 0) + field(7, 0)) == {"replicas": 0}
    assert deployment(field(5, 3) + field(7, 1)) == {"minReadySeconds": 3, "paused": True}


def test_negative_numbers_are_signed() -> None:
    value = decode(envelope("scheduling.k8s.io/v1", "PriorityClass", metadata() + field(2, -7)))["value"]
    assert value == -7


def test_times_quantities_and_maps_have_their_json_form() -> None:
    time = field(1, field(1, "x") + field(8, field(1, 1767225600)))
    capacity = field(1, field(1, "cpu") + field(2, field(1, "500m")))
    node = decode(envelope("v1", "Node", time + field(3, capacity)))
    assert node["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert node["status"]["capacity"] == {"cpu": "500m"}
    lease = decode(envelope("coordination.k8s.io/v1", "Lease", field(2, field(4, field(1, 0) + field(2, 5_000)))))
    assert lease["spec"]["renewTime"] == "1970-01-01T00:00:00.000005Z"


def test_the_zero_time_is_no_time() -> None:
    made = decode(envelope("v1", "ConfigMap", field(1, field(1, "x") + field(8, b""))))
    assert made["metadata"] == {"name": "x"}


def test_int_or_string_is_one_of_both() -> None:
    percent = field(1, 1) + field(2, 0) + field(3, "25%")
    number = field(1, 0) + field(2, 0) + field(3, "")
    spec = decode(envelope("policy/v1", "PodDisruptionBudget", field(2, field(1, percent) + field(3, number))))["spec"]
    assert spec == {"minAvailable": "25%", "maxUnavailable": 0}


def test_delete_options_are_known_in_every_group() -> None:
    options = field(1, 0) + field(4, "Foreground")
    for api_version in ("v1", "apps/v1", "meta.k8s.io/v1", "resource.k8s.io/v1"):
        body = decode(envelope(api_version, "DeleteOptions", options))
        assert body == {
            "apiVersion": api_version,
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Foreground",
        }


def test_opaque_parameters_are_json() -> None:
    opaque = field(1, "gpu.example.com") + field(2, field(1, b'{"a":[1]}'))
    config = field(2, field(1, field(1, opaque)))
    made = decode(envelope("resource.k8s.io/v1", "DeviceClass", metadata() + field(2, config)))
    assert made["spec"]["config"] == [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": [1]}}}]


def test_fields_newer_than_the_table_are_skipped() -> None:
    assert deployment(field(1, 2) + field(99, "future") + field(98, 7)) == {"replicas": 2}


def test_json_in_the_envelope_is_taken() -> None:
    raw = b'{"apiVersion":"v1","kind":"ConfigMap"}'
    assert decode(envelope("v1", "ConfigMap", raw, field(4, "application/json"))) == json.loads(raw)


BROKEN = {
    "no magic": (b"{}", "does not start with"),
    "an unknown kind": (envelope("v1", "Nope", b""), "no kind 'Nope' is known in version 'v1'"),
    "an unknown version": (envelope("apps/v9", "Deployment", b""), "no kind 'Deployment'"),
    "cut in a number": (envelope("v1", "Pod", b"\x80"), "ends in the middle of a number"),
    "cut in a field": (envelope("v1", "Pod", b"\x0a\x05ab"), "ends in the middle of a field"),
    "a group, which is not used": (envelope("v1", "Pod", b"\x0b"), "wire type 3"),
    "a number where a message must be": (envelope("v1", "Pod", b"\x08\x01"), "another wire type"),
    "text that is no UTF-8": (envelope("v1", "Pod", field(1, field(1, b"\xff"))), "not UTF-8"),
    "an endless number": (envelope("v1", "Pod", b"\xff" * 11), "longer than 64 bits"),
    "compressed": (envelope("v1", "Pod", b"", field(3, "gzip")), "content encoding 'gzip'"),
    "broken JSON inside": (envelope("v1", "Pod", b"{", field(4, "application/json")), "JSON inside is broken"),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_broken_bodies_are_refused_with_the_reason(sentence: str) -> None:
    body, reason = BROKEN[sentence]
    with pytest.raises(NotProtobuf, match=reason):
        decode(body)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(raw: bytes) -> None:
    for body in (MAGIC + raw, envelope("v1", "Pod", raw), envelope("resource.k8s.io/v1", "ResourceSlice", raw)):
        with suppress(NotProtobuf):
            json.dumps(decode(body))


DURATIONS = {0: "0s", 1: "1ns", 1_500: "1.5µs", 20_000_000: "20ms", 1_500_000_000: "1.5s", 5_400_000_000_000: "1h30m0s"}


@pytest.mark.parametrize("nanos", DURATIONS)
def test_durations_read_as_in_go(nanos: int) -> None:
    assert go_duration(nanos) == DURATIONS[nanos]
    if nanos:
        assert go_duration(-nanos) == "-" + DURATIONS[nanos]
