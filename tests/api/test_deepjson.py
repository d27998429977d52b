"""JSON that nests deeper than the interpreter can follow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.api import codec, deepjson
from dragoman.api.resource import ResourceClaim

DEPTHS = [1, 150, 199, 200, 201, 450, 940, 985, 1001, 1500, 5000]
SHAPES = {"lists": (b"[", b"", b"]"), "objects": (b'{"a": ', b"1", b"}")}


def nested(depth: int, shape: str) -> bytes:
    opened, inner, closed = SHAPES[shape]
    return (opened * depth + inner + closed * depth).replace(b" ", b"")


def claim_text(parameters: bytes) -> bytes:
    return (
        b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"c","uid":"u"},"spec":{"devices":'
        b'{"config":[{"opaque":{"driver":"d","parameters":{"x":' + parameters + b'}}}]}},"status":{"allocation":'
        b'{"devices":{"results":[{"request":"r","driver":"d","pool":"p","device":"gpu-0"}]}}}}'
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("depth", DEPTHS)
def test_values_of_any_depth_come_back_as_they_were(depth: int, shape: str) -> None:
    parameters = nested(depth, shape)
    text = claim_text(parameters)
    read = deepjson.loads(text)
    assert parameters in msgspec.json.encode(read)
    assert parameters in msgspec.json.encode(deepjson.copied(read))
    for claim in (codec.decode(ResourceClaim, read), codec.decode(ResourceClaim, text)):
        assert claim.status.allocation is not None
        assert [result.device for result in claim.status.allocation.devices.results] == ["gpu-0"]
        assert parameters in codec.to_bytes(claim)
        assert codec.to_json(claim)["metadata"] == {"name": "c", "uid": "u"}


BROKEN = {
    "brackets that close nothing": b"]" * 2000,
    "unclosed brackets": b"[" * 1500,
    "the wrong bracket": b"[" * 1500 + b"}" * 1500,
    "a broken word far down": b"[" * 700 + b"tru" + b"]" * 700,
    "a missing comma far down": b'{"a":' * 2500 + b"1 1" + b"}" * 2500,
    "an unclosed text": b"[" * 1200 + b'"' + b"]" * 1200,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_what_is_no_json_is_refused_at_any_depth(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        deepjson.loads(text)


def test_text_that_looks_like_a_mark_stays_text() -> None:
    body = b'{"deep":' + nested(2000, "lists") + b',"text":"raw:0","other":["raw:" , "\\u0072aw:1:0", "]]]}}}"]}'
    read: dict[str, Any] = deepjson.loads(body)
    assert read["text"] == "raw:0"
    assert read["other"] == ["raw:", "raw:1:0", "]]]}}}"]


def test_of_a_claim_that_cannot_be_read_its_devices_still_count() -> None:
    whole = {
        "metadata": {"name": "c", "namespace": "n", "uid": "u"},
        "spec": {"devices": {"requests": "not a list"}},
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"},
                        {"request": "r", "driver": "d", "pool": "p", "device": 7},
                    ]
                }
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}],
        },
    }
    kept: Any = codec.salvaged(ResourceClaim, whole)
    assert kept.metadata.uid == "u"
    assert [result.device for result in kept.status.allocation.devices.results] == ["gpu-0"]
    assert [user.name for user in kept.status.reserved_for] == ["p"]
    assert kept.spec.devices.requests[0].exactly is None  # which no allocator serves
    assert codec.salvaged(ResourceClaim, {"metadata": "x"}) is None
