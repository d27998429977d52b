"""What webhooks are asked, and what comes of their answers. They run over TLS on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.admission import Attributes
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import DeleteOptions, RequestOutcome, User, Write
from dragoman.apiserver.status import StatusError
from tests.apiserver.external.hooks import Hooks, add, asking, hooks, patch, webhook

MAP, POD, CLAIM = BY_NAME["ConfigMap"], BY_NAME["Pod"], BY_NAME["ResourceClaim"]
MUTATING, VALIDATING = BY_NAME["MutatingWebhookConfiguration"], BY_NAME["ValidatingWebhookConfiguration"]
ANNA = User("anna", ("builders", "system:authenticated"), extra={"a": ("b",)})
Scenario = Callable[[Registry, Hooks], Awaitable[Any]]


def run(folder: Path, scenario: Scenario, host: str = "127.0.0.1") -> Any:
    async def whole() -> Any:
        async with hooks(folder, host) as server, asking() as registry, asyncio.timeout(20):
            return await scenario(registry, server)

    return asyncio.run(whole())


def config_map(name: str = "m", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def create(registry: Registry, body: dict[str, Any] | None = None, **write: Any) -> RequestOutcome:
    return await registry.creating(MAP, body or config_map(), "default", Write(user=ANNA, **write))


def configure(registry: Registry, kind: Any, *webhooks: dict[str, Any], name: str = "c") -> None:
    registry.create(kind, {"metadata": {"name": name}, "webhooks": list(webhooks)})


def stored(registry: Registry, name: str = "m") -> dict[str, Any]:
    return registry.get(MAP, name, "default").decode()


def test_a_validating_webhook_sees_the_whole_request_and_its_no_is_the_answer(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        server.replies["/v"] = lambda _: {"allowed": False, "status": {"message": "not today", "code": 418}}
        configure(registry, VALIDATING, webhook("a.example.com", server.client("/v")))
        with pytest.raises(StatusError) as refused:
            await create(registry)
        assert refused.value.code == 418
        assert refused.value.message == 'admission webhook "a.example.com" denied the request: not today'
        (request,) = server.seen
        assert request["object"]["kind"] == "ConfigMap"
        assert request["oldObject"] is None
        assert (request["operation"], request["namespace"], request["name"]) == ("CREATE", "default", "m")
        assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
        assert request["userInfo"] == {"username": "anna", "groups": list(ANNA.groups), "extra": {"a": ["b"]}}
        assert request["dryRun"] is False

    run(tmp_path, scenario)


def test_mutating_webhooks_change_the_object_in_turn_and_warn(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        server.replies["/1"] = lambda _: {**patch(add("/data/one", "1")), "warnings": ["careful"]}
        server.replies["/2"] = lambda r: patch(add("/data/two", r["object"]["data"]["one"] + "2"))
        configure(
            registry,
            MUTATING,
            webhook("one.example.com", server.client("/1")),
            webhook("two.example.com", server.client("/2")),
        )
        outcome = await create(registry, config_map(zero="0"))
        assert outcome.warnings == ["careful"]
        assert stored(registry)["data"] == {"zero": "0", "one": "1", "two": "12"}

    run(tmp_path, scenario)


def test_a_webhook_is_asked_again_where_a_later_one_has_changed_the_object(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        server.replies["/count"] = lambda r: patch(
            add("/data/count", str(len(r["object"]["data"]) - ("count" in r["object"]["data"])))
        )
        server.replies["/more"] = lambda _: patch(add("/data/more", "x"))
        again = webhook("count.example.com", server.client("/count"), reinvocationPolicy="IfNeeded")
        configure(registry, MUTATING, again, webhook("more.example.com", server.client("/more")))
        await create(registry, config_map(a="1"))
        assert stored(registry)["data"] == {"a": "1", "more": "x", "count": "2"}
        assert len(server.seen) == 3

    run(tmp_path, scenario)


SELECTIONS: dict[str, tuple[dict[str, Any], bool]] = {
    "another resource": (
        {"rules": [{"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["*"]}]},
        False,
    ),
    "another operation": (
        {"rules": [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"]}]},
        False,
    ),
    "every resource": (
        {"rules": [{"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]},
        True,
    ),
    "the scope": (
        {
            "rules": [
                {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "Cluster"}
            ]
        },
        False,
    ),
    "the namespace's labels": (
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
        True,
    ),
    "other labels of the namespace": ({"namespaceSelector": {"matchLabels": {"x": "y"}}}, False),
    "labels of the object": ({"objectSelector": {"matchLabels": {"hook": "yes"}}}, True),
    "other labels of the object": (
        {"objectSelector": {"matchExpressions": [{"key": "hook", "operator": "DoesNotExist"}]}},
        False,
    ),
    "a condition that holds": (
        {"matchConditions": [{"name": "a", "expression": "request.userInfo.username == 'anna'"}]},
        True,
    ),
    "a condition that does not": ({"matchConditions": [{"name": "a", "expression": "object.data.size() > 5"}]}, False),
    "a right that nobody gave": (
        {
            "matchConditions": [
                {"name": "a", "expression": "authorizer.group('').resource('pods').check('list').allowed()"}
            ]
        },
        False,
    ),
}


@pytest.mark.parametrize("case", SELECTIONS, ids=str)
def test_who_is_asked(tmp_path: Path, case: str) -> None:
    fields, asked = SELECTIONS[case]

    async def scenario(registry: Registry, server: Hooks) -> None:
        server.replies["/v"] = lambda _: {"allowed": True}
        configure(registry, VALIDATING, webhook("a.example.com", server.client("/v"), **fields))
        body = config_map()
        body["metadata"]["labels"] = {"hook": "yes"}
        await create(registry, body)
        assert len(server.seen) == asked

    run(tmp_path, scenario)


def test_a_condition_that_fails_asks_the_failure_policy(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        wrong = [{"name": "a", "expression": "object.none == 1"}]
        configure(registry, VALIDATING, webhook("a.example.com", server.client("/v"), matchConditions=wrong))
        with pytest.raises(StatusError, match="no such key: none"):
            await create(registry)
        registry.delete(VALIDATING, "c")
        ignored = webhook("a.example.com", server.client("/v"), matchConditions=wrong, failurePolicy="Ignore")
        configure(registry, VALIDATING, ignored)
        await create(registry)
        assert not server.seen

    run(tmp_path, scenario)


async def too_slow(_: dict[str, Any]) -> web.Response:
    await asyncio.sleep(5)
    return web.Response()


FAILURES: dict[str, tuple[Any, str]] = {
    "slow": (
        too_slow,
        r'failed calling webhook "a\.example\.com": failed to call webhook: Post "https://.*timeout=1s": context deadline exceeded',
    ),
    "a server error": (lambda _: web.Response(status=500, text="broken"), "failed to call webhook: broken"),
    "no JSON": (lambda _: web.Response(text="{"), "failed to call webhook: couldn't get version/kind"),
    "another uid": (
        lambda _: {"uid": "x", "allowed": True},
        "received invalid webhook response: expected response.uid=",
    ),
    "a patch of a validating one": (
        lambda _: patch(add("/data/a", "b")),
        "validating webhook may not return response.patch",
    ),
    "no response": (lambda _: web.json_response({}), "webhook response was absent"),
}


@pytest.mark.parametrize("case", FAILURES, ids=str)
def test_a_webhook_that_fails_refuses_or_is_ignored(tmp_path: Path, case: str) -> None:
    reply, text = FAILURES[case]

    async def scenario(registry: Registry, server: Hooks) -> None:
        server.replies["/v"] = reply
        configure(registry, VALIDATING, webhook("a.example.com", server.client("/v"), timeoutSeconds=1))
        with pytest.raises(StatusError, match=text) as refused:
            await create(registry)
        assert refused.value.code == 500
        registry.patch(
            VALIDATING, "c", [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}], type="json"
        )
        await create(registry)

    run(tmp_path, scenario)


def test_nobody_listens_and_a_stranger_answers(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        configure(registry, VALIDATING, webhook("a.example.com", {"url": "https://127.0.0.1:1/v"}))
        with pytest.raises(StatusError, match=r"dial tcp 127\.0\.0\.1:1: connect: connection refused"):
            await create(registry)
        registry.delete(VALIDATING, "c")
        stranger = {"url": f"https://127.0.0.1:{server.port}/v"}
        configure(registry, VALIDATING, webhook("a.example.com", stranger))
        with pytest.raises(StatusError, match="tls: failed to verify certificate"):
            await create(registry)

    run(tmp_path, scenario)


def test_dry_run_spares_webhooks_with_side_effects(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        server.replies["/v"] = lambda _: {"allowed": True}
        configure(registry, VALIDATING, webhook("a.example.com", server.client("/v")))
        await create(registry, dry_run=True)
        assert server.seen[0]["dryRun"] is True
        some = webhook("a.example.com", server.client("/v"), sideEffects="Some")
        with pytest.raises(StatusError, match="sideEffects: Unsupported value"):
            configure(registry, VALIDATING, some, name="d")

    run(tmp_path, scenario)


def test_updates_and_deletions_show_the_old_object(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        await create(registry, config_map(a="1"))
        server.replies["/v"] = lambda r: {"allowed": r["operation"] != "DELETE"}
        configure(registry, VALIDATING, webhook("a.example.com", server.client("/v")))
        await registry.patching(MAP, "m", {"data": {"a": "2"}}, "default", write=Write(user=ANNA))
        assert server.seen[-1]["oldObject"]["data"] == {"a": "1"}
        assert server.seen[-1]["object"]["data"] == {"a": "2"}
        with pytest.raises(StatusError, match="denied the request without explanation"):
            await registry.deleting(MAP, "m", "default", DeleteOptions(), write=Write(user=ANNA))
        assert server.seen[-1]["object"] is None
        assert server.seen[-1]["oldObject"]["data"] == {"a": "2"}

    run(tmp_path, scenario)


def test_a_write_that_came_between_is_asked_about_again(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        await create(registry, config_map(a="1"))

        def between(request: dict[str, Any]) -> dict[str, Any]:
            if len(server.seen) == 1:
                registry.patch(MAP, "m", {"data": {"b": "between"}}, "default")
            return {"allowed": True}

        server.replies["/v"] = between
        configure(registry, VALIDATING, webhook("a.example.com", server.client("/v")))
        await registry.patching(MAP, "m", {"data": {"a": "2"}}, "default", write=Write(user=ANNA))
        assert stored(registry)["data"] == {"a": "2", "b": "between"}
        assert len(server.seen) == 2

    run(tmp_path, scenario)


def test_another_version_of_the_kind_is_asked_in_the_rules_version(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        server.replies["/m"] = lambda r: patch(
            add("/metadata/labels", {"seen": r["object"]["apiVersion"].rpartition("/")[2]})
        )
        rule = {
            "operations": ["CREATE"],
            "apiGroups": ["resource.k8s.io"],
            "apiVersions": ["v1beta1"],
            "resources": ["resourceclaims"],
        }
        configure(registry, MUTATING, webhook("a.example.com", server.client("/m"), rules=[rule]))
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
        body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
        await registry.creating(CLAIM, body, "default", Write(user=ANNA))
        claim = registry.get(CLAIM, "c", "default").decode()
        assert claim["metadata"]["labels"] == {"seen": "v1beta1"}
        assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.example.com"
        assert server.seen[0]["object"]["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"
        registry.patch(MUTATING, "c", [add("/webhooks/0/matchPolicy", "Exact")], type="json")
        await registry.creating(CLAIM, {**body, "metadata": {"name": "d"}}, "default", Write(user=ANNA))
        assert len(server.seen) == 1

    run(tmp_path, scenario)


def test_nobody_locks_himself_out_of_the_configurations(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        everything = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]
        configure(registry, VALIDATING, webhook("a.example.com", {"url": "https://127.0.0.1:1/"}, rules=everything))
        with pytest.raises(StatusError):
            await create(registry)
        await registry.deleting(VALIDATING, "c", write=Write(user=ANNA))
        await create(registry)

    run(tmp_path, scenario)


def test_a_webhook_denies_to_attach_to_a_pod(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        server.replies["/v"] = lambda _: {"allowed": False, "status": {"message": "not to this one"}}
        rules = [{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/attach"]}]
        configure(registry, VALIDATING, webhook("a.example.com", server.client("/v"), rules=rules))
        options = {"kind": "PodAttachOptions", "apiVersion": "v1", "stdin": True, "container": "main"}
        asked = Attributes(POD, "CONNECT", "default", "p", options, None, Write(user=ANNA), "attach")
        with pytest.raises(StatusError, match="not to this one"):
            await registry.connecting(asked)
        request = server.seen[0]
        assert (request["kind"]["kind"], request["subResource"]) == ("PodAttachOptions", "attach")
        assert request["object"] == options
        await registry.connecting(Attributes(POD, "CONNECT", "default", "p", {}, None, Write(user=ANNA), "exec"))
        assert len(server.seen) == 1

    run(tmp_path, scenario)


SERVICE = BY_NAME["Service"]


def test_a_service_is_reached_by_its_endpoints_or_the_annotation(tmp_path: Path) -> None:
    async def scenario(registry: Registry, server: Hooks) -> None:
        server.replies["/v"] = lambda _: {"allowed": True}
        client = {"service": {"name": "hook", "namespace": "default", "path": "v"}, "caBundle": server.ca}
        configure(registry, VALIDATING, webhook("a.example.com", client))
        with pytest.raises(StatusError, match='service "hook" not found'):
            await create(registry)
        ports = [{"name": "https", "port": 443, "targetPort": 9443, "protocol": "TCP"}]
        registry.create(SERVICE, {"metadata": {"name": "hook"}, "spec": {"ports": ports}}, "default")
        with pytest.raises(StatusError, match='no endpoints available for service "hook"'):
            await create(registry)
        place = {
            "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": server.port}],
            "endpoints": [{"addresses": ["127.0.0.1"]}],
        }
        registry.create(BY_NAME["EndpointSlice"], place, "default")
        await create(registry)
        registry.delete(BY_NAME["EndpointSlice"], "hook-1", "default")
        note = {"metadata": {"annotations": {"dragoman.dev/endpoint": f"127.0.0.1:{server.port}"}}}
        registry.patch(SERVICE, "hook", note, "default")
        await create(registry, config_map("second"))
        assert len(server.seen) == 2

    run(tmp_path, scenario, host="hook.default.svc")


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "a short name": ({"name": "a.b"}, "at least three segments"),
    "no side effects": (
        {"sideEffects": None},
        "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
    ),
    "plain HTTP": ({"clientConfig": {"url": "http://a"}}, "'https' is the only allowed URL scheme"),
    "no client": (
        {"clientConfig": {}},
        "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
    ),
    "a long time": ({"timeoutSeconds": 31}, "the timeout value must be between 1 and 30 seconds"),
    "no version known": ({"admissionReviewVersions": ["v9"]}, "must include at least one of v1, v1beta1"),
    "a bad expression": (
        {"matchConditions": [{"name": "x", "expression": "object.a +"}]},
        "webhooks[0].matchConditions[0].expression: Invalid value",
    ),
    "an expression of another type": (
        {"matchConditions": [{"name": "x", "expression": "'a'"}]},
        "must evaluate to bool but got string",
    ),
}


@pytest.mark.parametrize("case", INVALID, ids=str)
def test_configurations_that_cannot_be_asked_are_refused(tmp_path: Path, case: str) -> None:
    fields, text = INVALID[case]

    async def scenario(registry: Registry, server: Hooks) -> None:
        made = {**webhook("a.example.com", server.client("/v")), **fields}
        with pytest.raises(StatusError) as refused:
            configure(registry, VALIDATING, {key: value for key, value in made.items() if value is not None})
        assert refused.value.code == 422
        assert text in refused.value.message

    run(tmp_path, scenario)
