"""What admission policies refuse and change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import DeleteOptions, RequestOutcome, User, Write
from dragoman.apiserver.status import StatusError
from tests.apiserver.external.hooks import asking

MAP, DEPLOYMENT, NAMESPACE = BY_NAME["ConfigMap"], BY_NAME["Deployment"], BY_NAME["Namespace"]
VALIDATING, VALIDATING_BINDING = BY_NAME["ValidatingAdmissionPolicy"], BY_NAME["ValidatingAdmissionPolicyBinding"]
MUTATING, MUTATING_BINDING = BY_NAME["MutatingAdmissionPolicy"], BY_NAME["MutatingAdmissionPolicyBinding"]
ANNA = User("anna", ("system:authenticated",))


def run(scenario: Callable[[Registry], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        async with asking() as registry:
            return await scenario(registry)

    return asyncio.run(whole())


def rule(resource: str = "configmaps", group: str = "", *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": [resource],
        "operations": list(operations or ("CREATE", "UPDATE")),
    }


def policy(
    registry: Registry, *validations: dict[str, Any], binding: dict[str, Any] | None = None, **spec: Any
) -> None:
    """A validating policy over config maps with one binding."""
    body = {"matchConstraints": {"resourceRules": [rule()]}, "validations": list(validations), **spec}
    registry.create(VALIDATING, {"metadata": {"name": "p"}, "spec": body})
    made = {"policyName": "p", "validationActions": ["Deny"], **(binding or {})}
    registry.create(VALIDATING_BINDING, {"metadata": {"name": "b"}, "spec": made})


def mutation(
    registry: Registry, *mutations: dict[str, Any], name: str = "m", binding: dict[str, Any] | None = None, **spec: Any
) -> None:
    """A mutating policy over deployments with one binding."""
    constraints = {"resourceRules": [rule("deployments", "apps")]}
    body = {"matchConstraints": constraints, "mutations": list(mutations), "reinvocationPolicy": "Never", **spec}
    registry.create(MUTATING, {"metadata": {"name": name}, "spec": body})
    registry.create(MUTATING_BINDING, {"metadata": {"name": name}, "spec": {"policyName": name, **(binding or {})}})


def config_map(name: str = "m", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def deployment(name: str = "d", replicas: int = 1) -> dict[str, Any]:
    labels = {"app": "a"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    }


async def create(registry: Registry, body: dict[str, Any] | None = None, kind: Any = MAP) -> RequestOutcome:
    return await registry.creating(kind, body or config_map(), "default", Write(user=ANNA))


def test_a_validation_that_is_false_refuses_with_its_message() -> None:
    async def scenario(registry: Registry) -> None:
        policy(
            registry,
            {"expression": "object.data.size() <= 1"},
            {"expression": "'a' in object.data", "message": "a is needed"},
        )
        await create(registry, config_map(a="1"))
        with pytest.raises(StatusError) as refused:
            await create(registry, config_map("n", x="1", y="2"))
        text = (
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: object.data.size() <= 1"
        )
        assert refused.value.message == f'configmaps "n" is forbidden: {text}'
        assert (refused.value.code, refused.value.reason) == (422, "Invalid")
        assert refused.value.details == {"name": "n", "kind": "configmaps", "causes": [{"message": text}]}
        with pytest.raises(StatusError, match="denied request: a is needed"):
            await create(registry, config_map("n", x="1"))

    run(scenario)


VALIDATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a computed message": (
        {"expression": "false", "messageExpression": "'no ' + object.metadata.name + ' today'"},
        {},
        "denied request: no m today",
    ),
    "a message that fails": (
        {"expression": "false", "messageExpression": "string(object.none)", "message": "plain"},
        {},
        "request: plain",
    ),
    "variables": (
        {"expression": "variables.both == 'x-y'", "message": "got it wrong"},
        {
            "variables": [
                {"name": "one", "expression": "object.data.one"},
                {"name": "both", "expression": "variables.one + '-' + object.data.two"},
            ]
        },
        "got it wrong",
    ),
    "a variable that fails": (
        {"expression": "variables.v == 1"},
        {"variables": [{"name": "v", "expression": "object.none"}]},
        'composited variable "v" fails to evaluate: no such key: none',
    ),
    "the namespace": (
        {"expression": "namespaceObject.metadata.name != 'default'"},
        {},
        "failed expression: namespaceObject",
    ),
    "the request": (
        {"expression": "request.userInfo.username == 'root' && request.operation == 'CREATE'"},
        {},
        "failed expression",
    ),
    "rights": ({"expression": "authorizer.requestResource.check('delete').allowed()"}, {}, "failed expression"),
    "an error": (
        {"expression": "object.data.none == 'x'"},
        {},
        "expression 'object.data.none == 'x'' resulted in error: no such key: none",
    ),
    "a costly loop": (
        {"expression": "range(1000).all(a, range(1000).all(b, a + b >= 0))".replace("range", "lists.range")},
        {},
        "actual cost limit exceeded",
    ),
}


@pytest.mark.parametrize("case", VALIDATIONS, ids=str)
def test_validations(case: str) -> None:
    validation, spec, text = VALIDATIONS[case]

    async def scenario(registry: Registry) -> None:
        policy(registry, validation, **spec)
        with pytest.raises(StatusError) as refused:
            await create(registry, config_map(one="x", two="z"))
        assert text in refused.value.message

    run(scenario)


def test_the_reason_sets_the_code() -> None:
    async def scenario(registry: Registry) -> None:
        policy(registry, {"expression": "false", "reason": "Forbidden"})
        with pytest.raises(StatusError) as refused:
            await create(registry)
        assert (refused.value.code, refused.value.reason) == (403, "Forbidden")

    run(scenario)


def test_a_binding_may_warn_only() -> None:
    async def scenario(registry: Registry) -> None:
        policy(registry, {"expression": "false", "message": "hm"}, binding={"validationActions": ["Warn", "Audit"]})
        outcome = await create(registry)
        assert outcome.warnings == ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': hm"]

    run(scenario)


def test_errors_are_ignored_where_the_policy_says_so_but_a_no_is_not() -> None:
    async def scenario(registry: Registry) -> None:
        policy(registry, {"expression": "object.data.none == 'x'"}, failurePolicy="Ignore")
        await create(registry)
        registry.patch(VALIDATING, "p", {"spec": {"validations": [{"expression": "false"}]}})
        with pytest.raises(StatusError):
            await create(registry, config_map("n"))

    run(scenario)


def test_without_a_binding_a_policy_does_nothing_and_conditions_narrow_it() -> None:
    async def scenario(registry: Registry) -> None:
        condition = {"name": "named", "expression": "object.metadata.name.startsWith('x')"}
        policy(registry, {"expression": "false"}, matchConditions=[condition])
        await create(registry, config_map("a"))
        with pytest.raises(StatusError):
            await create(registry, config_map("x"))
        registry.delete(VALIDATING_BINDING, "b")
        await create(registry, config_map("x"))

    run(scenario)


def test_bindings_select_namespaces_and_objects() -> None:
    async def scenario(registry: Registry) -> None:
        selector = {"matchLabels": {"kubernetes.io/metadata.name": "kube-public"}}
        policy(registry, {"expression": "false"}, binding={"matchResources": {"namespaceSelector": selector}})
        await create(registry)
        with pytest.raises(StatusError):
            await registry.creating(MAP, config_map(), "kube-public", Write(user=ANNA))

    run(scenario)


def test_deletions_are_judged_by_the_old_object() -> None:
    async def scenario(registry: Registry) -> None:
        constraints = {"resourceRules": [rule("configmaps", "", "DELETE")]}
        policy(registry, {"expression": "object == null && !has(oldObject.data.keep)"}, matchConstraints=constraints)
        await create(registry, config_map("a", keep="1"))
        await create(registry, config_map("b", other="1"))
        await registry.deleting(MAP, "b", "default", DeleteOptions(), write=Write(user=ANNA))
        with pytest.raises(StatusError):
            await registry.deleting(MAP, "a", "default", DeleteOptions(), write=Write(user=ANNA))

    run(scenario)


def test_params_come_from_the_binding() -> None:
    async def scenario(registry: Registry) -> None:
        kind = {"apiVersion": "v1", "kind": "ConfigMap"}
        constraints = {"resourceRules": [rule("deployments", "apps")]}
        reference = {"name": "limits", "namespace": "kube-public", "parameterNotFoundAction": "Deny"}
        policy(
            registry,
            {"expression": "object.spec.replicas <= int(params.data.most)"},
            binding={"paramRef": reference},
            paramKind=kind,
            matchConstraints=constraints,
        )
        with pytest.raises(
            StatusError, match="failed to configure binding: no params found for policy binding with `Deny`"
        ):
            await create(registry, deployment(), DEPLOYMENT)
        registry.create(MAP, config_map("limits", most="2"), "kube-public")
        await create(registry, deployment(replicas=2), DEPLOYMENT)
        with pytest.raises(StatusError, match="failed expression"):
            await create(registry, deployment("e", replicas=3), DEPLOYMENT)
        change = {
            "spec": {
                "paramRef": {
                    "name": None,
                    "selector": {"matchLabels": {"limits": "yes"}},
                    "parameterNotFoundAction": "Allow",
                }
            }
        }
        registry.patch(VALIDATING_BINDING, "b", change)
        await create(registry, deployment("f", replicas=9), DEPLOYMENT)

    run(scenario)


# ---- changing


MUTATIONS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], Any], Any]] = {
    "labels by configuration": (
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {
                "expression": "Object{metadata: Object.metadata{labels: {'made-by': request.userInfo.username}}}"
            },
        },
        lambda obj: obj["metadata"]["labels"],
        {"made-by": "anna"},
    ),
    "a list by its keys": (
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {
                "expression": "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{"
                "containers: [Object.spec.template.spec.containers{name: 'side', image: 'x'}]}}}}"
            },
        },
        lambda obj: [c["name"] for c in obj["spec"]["template"]["spec"]["containers"]],
        ["c", "side"],
    ),
    "a patch": (
        {
            "patchType": "JSONPatch",
            "jsonPatch": {
                "expression": "[JSONPatch{op: 'test', path: '/spec/replicas', value: 1},"
                "JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 2}]"
            },
        },
        lambda obj: obj["spec"]["replicas"],
        3,
    ),
    "a patch whose test says no": (
        {
            "patchType": "JSONPatch",
            "jsonPatch": {
                "expression": "[JSONPatch{op: 'test', path: '/spec/replicas', value: 7},"
                "JSONPatch{op: 'replace', path: '/spec/replicas', value: 8}]"
            },
        },
        lambda obj: obj["spec"]["replicas"],
        1,
    ),
    "a key with a slash": (
        {
            "patchType": "JSONPatch",
            "jsonPatch": {
                "expression": "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {}},"
                "JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('example.com/a'), value: 'b'}]"
            },
        },
        lambda obj: obj["metadata"]["annotations"],
        {"example.com/a": "b"},
    ),
}


@pytest.mark.parametrize("case", MUTATIONS, ids=str)
def test_mutations(case: str) -> None:
    change, read, expected = MUTATIONS[case]

    async def scenario(registry: Registry) -> None:
        mutation(registry, change)
        await create(registry, deployment(), DEPLOYMENT)
        assert read(registry.get(DEPLOYMENT, "d", "default").decode()) == expected

    run(scenario)


def test_a_configuration_does_not_replace_an_atomic_list_by_accident() -> None:
    async def scenario(registry: Registry) -> None:
        text = (
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{"
            "containers: [Object.spec.template.spec.containers{name: 'c', command: ['x']}]}}}}"
        )
        mutation(registry, {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}})
        with pytest.raises(StatusError, match="may not mutate atomic arrays, maps or structs") as refused:
            await create(registry, deployment(), DEPLOYMENT)
        assert refused.value.message.startswith("policy 'm' with binding 'm' denied request: ")

    run(scenario)


def test_a_policy_is_asked_again_where_a_later_one_has_changed_the_object() -> None:
    async def scenario(registry: Registry) -> None:
        def replicas(text: str) -> dict[str, Any]:
            patch = f"[JSONPatch{{op: 'replace', path: '/spec/replicas', value: {text}}}]"
            return {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}

        mutation(registry, replicas("object.spec.replicas * 2"), name="a", reinvocationPolicy="IfNeeded")
        mutation(registry, replicas("object.spec.replicas + 10"), name="b")
        await create(registry, deployment(), DEPLOYMENT)
        assert registry.get(DEPLOYMENT, "d", "default").decode()["spec"]["replicas"] == 24

    run(scenario)


def test_params_of_a_mutation() -> None:
    async def scenario(registry: Registry) -> None:
        text = "[JSONPatch{op: 'replace', path: '/spec/replicas', value: int(params.data.count)}]"
        reference = {"name": "count", "parameterNotFoundAction": "Allow"}
        mutation(
            registry,
            {"patchType": "JSONPatch", "jsonPatch": {"expression": text}},
            binding={"paramRef": reference},
            paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        )
        await create(registry, deployment("none"), DEPLOYMENT)
        registry.create(MAP, config_map("count", count="5"), "default")
        await create(registry, deployment(), DEPLOYMENT)
        assert registry.get(DEPLOYMENT, "none", "default").decode()["spec"]["replicas"] == 1
        assert registry.get(DEPLOYMENT, "d", "default").decode()["spec"]["replicas"] == 5

    run(scenario)


INVALID: dict[str, tuple[Any, dict[str, Any], str]] = {
    "an unknown field": (VALIDATING, {"validations": [{"expression": "request.foo == 1"}]}, "undefined field 'foo'"),
    "an unknown variable": (VALIDATING, {"validations": [{"expression": "variables.x == 1"}]}, "undefined field 'x'"),
    "no bool": (VALIDATING, {"validations": [{"expression": "object.a"}]}, "must evaluate to bool but got dyn"),
    "params without a kind": (
        VALIDATING,
        {"validations": [{"expression": "params.a == 1"}]},
        "undeclared reference to 'params'",
    ),
    "nothing to do": (
        VALIDATING,
        {"validations": []},
        "validations or auditAnnotations must contain at least one item",
    ),
    "no patch": (
        MUTATING,
        {"mutations": [{"patchType": "JSONPatch"}]},
        "must be specified when patchType is JSONPatch",
    ),
    "an object of the wrong place": (
        MUTATING,
        {
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": "Object{spec: Object.wrong{a: 1}}"},
                }
            ]
        },
        'unexpected type name "Object.wrong"',
    ),
}


@pytest.mark.parametrize("case", INVALID, ids=str)
def test_policies_that_cannot_be_evaluated_are_refused(case: str) -> None:
    kind, spec, text = INVALID[case]

    async def scenario(registry: Registry) -> None:
        body = {"matchConstraints": {"resourceRules": [rule()]}, "reinvocationPolicy": "Never", **spec}
        if kind is VALIDATING:
            del body["reinvocationPolicy"]
        with pytest.raises(StatusError) as refused:
            registry.create(kind, {"metadata": {"name": "p"}, "spec": body})
        assert refused.value.code == 422
        assert text in refused.value.message

    run(scenario)
