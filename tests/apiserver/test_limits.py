"""What a client can make the server hold: heads, bodies and objects of bounded size."""

from __future__ import annotations

import asyncio
import socket
import time

import msgspec
import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver import heads
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.limits import DEPTH, is_deeper
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.apiserver.test_http import MAPS, Api, config_map

MERGE = {"content_type": "application/merge-patch+json"}
JSON_PATCH = {"content_type": "application/json-patch+json"}


@pytest.fixture
def registry() -> Registry:
    return in_memory(Clock(), Entropy(1))


@pytest.fixture
def api(registry: Registry) -> Api:
    return Api(registry)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


DEPTHS = {
    "a flat list of many": (msgspec.json.encode([{"a": [1]}] * 5000), False),
    "brackets in strings": (msgspec.json.encode(["[[[{{{" * 200, '"[[[[\\"' * 100]), False),
    "at the limit": (nested(DEPTH), False),
    "one more": (nested(DEPTH + 1), True),
    "objects": (b'{"a":' * (DEPTH + 1) + b"1" + b"}" * (DEPTH + 1), True),
    "deep beside flat": (b"[" + b"[]," * 300 + nested(DEPTH) + b"]", True),
}


@pytest.mark.parametrize("case", DEPTHS, ids=str)
def test_depth_is_counted_without_reading(case: str) -> None:
    text, expected = DEPTHS[case]
    assert is_deeper(text) is expected


def test_a_body_that_nests_deeper_than_any_field_is_400(api: Api) -> None:
    body = config_map("deep")
    body["data"] = msgspec.Raw(nested(DEPTH + 1))
    answer = api("POST", MAPS, msgspec.json.encode(body))
    assert answer.status == 400
    assert answer.json()["message"] == f"the object provided is nested deeper than {DEPTH} levels"


def test_an_object_is_as_large_as_etcd_takes_it_at_most(api: Api) -> None:
    path = "/apis/apps/v1/namespaces/default/controllerrevisions"
    fits = {"metadata": {"name": "fits"}, "revision": 1, "data": {"a": "x" * 1_500_000}}
    assert api("POST", path, fits).status == 201
    answer = api("POST", path, {"metadata": {"name": "large"}, "revision": 1, "data": {"a": "x" * 1_600_000}})
    assert (answer.status, answer.json()["message"]) == (500, "etcdserver: request is too large")
    assert api("GET", f"{path}/large").status == 404


def test_copies_of_a_patch_do_not_multiply(api: Api) -> None:
    api("POST", MAPS, config_map("m", a="x" * 1000))
    copies = [{"op": "copy", "from": "/data", "path": f"/data/{number}"} for number in range(30)]
    answer = api("PATCH", f"{MAPS}/m", copies, **JSON_PATCH)
    assert answer.status == 422
    assert "Unable to complete the copy, the accumulated size increase of copy is" in answer.json()["message"]


def test_a_patch_has_10000_operations_at_most(api: Api) -> None:
    api("POST", MAPS, config_map("m", a="1"))
    answer = api("PATCH", f"{MAPS}/m", [{"op": "test", "path": "/data/a", "value": "1"}] * 10_001, **JSON_PATCH)
    assert answer.status == 413
    assert answer.json()["message"].endswith("The allowed maximum operations in a JSON patch is 10000, got 10001")


ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n" for before, after in zip("abcdefg", "bcdefgh", strict=True)
)
BODIES = {
    "aliases that multiply": ALIASES.encode(),
    "an integer without end": b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: " + b"9" * 5000 + b"}",
    "a date that is none": b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: 2020-13-45}",
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("case", BODIES, ids=str)
def test_yaml_that_is_a_trap_is_the_clients_fault(api: Api, case: str) -> None:
    answer = api("POST", MAPS, BODIES[case], content_type="application/yaml")
    assert answer.status in (201, 400)
    assert len(answer.body) < 10_000


def test_json_numbers_without_end_are_the_clients_fault(api: Api) -> None:
    body = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m","generation":' + b"9" * 100_000 + b"}}"
    assert api("POST", MAPS, body).status == 400


# ---- connections


def raw(port: int, *pieces: bytes, wait_s: float = 5.0) -> bytes:
    """What comes back for pieces sent one after the other, until the other side closes."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=wait_s) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            while chunk := connection.recv(65536):
                got += chunk
        except (ConnectionError, TimeoutError):
            pass
    return got


def served(call: object) -> None:
    async def scenario() -> None:
        async with serving(ServerConfig(tls=False), Clock(), Entropy()) as server:
            port = int(server.access.server.rpartition(":")[2])
            await asyncio.to_thread(call, port)  # type: ignore[arg-type]

    asyncio.run(scenario())


def test_a_head_of_more_than_a_megabyte_is_431() -> None:
    def call(port: int) -> None:
        line = b"x: " + b"y" * 60_000 + b"\r\n"
        assert raw(port, b"GET /livez HTTP/1.1\r\nhost: a\r\n", *[line] * 40).startswith(b"HTTP/1.1 431 ")
        small = b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n" + line + b"\r\n"
        assert raw(port, small).startswith(b"HTTP/1.1 200 ")

    served(call)


def test_a_head_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_S", 0.3)

    def call(port: int) -> None:
        begin = time.monotonic()
        assert raw(port, b"GET /livez HTTP/1.1\r\nhost:") == b""
        assert raw(port) == b""
        assert time.monotonic() - begin < 5
        pair = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"
        assert raw(port, pair, pair, b"GET /livez HT").count(b"HTTP/1.1 200 ") == 2

    served(call)


def test_a_large_body_after_a_small_head_is_no_large_head(registry: Registry) -> None:
    assert registry.find(BY_NAME["ConfigMap"], "none", "default") is None

    def call(port: int) -> None:
        body = b"x" * (2 * 1024 * 1024)
        head = f"POST /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        assert b"431" not in raw(port, head + body)[:20]

    served(call)
