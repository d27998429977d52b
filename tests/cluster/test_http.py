"""The HTTP client: requests, errors, versions, pages, watches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref
from dragoman.cluster.commit import Committer
from dragoman.effects import Patch
from dragoman.errors import Denied, Invalid, NotFound, Retry, Stale
from dragoman.testing.build import manifest

POD = kind_of("Pod")
CLAIM = kind_of("ResourceClaim")


def test_objects_are_created_read_patched_and_deleted(run: Any) -> None:
    async def body(t: Any) -> None:
        made = await t.client.create(POD, manifest("Pod", "a", spec={"unknownField": 1}))
        assert made["spec"] == {"unknownField": 1}
        patched = await t.client.patch(POD, "a", {"spec": {"nodeName": "n"}}, "default")
        assert patched["spec"] == {"unknownField": 1, "nodeName": "n"}
        assert (await t.client.get(POD, "a", "default"))["spec"]["nodeName"] == "n"
        await t.client.delete(POD, "a", "default", uid=made["metadata"]["uid"], grace_period_s=0)
        with pytest.raises(NotFound, match='pods "a" not found'):
            await t.client.get(POD, "a", "default")
        method, path, query, _, headers = t.server.requests[1]
        assert (method, path) == ("PATCH", "/api/v1/namespaces/default/pods/a")
        assert query == {"fieldManager": "dragoman"}
        assert headers["Content-Type"] == "application/merge-patch+json"
        assert headers["Authorization"] == "Bearer secret"
        delete = t.server.requests[3]
        assert delete[3]["preconditions"] == {"uid": made["metadata"]["uid"]}
        assert delete[3]["gracePeriodSeconds"] == 0

    run(body)


ERRORS: dict[str, tuple[int, dict[str, Any], type[Exception], str]] = {
    "conflict": (409, {"message": "changed"}, Stale, "changed"),
    "gone": (410, {"message": "too old"}, Stale, "too old"),
    "not found": (404, {"message": "no such thing"}, NotFound, "no such thing"),
    "unauthorized": (
        401,
        {"message": "Unauthorized"},
        Denied,
        "does not accept the credentials of no user: Unauthorized (401); log in again",
    ),
    "forbidden": (403, {"message": "not you"}, Denied, "not you"),
    "too many": (429, {"message": "slow", "details": {"retryAfterSeconds": 7}}, Retry, "slow; try again in 7 s"),
    "broken": (503, {"message": "starting"}, Retry, "starting"),
    "one cause names its field": (
        422,
        {"message": "long", "details": {"causes": [{"field": "spec.x", "message": "must be 1"}]}},
        Invalid,
        "spec.x: must be 1",
    ),
    "several causes keep the whole message": (
        422,
        {"message": "a; b", "details": {"causes": [{"field": "a"}, {"field": "b"}]}},
        Invalid,
        "a; b",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_statuses_become_errors_named_for_the_remedy(run: Any, name: str) -> None:
    code, fields, error, text = ERRORS[name]

    async def body(t: Any) -> None:
        t.server.answers.append(lambda _: t.status(code, "X", **fields))
        with pytest.raises(error) as caught:
            await t.client.get(POD, "a", "default")
        assert text in str(caught.value)
        if code in (401, 403, 429, 503):
            assert str(caught.value).startswith("http://127.0.0.1:")
        if isinstance(caught.value, Retry):
            assert caught.value.after_s == (7 if code == 429 else None)

    run(body)


def test_answers_that_are_no_json_are_worth_a_retry(run: Any) -> None:
    async def body(t: Any) -> None:
        t.server.answers.append(lambda _: web.Response(text="<html>", status=200))
        with pytest.raises(Retry, match="not JSON"):
            await t.client.get(POD, "a", "default")
        t.server.answers.append(lambda _: web.Response(text="<html>bad gateway", status=502))
        with pytest.raises(Retry, match="bad gateway"):
            await t.client.get(POD, "a", "default")

    run(body)


def test_nobody_there_is_worth_a_retry(run: Any) -> None:
    async def body(t: Any) -> None:
        from dragoman.cluster.http import HttpClient
        from dragoman.cluster.kubeconfig import Access

        client = HttpClient(Access(server="http://127.0.0.1:1"), t.clock, t.entropy)
        with pytest.raises(Retry, match=r"127\.0\.0\.1:1 does not answer"):
            await client.get(POD, "a")
        await client.close()

    run(body)


def test_lists_come_in_pages(run: Any) -> None:
    async def body(t: Any) -> None:
        for name in "abcde":
            t.server.put("pods", manifest("Pod", name))
        t.server.page_end = 2
        listed = await t.client.list(POD, field_selector="spec.nodeName=x")
        assert [item["metadata"]["name"] for item in listed.items] == list("abcde")
        assert listed.resource_version == str(t.server.version)
        assert [request[2].get("continue") for request in t.server.requests] == [None, "2", "4"]
        assert t.server.requests[0][2]["fieldSelector"] == "spec.nodeName=x"

    run(body)


def test_an_older_server_is_spoken_to_in_its_version(run: Any) -> None:
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu.example.com", "count": 2}]}},
    }

    async def body(t: Any) -> None:
        t.server.served["resource.k8s.io"] = ["v1beta1", "v1alpha2"]
        t.server.put("resourceclaims", old)
        claim = await t.client.get(CLAIM, "c", "default")
        assert claim["apiVersion"] == "resource.k8s.io/v1"
        assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
        new = {**claim, "metadata": {"name": "d", "namespace": "default"}}
        await t.client.create(CLAIM, new)
        sent = t.server.requests[-1]
        assert sent[1] == "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims"
        assert sent[3]["apiVersion"] == "resource.k8s.io/v1beta1"
        assert sent[3]["spec"]["devices"]["requests"][0]["count"] == 2

    run(body)


def test_a_kind_that_the_server_lacks_is_not_found(run: Any) -> None:
    async def body(t: Any) -> None:
        t.server.served["resource.k8s.io"] = ["v1alpha2"]
        with pytest.raises(NotFound, match=r"serves no resourceclaims\.resource\.k8s\.io in v1, v1beta2, v1beta1"):
            await t.client.list(CLAIM)

    run(body)


def test_a_watch_yields_long_lines_in_pieces_and_bookmarks(run: Any) -> None:
    async def body(t: Any) -> None:
        t.server.put("pods", manifest("Pod", "small"))
        t.server.put("pods", manifest("Pod", "large", spec={"text": "x" * 3_000_000}))
        t.server.bookmark("pods")
        seen = []
        async for event in t.client.watch(POD, "10"):
            seen.append((event.type, event.object["metadata"].get("name"), len(json.dumps(event.object)) > 3_000_000))
            if event.type == "BOOKMARK":
                break
        assert seen == [("ADDED", "small", False), ("ADDED", "large", True), ("BOOKMARK", None, False)]
        query = t.server.requests[0][2]
        assert query["allowWatchBookmarks"] == "true"
        assert 300 <= int(query["timeoutSeconds"]) <= 600

    run(body)


def test_a_watch_from_too_long_ago_is_stale(run: Any) -> None:
    async def body(t: Any) -> None:
        t.server.put("pods", manifest("Pod", "a"))
        t.server.forget_history()
        with pytest.raises(Stale, match="too old resource version"):
            async for _ in t.client.watch(POD, "1"):
                pass

    run(body)


def test_apply_patches_name_their_kind_and_manager(run: Any) -> None:
    async def body(t: Any) -> None:
        made = t.server.put("pods", manifest("Pod", "a"))
        ref = Ref("Pod", "default", "a", made["metadata"]["uid"])
        status = {"status": {"phase": "X"}}
        patch = Patch(ref, status, type="apply", subresource="status", manager="m", force=True)
        (await Committer(t.client, t.clock, t.entropy).carry_out([patch])).check()
        _, path, query, sent, headers = t.server.requests[-1]
        assert path.endswith("/pods/a/status")
        assert query == {"fieldManager": "m", "force": "true"}
        assert headers["Content-Type"] == "application/apply-patch+yaml"
        meta = {"name": "a", "namespace": "default", "uid": ref.uid}
        assert sent == {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **status}

    run(body)
