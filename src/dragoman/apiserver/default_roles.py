"""Which roles and bindings does every cluster have? Upstream's bootstrap policy, and aggregated roles kept up to date.

Missing ones are made at every start; of one that is there and marked `autoupdate`, only rules and subjects that are
missing are added, as upstream does. Writes what any administrator could.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.shape import Object
from dragoman.apiserver.access.parts import OWN
from dragoman.apiserver.access.rbac import CLUSTER_ROLE
from dragoman.apiserver.access.rules import missing, rules_of
from dragoman.apiserver.facts import read
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import Write
from dragoman.apiserver.selectors import accepts, of_object
from dragoman.apiserver.store import StoredObject

AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_BOOT: Final = Write(manager="dragoman-apiserver")
_CONTENT: Final = ("rules", "aggregationRule", "roleRef", "subjects")
_ORDER: Final = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")


def ensure(registry: Registry) -> None:
    """Make what is missing, and aggregate from now on."""
    tables = read("roles")
    for name in _ORDER:
        rows = {(row["name"], row.get("namespace", "")): row for row in (*tables[name], *OWN.get(name, ()))}
        for row in rows.values():
            _ensure(registry, BY_NAME[name], row)
    registry.followers[CLUSTER_ROLE] = lambda old, new: aggregate(registry)
    aggregate(registry)


def _ensure(registry: Registry, kind: Kind, row: Object) -> None:
    namespace = row.get("namespace", "")
    record = registry.find(kind, row["name"], namespace)
    if record is None:
        registry.create(kind, _body(row), namespace, _BOOT)
        return
    obj = record.decode()
    if obj["metadata"].get("annotations", {}).get(AUTOUPDATE) != "true":
        return
    if "aggregationRule" not in row and kind.kind.endswith("Role"):
        lacking = [rule.as_object() for rule in missing(rules_of(obj), rules_of(row))]
        field = "rules"
    else:
        lacking = [subject for subject in row.get("subjects", ()) if subject not in (obj.get("subjects") or ())]
        field = "subjects"
    if lacking:
        obj[field] = [*(obj.get(field) or ()), *lacking]
        registry.change(record, lambda _: obj, write=_BOOT)


def _body(row: Object) -> Object:
    meta: Object = {
        "name": row["name"],
        "labels": {**LABELS, **row.get("labels", {})},
        "annotations": {AUTOUPDATE: "true"},
    }
    fields: Object = {
        field: row[field] for field in ("rules", "aggregationRule", "roleRef", "subjects") if field in row
    }
    return {"metadata": meta, **fields}


def aggregate(registry: Registry) -> None:
    """Set the rules of every ClusterRole that gathers those of others (aggregationRule)."""
    records = registry.select(CLUSTER_ROLE)
    for record in records:
        if b'"aggregationRule"' not in record.body:
            continue
        role = record.decode()
        selectors = [
            of_object(entry) for entry in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        ]
        rules = _gathered(record, records, [selector for selector in selectors if selector is not None])
        if not selectors or rules == (role.get("rules") or []):
            continue
        role["rules"] = rules
        registry.change(record, lambda _, role=role: role, write=Write(manager="clusterrole-aggregation-controller"))  # type: ignore[misc]
        return  # a change calls this again: a role may gather what another one gathers


def _gathered(target: StoredObject, records: Iterable[StoredObject], selectors: list[Any]) -> list[Object]:
    found: list[Object] = []
    for selector in selectors:
        for record in records:
            if record.name != target.name and accepts(selector, record.labels):
                found += [rule for rule in record.decode().get("rules") or () if rule not in found]
    return found
