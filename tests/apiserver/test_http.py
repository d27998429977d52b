"""Does the API answer as clients need it? Requests straight into the ASGI app, no network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.app import App
from dragoman.apiserver.registry import Registry
from dragoman.runtime.clock import Clock
from dragoman.testing.build import pod

TOKEN = "letmein"
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
STRATEGIC = "application/strategic-merge-patch+json"
CONFIG_MAP = BY_NAME["ConfigMap"]


class Answer(msgspec.Struct):
    """What came back."""

    status: int
    headers: dict[str, list[str]]
    body: bytes

    def json(self) -> Any:
        """The body decoded."""
        return msgspec.json.decode(self.body)

    def lines(self) -> list[Any]:
        """The events of a watch."""
        return [msgspec.json.decode(line) for line in self.body.splitlines()]


class Api:
    """An app and a way to ask it."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.app = App(registry, TOKEN)

    async def ask(
        self,
        method: str,
        url: str,
        body: Any = None,
        *,
        token: str | None = TOKEN,
        until: Callable[[bytes], bool] | None = None,
        **headers: str,
    ) -> Answer:
        """One request; a stream is left when `until` holds for what came so far."""
        split = urlsplit(url)
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else b""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        if body is not None:
            sent.setdefault("content-type", "application/json")
        scope = {
            "type": "http",
            "method": method,
            "raw_path": split.path.encode(),
            "query_string": split.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }
        answer = Answer(0, {}, b"")
        left = asyncio.Event()
        messages = [{"type": "http.request", "body": raw, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                for name, value in message["headers"]:
                    answer.headers.setdefault(name.decode(), []).append(value.decode())
            else:
                answer.body += message["body"]
                if until and until(answer.body):
                    left.set()

        async with asyncio.timeout(10):
            await self.app(scope, receive, send)
        return answer

    def __call__(self, method: str, url: str, body: Any = None, **more: Any) -> Answer:
        """One request, alone in a loop."""
        return asyncio.run(self.ask(method, url, body, **more))


@pytest.fixture
def api(registry: Registry) -> Api:
    return Api(registry)


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


# ---- who may


@pytest.mark.parametrize("path", ["/api", "/apis", PODS, "/openapi/v3", "/metrics", "/nothing", "/"])
@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", "a.b.c", "é"])
def test_with_a_wrong_token_there_is_401_and_nothing_else(api: Api, path: str, token: str) -> None:
    answer = api("GET", path, token=token)
    assert answer.status == 401
    assert answer.json()["reason"] == "Unauthorized"
    assert answer.json().keys() == {"kind", "apiVersion", "metadata", "status", "message", "reason", "code"}


@pytest.mark.parametrize("path", ["/version", "/version/", "/livez", "/readyz", "/healthz"])
def test_health_and_version_need_no_token(api: Api, path: str) -> None:
    assert api("GET", path, token=None).status == 200


def test_the_version_is_37(api: Api) -> None:
    version = api("GET", "/version").json()
    assert (version["major"], version["minor"]) == ("1", "37")


def test_tokens_of_service_accounts_are_accepted_until_the_account_goes(api: Api) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts"
    api("POST", path, {"metadata": {"name": "sa"}})
    token = api("POST", f"{path}/sa/token", {"spec": {"expirationSeconds": 600}}).json()["status"]["token"]
    review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    who = api("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, token=token).json()
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:sa"
    assert api("GET", PODS, token=token[:-2] + "xx").status == 401
    api("DELETE", f"{path}/sa")
    assert api("GET", PODS, token=token).status == 401


def test_impersonation(api: Api) -> None:
    review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    who = api("POST", path, review, impersonate_user="jane", impersonate_group="dev").json()["status"]["userInfo"]
    assert (who["username"], who["groups"]) == ("jane", ["dev", "system:authenticated"])


# ---- discovery


def test_aggregated_discovery_echoes_its_type_and_knows_its_etag(api: Api) -> None:
    answer = api("GET", "/apis", accept=AGGREGATED)
    assert answer.headers["content-type"] == ["application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"]
    groups = {item["metadata"]["name"]: item["versions"] for item in answer.json()["items"]}
    assert [v["version"] for v in groups["resource.k8s.io"]] == ["v1", "v1beta2", "v1beta1", "v1alpha3"]
    again = api("GET", "/apis", accept=AGGREGATED, if_none_match=answer.headers["etag"][0])
    assert (again.status, again.body) == (304, b"")
    assert "content-type" not in again.headers, "a content type here would poison kubectl's cache"


def test_legacy_discovery_shows_eviction(api: Api) -> None:
    names = {r["name"]: r for r in api("GET", "/api/v1", accept="application/json").json()["resources"]}
    assert names["pods/eviction"]["kind"] == "Eviction"
    assert names["pods/eviction"]["group"] == "policy"
    assert api("GET", "/apis").json()["kind"] == "APIGroupList"
    assert api("GET", "/apis/apps").json()["preferredVersion"]["version"] == "v1"
    assert api("GET", "/apis/nothing").status == 404
    assert api("GET", "/api/").json()["versions"] == ["v1"]


def test_openapi(api: Api) -> None:
    index = api("GET", "/openapi/v3").json()["paths"]
    url = index["apis/resource.k8s.io/v1"]["serverRelativeURL"]
    answer = api("GET", url)
    assert answer.headers["cache-control"] == ["public, immutable"]
    assert answer.json()["paths"]
    whole = api("GET", "/openapi/v2").json()
    claim = whole["definitions"]["io.k8s.api.resource.v1.ResourceClaim"]
    assert claim["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.resource.v1.ResourceClaimSpec"
    assert "patch" in whole["paths"]["/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"]
    assert "#/components" not in api("GET", "/openapi/v2").body.decode()
    packed = api("GET", "/openapi/v2", accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert packed.status == 200
    assert packed.body.startswith(b"\x0a\x032.0")
    etag = packed.headers["etag"][0]
    again = {"accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "if_none_match": etag}
    assert api("GET", "/openapi/v2", **again).status == 304
    assert api("GET", "/openapi/v2", accept="text/html").status == 406


def test_what_has_no_table_is_406_as_one(api: Api) -> None:
    only = "application/json;as=Table;v=v1;g=meta.k8s.io"
    review: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review["spec"] = {"nonResourceAttributes": {"path": "/", "verb": "get"}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert api("POST", path, review, accept=only).status == 406
    assert api("POST", path, review, accept=f"{only},application/json").status == 201


# ---- forms


def test_tables_and_metadata_only(api: Api) -> None:
    api("POST", PODS, pod("a"))
    table = api("GET", PODS, accept=TABLE).json()
    assert [c["name"] for c in table["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert api("GET", f"{PODS}/a", accept=TABLE).json()["rows"][0]["cells"][0] == "a"
    partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listed = api("GET", PODS, accept=partial).json()
    assert listed["kind"] == "PartialObjectMetadataList"
    assert "spec" not in listed["items"][0]


def test_yaml_both_ways_and_nothing_else(api: Api) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: why\ndata: {a: b}\n"
    assert api("POST", MAPS, text, content_type="application/yaml").status == 201
    assert b"kind: ConfigMap" in api("GET", f"{MAPS}/why", accept="application/yaml").body
    assert api("GET", MAPS, accept="application/cbor").status == 406
    assert api("POST", MAPS, b"x", content_type="text/csv").status == 415
    assert api("POST", MAPS, b"{", content_type="application/json").status == 400
    assert api("POST", MAPS, b"[]", content_type="application/json").status == 400
    assert api("POST", MAPS, b"k8s\0nonsense", content_type="application/vnd.kubernetes.protobuf").status == 400


def test_items_of_lists_have_no_kind_but_events_have(api: Api) -> None:
    api("POST", MAPS, config_map("a"))
    listed = api("GET", MAPS).json()
    assert listed["kind"] == "ConfigMapList"
    assert all("kind" not in item for item in listed["items"])


# ---- watches


def watch_lines(api: Api, url: str, count: int, **more: str) -> list[Any]:
    return api("GET", url, until=lambda body: body.count(b"\n") >= count, **more).lines()[:count]


def test_a_watch_without_version_replays_what_exists(api: Api) -> None:
    api("POST", MAPS, config_map("a"))
    for query in ("watch=true", "watch=True", "watch=1", "watch=true&resourceVersion=0"):
        events = watch_lines(api, f"{MAPS}?{query}", 2)
        assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
            ("ADDED", "a"),
            ("ADDED", "kube-root-ca.crt"),
        ]
        assert events[0]["object"]["kind"] == "ConfigMap"


WATCH_LIST = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def test_watch_list_ends_the_initial_events_with_a_marked_bookmark(api: Api) -> None:
    api("POST", MAPS, config_map("a"))
    version = str(api.registry.store.version)
    for accept in ("application/json", TABLE, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"):
        last = watch_lines(api, f"{MAPS}?{WATCH_LIST}", 3, accept=accept)[-1]
        assert last["type"] == "BOOKMARK"
        assert last["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert last["object"]["metadata"]["resourceVersion"] == version
    empty = watch_lines(api, f"/api/v1/namespaces/default/pods?{WATCH_LIST}", 1)
    assert empty[0]["type"] == "BOOKMARK"


def test_watch_list_without_match_is_refused_so_that_clients_fall_back(api: Api) -> None:
    assert api("GET", f"{MAPS}?watch=true&sendInitialEvents=true").status == 422
    assert api("GET", f"{MAPS}?watch=true&resourceVersionMatch=NotOlderThan").status == 422
    assert api("GET", f"{MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan").status == 422


def test_a_version_that_is_forgotten_ends_the_watch_with_410(api: Api) -> None:
    api("POST", MAPS, config_map("a"))
    api.registry.store.compact()
    answer = api("GET", f"{MAPS}?watch=true&resourceVersion=1")
    assert answer.status == 200
    (event,) = answer.lines()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert api("GET", f"{MAPS}?watch=true&resourceVersion=999999").status == 504
    assert api("GET", f"{MAPS}?watch=true&resourceVersion=x").status == 400


def test_a_watch_of_tables_names_columns_once(api: Api) -> None:
    api("POST", MAPS, config_map("a"))
    first, second = watch_lines(api, f"{MAPS}?watch=true", 2, accept=TABLE)
    assert first["object"]["columnDefinitions"]
    assert not second["object"]["columnDefinitions"]


def test_bookmarks_come_in_time_and_before_the_end(registry: Registry) -> None:
    """The clock is moved: bookmarks every 50 seconds, the end after timeoutSeconds."""

    async def scenario() -> list[Any]:
        registry.clock = clock = Clock()
        api = Api(registry)
        url = f"{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=70&resourceVersion={registry.store.version}"
        asking = asyncio.create_task(api.ask("GET", url))
        for seconds in (0, 51, 20):
            for _ in range(20):  # let the watch get as far as it can
                await asyncio.sleep(0)
            clock.advance(seconds)
        return (await asking).lines()

    events = asyncio.run(scenario())
    assert [event["type"] for event in events] == ["BOOKMARK", "BOOKMARK"]
    assert events[-1]["object"]["metadata"]["resourceVersion"] == str(registry.store.version)
    assert events[-1]["object"]["kind"] == "ConfigMap"


def test_a_client_that_leaves_frees_its_watch(api: Api) -> None:
    watch_lines(api, f"{MAPS}?watch=true", 1)
    assert not len(api.app.handlers.streams)
    assert not api.registry.store.shelf(CONFIG_MAP).lanes


# ---- lists


def test_pages_show_one_version_and_expire(api: Api) -> None:
    for at in range(5):
        api("POST", MAPS, config_map(f"a{at}"))
    first = api("GET", f"{MAPS}?limit=2").json()
    assert first["metadata"]["remainingItemCount"] == 4
    api("DELETE", f"{MAPS}/a3")
    rest = api("GET", f"{MAPS}?limit=9&continue={first['metadata']['continue']}").json()
    assert [i["metadata"]["name"] for i in rest["items"]] == ["a2", "a3", "a4", "kube-root-ca.crt"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    api.registry.pages.forget()
    gone = api("GET", f"{MAPS}?limit=9&continue={first['metadata']['continue']}")
    assert gone.status == 410
    fresh = gone.json()["metadata"]["continue"]
    rest = api("GET", f"{MAPS}?limit=9&continue={fresh}").json()
    assert [i["metadata"]["name"] for i in rest["items"]] == ["a2", "a4", "kube-root-ca.crt"]
    assert api("GET", f"{MAPS}?limit=2&continue=nonsense").status == 400


LIST_VERSIONS = {
    "any": ("resourceVersion=0", 200),
    "not older": ("resourceVersion=1&resourceVersionMatch=NotOlderThan", 200),
    "the future": ("resourceVersion=99999&resourceVersionMatch=NotOlderThan", 504),
    "exactly the past": ("resourceVersion=1&resourceVersionMatch=Exact", 410),
    "match without version": ("resourceVersionMatch=Exact", 422),
    "exactly zero": ("resourceVersion=0&resourceVersionMatch=Exact", 422),
    "no number": ("resourceVersion=x", 400),
    "a bad label selector": ("labelSelector=a+in+b", 400),
    "an unknown field": ("fieldSelector=spec.x=1", 400),
    "a bad limit": ("limit=many", 400),
}


@pytest.mark.parametrize(("query", "status"), LIST_VERSIONS.values(), ids=LIST_VERSIONS)
def test_versions_and_selectors_of_lists(api: Api, query: str, status: int) -> None:
    api("POST", MAPS, config_map("a"))
    assert api("GET", f"{MAPS}?{query}").status == status


# ---- writes


def test_field_validation(api: Api) -> None:
    body = {**config_map("a"), "colour": "red"}
    strict = api("POST", f"{MAPS}?fieldValidation=Strict", body)
    assert strict.status == 400
    assert 'strict decoding error: unknown field "colour"' in strict.json()["message"]
    warned = api("POST", MAPS, body)
    assert warned.status == 201
    assert warned.headers["warning"] == ['299 - "unknown field \\"colour\\""']
    assert warned.json()["colour"] == "red", "what is not known survives storage"
    assert "warning" not in api("PUT", f"{MAPS}/a?fieldValidation=Ignore", body).headers
    twice = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"a":"1","a":"2"}}'
    assert 'duplicate field "data.a"' in api("POST", f"{MAPS}?fieldValidation=Strict", twice).json()["message"]
    warned = api("POST", MAPS, twice)
    assert warned.headers["warning"] == ['299 - "duplicate field \\"data.a\\""']
    assert api("POST", f"{MAPS}?fieldValidation=Maybe", body).status == 422
    typed = api("POST", PODS, pod("p", terminationGracePeriodSeconds="soon"))
    assert typed.status == 400
    patch = {"metadata": {"labels": {"x": "y"}}}
    merge = "application/merge-patch+json"
    assert api("PATCH", f"{MAPS}/a?fieldValidation=Strict", patch, content_type=merge).status == 200
    worse = {"shape": "round"}
    assert api("PATCH", f"{MAPS}/a?fieldValidation=Strict", worse, content_type=merge).status == 400


def test_dry_run_stores_nothing(api: Api) -> None:
    version = api.registry.store.version
    assert api("POST", f"{PODS}?dryRun=All", pod("a")).status == 201
    assert api("POST", f"{PODS}?dryRun=Some", pod("a")).status == 422
    assert api.registry.store.version == version
    api("POST", PODS, pod("a"))
    version = api.registry.store.version
    api("DELETE", f"{PODS}/a", {"kind": "DeleteOptions", "dryRun": ["All"]})
    patch = {"metadata": {"labels": {"x": "y"}}}
    changed = api("PATCH", f"{PODS}/a?dryRun=All", patch, content_type=STRATEGIC).json()
    assert changed["metadata"]["labels"] == {"x": "y"}
    assert api.registry.store.version == version


PATCHES = {
    "unknown type": ("text/plain", {}, 415),
    "json, missing path": ("application/json-patch+json", [{"op": "remove", "path": "/data/x"}], 422),
    "json, failed test": ("application/json-patch+json", [{"op": "test", "path": "/data/a", "value": "2"}], 422),
    "json, no list": ("application/json-patch+json", {}, 400),
    "merge, renaming": ("application/merge-patch+json", {"metadata": {"name": "b"}}, 400),
    "merge, stale version": ("application/merge-patch+json", {"metadata": {"resourceVersion": "1"}, "data": {}}, 409),
    "merge, other uid": ("application/merge-patch+json", {"metadata": {"uid": "1"}, "data": {}}, 409),
    "apply without manager": ("application/apply-patch+yaml", config_map("a"), 422),
    "merge": ("application/merge-patch+json", {"data": {"a": "2"}}, 200),
}


@pytest.mark.parametrize(("media", "patch", "status"), PATCHES.values(), ids=PATCHES)
def test_patches(api: Api, media: str, patch: Any, status: int) -> None:
    api("POST", MAPS, config_map("a", a="1"))
    assert api("PATCH", f"{MAPS}/a", patch, content_type=media).status == status


def test_apply_conflicts_name_manager_and_field(api: Api) -> None:
    media = "application/apply-patch+yaml"
    url = f"{MAPS}/a?fieldManager="
    created = api("PATCH", url + "one", config_map("a", k="1"), content_type=media)
    assert created.status == 201
    refused = api("PATCH", url + "two", config_map("a", k="2"), content_type=media)
    assert refused.status == 409
    (cause,) = refused.json()["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.k")
    assert 'conflict with "one"' in cause["message"]
    assert api("PATCH", url + "two&force=true", config_map("a", k="2"), content_type=media).status == 200
    assert api("PATCH", f"{MAPS}/new?fieldManager=x", config_map("other"), content_type=media).status == 400


def test_preconditions_of_updates_and_deletions(api: Api) -> None:
    made = api("POST", MAPS, config_map("a")).json()
    assert api("PUT", f"{MAPS}/a", config_map("a", k="1")).status == 200, "no version: unconditional"
    assert api("PUT", f"{MAPS}/a", {**made, "data": {"k": "2"}}).status == 409
    assert api("PUT", f"{MAPS}/b", config_map("b")).status == 404
    assert api("PUT", f"{MAPS}/b", config_map("a")).status == 404
    assert api("PUT", f"{MAPS}/a", config_map("b")).status == 400
    for preconditions in ({"uid": "other"}, {"resourceVersion": "1"}):
        assert api("DELETE", f"{MAPS}/a", {"preconditions": preconditions}).status == 409
    done = api("DELETE", f"{MAPS}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert (done.status, done.json()["status"]) == (200, "Success")
    assert api("DELETE", f"{MAPS}/a").status == 404


def test_delete_collection_by_selector(api: Api) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {})):
        api("POST", MAPS, {"metadata": {"name": name, "labels": labels}})
    gone = api("DELETE", f"{MAPS}?labelSelector=x")
    assert [i["metadata"]["name"] for i in gone.json()["items"]] == ["a", "b"]
    assert [i["metadata"]["name"] for i in api("GET", MAPS).json()["items"]] == ["c", "kube-root-ca.crt"]


def test_leases_may_be_made_by_put(api: Api) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n"
    assert api("PUT", path, {"metadata": {"name": "n"}, "spec": {"holderIdentity": "n"}}).status == 201


NOWHERE = {
    "an unknown group": ("GET", "/apis/nothing.example.com/v1/things", 404),
    "an unknown version": ("GET", "/apis/apps/v1beta1/deployments", 404),
    "an unknown resource": ("GET", "/api/v1/things", 404),
    "an unknown subresource": ("GET", f"{PODS}/a/soul", 404),
    "deeper still": ("GET", f"{PODS}/a/status/x", 404),
    "a name without its namespace": ("GET", "/api/v1/pods/a", 404),
    "a namespace for a cluster's kind": ("GET", "/api/v1/namespaces/default/nodes", 404),
    "create without namespace": ("POST", "/api/v1/pods", 405),
    "a wrong method": ("POST", f"{PODS}/a", 405),
    "exec in no pod": ("POST", f"{PODS}/a/exec?stdout=true&command=ls", 404),
    "port-forward to no pod": ("GET", f"{PODS}/a/portforward", 404),
}


@pytest.mark.parametrize(("method", "path", "status"), NOWHERE.values(), ids=NOWHERE)
def test_what_is_not_there_is_a_clear_status(api: Api, method: str, path: str, status: int) -> None:
    answer = api(method, path, {} if method == "POST" else None)
    assert answer.status == status
    assert answer.json()["kind"] == "Status"
    assert answer.json()["message"]


def test_a_body_beyond_the_limit_is_413(api: Api) -> None:
    assert api("POST", MAPS, config_map("a", x="y" * 4_000_000)).status == 413


def test_a_body_announced_beyond_the_limit_is_413_before_it_comes(api: Api) -> None:
    assert api("POST", MAPS, config_map("a"), content_length="99999999999").status == 413


def test_a_body_nested_too_deep_is_400(api: Api) -> None:
    answer = api("POST", MAPS, b'{"a":' * 5000 + b"1" + b"}" * 5000)
    assert (answer.status, answer.json()["message"]) == (400, "the body is nested too deep")


def test_what_breaks_inside_is_a_500_status_and_a_log_line(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(api.app.handlers, "_list", broken)
    answer = api("GET", MAPS)
    assert answer.status == 500
    assert "bug" in answer.json()["message"]
    assert "oops" not in answer.json()["message"]


def test_head_has_no_body(api: Api) -> None:
    answer = api("HEAD", MAPS)
    assert (answer.status, answer.body) == (200, b"")


def test_metrics_need_a_token_and_count(api: Api) -> None:
    api("GET", MAPS)
    api("GET", f"{MAPS}/nothing")
    text = api("GET", "/metrics").body.decode()
    assert 'dragoman_apiserver_requests_total{code="200",method="GET"} 1.0' in text
    assert 'dragoman_apiserver_requests_total{code="404",method="GET"} 1.0' in text
    assert 'dragoman_apiserver_objects{resource="namespaces"} 4.0' in text
    assert f"dragoman_apiserver_version {float(api.registry.store.version)}" in text
    assert 'kubernetes_feature_enabled{name="DRAAdminAccess",stage=""} 1.0' in text
    assert 'kubernetes_feature_enabled{name="DRAListTypeAttributes",stage="ALPHA"} 0.0' in text
