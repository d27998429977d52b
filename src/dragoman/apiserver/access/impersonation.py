"""Whom does a client ask to be taken for, and may it? The Impersonate-* headers (kubectl --as, --as-group, --as-uid).

Constrained modes (KEP-5284) are tried first, then the verb "impersonate" as it always was.
Source: k8s.io/apiserver pkg/endpoints/filters/impersonation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from dragoman.apiserver.access.attributes import Attributes, denied
from dragoman.apiserver.access.authorizer import MASTERS, UNAUTHENTICATED, Authorizer
from dragoman.apiserver.access.node import NODES_GROUP
from dragoman.apiserver.access.node import PREFIX as NODE
from dragoman.apiserver.http import HEADER_SEPARATOR
from dragoman.apiserver.request import User
from dragoman.apiserver.status import StatusError, bad_request

AUTHENTICATED: Final = "system:authenticated"
ANONYMOUS: Final = "system:anonymous"
ACCOUNT: Final = "system:serviceaccount:"
NODE_EXTRA: Final = "authentication.kubernetes.io/node-name"
_AUTHN: Final = "authentication.k8s.io"
_EXTRA: Final = "impersonate-extra-"


def account_of(name: str) -> tuple[str, str] | None:
    """Namespace and name of a service account's user name."""
    parts = name.removeprefix(ACCOUNT).split(":")
    if not name.startswith(ACCOUNT) or len(parts) != 2 or not all(parts):
        return None
    return parts[0], parts[1]


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of every service account of a namespace."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED


def wanted_of(headers: Mapping[str, str]) -> User | None:
    """The user that the headers name, as they name it. Raises 400 where no user is named beside the rest."""
    name = headers.get("impersonate-user", "")
    groups = tuple(headers["impersonate-group"].split(HEADER_SEPARATOR)) if "impersonate-group" in headers else ()
    extra = {
        unquote(key.removeprefix(_EXTRA)): tuple(value.split(HEADER_SEPARATOR))
        for key, value in headers.items()
        if key.startswith(_EXTRA)
    }
    uid = headers.get("impersonate-uid", "")
    if name:
        return User(name, groups, uid, extra)
    if groups or extra or uid:
        raise bad_request("requested groups, a uid or extra values without impersonating a user name")
    return None


def impersonated(authorizer: Authorizer, asked: Attributes, headers: Mapping[str, str]) -> User:
    """Who the request counts as: the client, or whom it may be taken for. Raises 400, 403."""
    wanted = wanted_of(headers)
    if wanted is None:
        return asked.user
    refused: StatusError | None = None
    for mode in _modes(wanted, asked.user):
        try:
            return _as(authorizer, asked, wanted, mode)
        except StatusError as no:
            refused = refused or no
    assert refused is not None, "the last mode fits every user"
    raise refused


def _modes(wanted: User, client: User) -> Iterator[str]:
    """The ways in which this client may be taken for that user; "" is the verb that always was."""
    only_name = not (wanted.groups or wanted.uid or wanted.extra)
    if wanted.name.startswith(NODE):
        if only_name:
            here = client.extra.get(NODE_EXTRA) == (wanted.name.removeprefix(NODE),)
            if here and account_of(client.name):
                yield "associated-node"
            yield "arbitrary-node"
    elif account_of(wanted.name):
        if only_name:
            yield "serviceaccount"
    else:
        yield "user-info"
    yield ""


def _as(authorizer: Authorizer, asked: Attributes, wanted: User, mode: str) -> User:
    client = asked.user
    if mode == "associated-node":
        client = msgspec.structs.replace(client, extra={})
    verb = f"impersonate:{mode}" if mode else "impersonate"
    group = _AUTHN if mode else ""

    def check(resource: str, name: str, group: str, *, namespace: str = "", subresource: str = "") -> None:
        authorizer.check(Attributes(client, verb, group, "v1", resource, subresource, namespace, name))

    if mode:
        on = f"impersonate-on:{mode}:{asked.verb}"
        authorizer.check(msgspec.structs.replace(asked, user=client, verb=on))
    groups = wanted.groups
    account = account_of(wanted.name)
    if account:
        check("serviceaccounts", account[1], group, namespace=account[0])
        groups = groups or account_groups(account[0])
    elif mode.endswith("-node"):
        name = "*" if mode == "associated-node" else wanted.name.removeprefix(NODE)
        check("nodes", name, group)
        groups = (NODES_GROUP,)
    else:
        check("users", wanted.name, group)
    if wanted.uid:
        check("uids", wanted.uid, _AUTHN)
    for name in wanted.groups:
        if mode and name in ("", MASTERS):
            what = "the system:masters group" if name else "the empty string group"
            about = Attributes(client, verb, group, "v1", "groups", name=name)
            raise denied(about, f"impersonating {what} is not allowed")
        check("groups", name, group)
    for key, values in wanted.extra.items():
        for value in values:
            check("userextras", value, _AUTHN, subresource=key)
    return msgspec.structs.replace(wanted, groups=_completed(wanted.name, groups))


def _completed(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    added = UNAUTHENTICATED if name == ANONYMOUS else AUTHENTICATED
    if added in groups or (added == AUTHENTICATED and UNAUTHENTICATED in groups):
        return groups
    return (*groups, added)
