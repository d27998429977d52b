"""Custom resources whose versions only a webhook can convert: every verb in the version that is not stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dragoman.apiserver.external.converting import Conversion
from dragoman.apiserver.external.review import WebhookCallFailed
from dragoman.apiserver.registry import Registry
from tests.apiserver.test_http import Api

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "clocks.example.net"
ONE, TWO = (f"/apis/{GROUP}/{version}/namespaces/default/hands" for version in ("v1", "v2"))
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class Webhook:
    """v1 has `at: "3:15"`, v2 `hour: 3, minute: 15`. It also tries to rename what it converts."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Any = None

    async def call(self, config: Any, body: Any, timeout_s: float) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.asked += 1
        request = body["request"]
        wanted = request["desiredAPIVersion"]
        made = [self._converted(obj, wanted) for obj in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": made}
        return {"response": response} if self.answer is None else self.answer

    def _converted(self, obj: Any, wanted: str) -> Any:
        obj = copy.deepcopy(obj)
        if wanted.endswith("/v2"):
            hour, _, minute = obj.pop("at").partition(":")
            obj |= {"hour": int(hour), "minute": int(minute)}
        else:
            obj["at"] = f"{obj.pop('hour')}:{obj.pop('minute'):02}"
        obj["metadata"].setdefault("labels", {})["from"] = obj["apiVersion"].rpartition("/")[2]
        obj["metadata"]["name"] = "renamed"
        return {**obj, "apiVersion": wanted}


@pytest.fixture
def webhook() -> Webhook:
    return Webhook()


@pytest.fixture
def api(registry: Registry, webhook: Webhook) -> Api:
    api = Api(registry)
    api.app.handlers.conversion = Conversion(webhook, registry.entropy.uuid4)  # type: ignore[arg-type]

    def version(name: str, **properties: Any) -> Any:
        schema = {"type": "object", "properties": {f: {"type": t} for f, t in properties.items()}}
        return {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}

    spec = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "hands", "kind": "Hand"},
        "versions": [version("v1", at="string"), version("v2", hour="integer", minute="integer")],
        "conversion": {
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/x"}},
        },
    }
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    assert api("POST", CRDS, {**crd, "metadata": {"name": f"hands.{GROUP}"}}).status == 201
    return api


def hand(version: str = "v2", **fields: Any) -> Any:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Hand", "metadata": {"name": "h"}, **fields}


def test_objects_are_stored_in_one_version_and_shown_in_the_other(api: Api, webhook: Webhook) -> None:
    made = api("POST", TWO, hand(hour=3, minute=5)).json()
    assert (made["apiVersion"], made["hour"], made["minute"], made["metadata"]["name"]) == (f"{GROUP}/v2", 3, 5, "h")
    before = webhook.asked
    assert api("GET", f"{ONE}/h").json()["at"] == "3:05"
    assert webhook.asked == before, "the stored version needs nobody"
    assert api("GET", f"{TWO}/h").json()["minute"] == 5
    assert [item["hour"] for item in api("GET", TWO).json()["items"]] == [3]
    table = api("GET", TWO, accept="application/json;as=Table;v=v1;g=meta.k8s.io").json()
    assert table["rows"][0]["cells"][0] == "h"


def test_changes_in_the_other_version_are_converted_both_ways(api: Api) -> None:
    api("POST", ONE, hand("v1", at="3:05"))
    assert api("PATCH", f"{TWO}/h", {"hour": 7}, content_type=MERGE).json()["hour"] == 7
    assert api("GET", f"{ONE}/h").json()["at"] == "7:05"
    whole = api("GET", f"{TWO}/h").json()
    whole["minute"] = 30
    assert api("PUT", f"{TWO}/h", whole).json()["minute"] == 30
    assert api("PUT", f"{TWO}/h", whole).status == 409
    config = hand(hour=9, minute=30)
    done = api("PATCH", f"{TWO}/h?fieldManager=m&force=true", config, content_type=APPLY)
    assert (done.status, done.json()["hour"]) == (200, 9)
    assert api("GET", f"{ONE}/h").json()["at"] == "9:30"
    made = api("PATCH", f"{TWO}/n?fieldManager=m", {**config, "metadata": {"name": "n"}}, content_type=APPLY)
    assert (made.status, made.json()["metadata"]["name"]) == (201, "n")
    assert api("PATCH", f"{TWO}/none", {"hour": 1}, content_type=MERGE).status == 404


def test_watches_see_the_other_version(api: Api) -> None:
    api("POST", ONE, hand("v1", at="3:05"))
    watched = api("GET", f"{TWO}?watch=true", until=lambda body: b"ADDED" in body)
    assert watched.lines()[0]["object"]["hour"] == 3


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (WebhookCallFailed("connection refused"), "connection refused"),
        ({"response": {"uid": "other"}}, "expected response.uid"),
        ({}, "the answer has no response"),
    ],
)
def test_a_webhook_that_fails_is_named(api: Api, webhook: Webhook, answer: Any, text: str) -> None:
    api("POST", ONE, hand("v1", at="3:05"))
    webhook.answer = answer
    failed = api("GET", f"{TWO}/h")
    assert failed.status == 500
    assert f"conversion webhook for {GROUP}/v1, Kind=Hand failed: " in failed.json()["message"]
    assert text in failed.json()["message"]
    assert api("GET", f"{ONE}/h").status == 200
