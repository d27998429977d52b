"""Is every kind of the table complete? What a new line of `api.kinds` needs elsewhere is named here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from dragoman.api.kinds import BY_NAME, BY_PLURAL, KINDS, Kind
from dragoman.apiserver import discovery, facts, openapi, shape, table
from dragoman.apiserver.served import Served
from dragoman.apiserver.strategies import GENERIC, strategy_of

PLAIN = frozenset({"Workload", "ResourceClaimTemplate", "DeviceClass"})
"""Kinds that `kubectl get` shows with name and age only."""


def _versions(kind: Kind) -> Iterable[tuple[str, str, str]]:
    return ((kind.group, version, kind.kind) for version in kind.versions)


def _has_schema(kind: Kind) -> bool:
    return all(shape.shape_of(gvk) is not None for gvk in _versions(kind))


def _has_protobuf(kind: Kind) -> bool:
    known = facts.read("protobuf")
    return all(
        f"{known['packages'].get(f'{group}/{version}' if group else version)}.{name}" in known["messages"]
        for group, version, name in _versions(kind)
    )


def _has_printer(kind: Kind) -> bool:
    return kind.kind in PLAIN or (kind.group, kind.kind) in table.PRINTERS


def _has_strategy(kind: Kind) -> bool:
    """A kind with a status either counts changes of its spec or says that it does not."""
    return "status" not in kind.subresources or strategy_of(kind) is not GENERIC


NEEDS: dict[str, Callable[[Kind], bool]] = {
    "a schema in facts/schemas.json.gz for each version (tools/make_schemas.py)": _has_schema,
    "protobuf messages in facts/protobuf.json.gz (tools/make_protobuf_table.py)": _has_protobuf,
    "columns in apiserver/printers, or a place among PLAIN": _has_printer,
    "a strategy in apiserver/strategies, since its status has a subresource": _has_strategy,
}


@pytest.mark.parametrize("need", NEEDS)
def test_every_kind_has_what_it_needs(need: str) -> None:
    assert [kind.kind for kind in KINDS if not NEEDS[need](kind)] == []


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(BY_PLURAL) == len(KINDS)


def test_every_kind_is_discovered_and_documented() -> None:
    served = Served(everything=True)
    documents = openapi.OpenApi(served)
    for kind in KINDS:
        for version in kind.versions:
            listed = discovery.legacy_resources(served, kind.group, version)["resources"]
            assert kind.plural in {resource["name"] for resource in listed}
            where = f"apis/{kind.group}/{version}" if kind.group else f"api/{version}"
            assert documents.document(where) is not None
