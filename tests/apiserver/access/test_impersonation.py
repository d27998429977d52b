"""Whom a client may be taken for: the headers, the constrained modes (KEP-5284), and the right that always was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.apiserver.access.authorizer import Authorizer
from dragoman.apiserver.access.impersonation import (
    NODE_EXTRA,
    account_groups,
    account_of,
    impersonated,
    wanted_of,
)
from dragoman.apiserver.http import HEADER_SEPARATOR
from dragoman.apiserver.request import User
from dragoman.apiserver.status import StatusError
from tests.apiserver.access.stage import bind, may, put, rule, store, user

BOT = user("bot")
AUTHN = "authentication.k8s.io"
ASKED = may(BOT, "list", "pods", namespace="red")


def taken(headers: dict[str, str], *rules: dict[str, Any], client: User = BOT) -> User:
    """Who a client counts as that has these rights in the whole cluster."""
    objects = store()
    put(objects, "ClusterRole", "rights", rules=list(rules))
    kind = {"kind": "User", "name": client.name, "apiGroup": "rbac.authorization.k8s.io"}
    bind(objects, "rights", kind)
    asked = msgspec.structs.replace(ASKED, user=client)
    return impersonated(Authorizer(objects), asked, headers)


def refused(headers: dict[str, str], *rules: dict[str, Any], client: User = BOT) -> str:
    with pytest.raises(StatusError) as caught:
        taken(headers, *rules, client=client)
    assert caught.value.code == 403
    return caught.value.message


def headers(name: str = "anna", *, groups: str = "", uid: str = "", **extra: str) -> dict[str, str]:
    found = {"impersonate-user": name} | ({"impersonate-uid": uid} if uid else {})
    if groups:
        found["impersonate-group"] = HEADER_SEPARATOR.join(groups.split())
    return found | {f"impersonate-extra-{key}": value for key, value in extra.items()}


def test_without_headers_a_client_is_itself_and_parts_of_a_user_need_a_name() -> None:
    assert taken({}) == BOT
    for rest in ({"impersonate-group": "ops"}, {"impersonate-uid": "7"}, {"impersonate-extra-a": "b"}):
        with pytest.raises(StatusError) as caught:
            wanted_of(rest)
        assert caught.value.code == 400


def test_keys_of_extra_values_are_unescaped_and_values_split() -> None:
    found = wanted_of({"impersonate-user": "u", "impersonate-extra-a%2fb": HEADER_SEPARATOR.join("xy")})
    assert found is not None
    assert found.extra == {"a/b": ("x", "y")}


# ---- the verb that always was

ANNA = rule("impersonate", "users", names="anna")


def test_each_part_of_the_user_takes_a_right_of_its_own() -> None:
    assert taken(headers(), ANNA) == User("anna", ("system:authenticated",))
    whole = headers(groups="ops dev", uid="7", scopes="view")
    rights = [
        ANNA,
        rule("impersonate", "groups", names="ops dev"),
        rule("impersonate", "uids", AUTHN, "7"),
        rule("impersonate", "userextras/scopes", AUTHN, "view"),
    ]
    assert taken(whole, *rights) == User("anna", ("ops", "dev", "system:authenticated"), "7", {"scopes": ("view",)})
    for missing in range(len(rights)):
        refused(whole, *rights[:missing], *rights[missing + 1 :])


def test_the_refusal_is_that_of_the_first_mode_that_fits() -> None:
    assert refused(headers("boris"), ANNA) == (
        'pods is forbidden: User "bot" cannot impersonate-on:user-info:list resource "pods" in API group "" in the '
        'namespace "red"'
    )


def test_a_service_account_is_a_right_on_that_object_and_brings_its_groups() -> None:
    name = "system:serviceaccount:red:runner"
    assert taken(headers(name), rule("impersonate", "serviceaccounts", names="runner")) == User(
        name, account_groups("red")
    )
    refused(headers(name), rule("impersonate", "serviceaccounts", names="other"))
    refused(headers(name), rule("impersonate", "users"))


def test_nobody_known_is_not_among_the_authenticated() -> None:
    anyone = rule("impersonate", "users groups")
    assert taken(headers("system:anonymous"), anyone).groups == ("system:unauthenticated",)
    assert taken(headers(groups="system:authenticated"), anyone).groups == ("system:authenticated",)


# ---- constrained modes

ON_PODS = rule("impersonate-on:user-info:list", "pods")
AS_ANNA = rule("impersonate:user-info", "users", AUTHN, "anna")


def test_a_constrained_right_holds_for_what_it_names_only() -> None:
    assert taken(headers(), ON_PODS, AS_ANNA).name == "anna"
    refused(headers(), AS_ANNA)
    refused(headers(), ON_PODS)
    refused(headers(), rule("impersonate-on:user-info:list", "secrets"), AS_ANNA)
    refused(headers("boris"), ON_PODS, AS_ANNA)


def test_a_constrained_right_never_gives_the_masters_group() -> None:
    groups = rule("impersonate:user-info", "groups", AUTHN)
    assert taken(headers(groups="ops"), ON_PODS, AS_ANNA, groups).groups[0] == "ops"
    message = refused(headers(groups="system:masters"), ON_PODS, AS_ANNA, groups)
    assert "impersonating the system:masters group is not allowed" in message


NODE = "system:node:n1"
AGENT = User("system:serviceaccount:kube-system:agent", account_groups("kube-system"), extra={NODE_EXTRA: ("n1",)})
HERE = [
    rule("impersonate-on:associated-node:list", "pods"),
    rule("impersonate:associated-node", "nodes", AUTHN, "*"),
]


def test_a_pod_may_be_taken_for_its_own_node_only() -> None:
    assert taken(headers(NODE), *HERE, client=AGENT) == User(NODE, ("system:nodes", "system:authenticated"))
    refused(headers("system:node:n2"), *HERE, client=AGENT)
    refused(headers(NODE), *HERE, client=msgspec.structs.replace(AGENT, extra={}))


def test_any_node_takes_another_right() -> None:
    rights = [rule("impersonate-on:arbitrary-node:list", "pods"), rule("impersonate:arbitrary-node", "nodes", AUTHN)]
    assert taken(headers("system:node:n2"), *rights).groups == ("system:nodes", "system:authenticated")
    # With groups of its own it is no node, but a user of that name.
    refused(headers("system:node:n2", groups="ops"), *rights)


ACCOUNTS = {
    "system:serviceaccount:red:runner": ("red", "runner"),
    "system:serviceaccount:red": None,
    "system:serviceaccount::runner": None,
    "system:serviceaccount:a:b:c": None,
    "anna": None,
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_names_of_service_accounts(name: str) -> None:
    assert account_of(name) == ACCOUNTS[name]
