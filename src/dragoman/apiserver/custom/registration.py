"""Who serves custom resources when their definition is stored, and ends them when it goes?

Stands above the registry and follows the writes of CustomResourceDefinitions: accepts names, offers the kind, writes
the conditions, and on deletion removes all objects before the definition. Everything happens in the write's own step,
so a definition is established once its creation was answered.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.custom.definition import APPROVED, FINALIZER
from dragoman.apiserver.custom.kind import CustomKind, custom_kind
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import DeleteOptions, Write
from dragoman.apiserver.status import StatusError
from dragoman.apiserver.store import EVERYTHING, StoredObject
from dragoman.errors import Invalid

CRD = BY_NAME["CustomResourceDefinition"]
_WRITE = Write(manager="dragoman-apiserver")
_NAME_FIELDS = ("plural", "singular", "kind", "listKind")


class Registration:
    """The custom resources of one registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._reconciling = False
        registry.followers[CRD] = self._changed
        registry.when_removed = self._removed

    def start(self) -> None:
        """Serve what was kept. Raises Invalid for stored objects that nothing defines."""
        for record in self.registry.store.select(CRD):
            self._follow(record)
        for shelf in self.registry.store.shelves():
            if shelf.kind.kind == "" and shelf.records:
                raise Invalid("--data", f"holds {shelf.kind.plural}.{shelf.kind.group}, which nothing defines")

    def _changed(self, old: StoredObject | None, new: StoredObject | None) -> None:
        if self._reconciling:
            return
        if new is None:
            assert old is not None, "something was removed"
            self._withdraw(old.decode())
        else:
            self._follow(new)

    def _follow(self, record: StoredObject) -> None:
        crd = record.decode()
        conditions, names = self._accept(crd)
        established = _is_true(conditions, "Established")
        crd["status"] = {**(crd.get("status") or {}), "acceptedNames": names}
        if established:
            self._announce(crd)
        self._write_status(record, conditions, names)
        if "deletionTimestamp" in crd["metadata"]:
            self._clean(crd)

    # ---- names

    def _accept(self, crd: Object) -> tuple[list[Object], Object]:
        """The conditions that a definition has now, and the names that it may use."""
        spec = crd["spec"]
        wanted: Object = spec["names"]
        in_use = self._names_in_use(crd)
        accepted: Object = {**((crd.get("status") or {}).get("acceptedNames") or {})}
        problem: tuple[str, str] | None = None
        for field in _NAME_FIELDS:
            value = wanted.get(field, "")
            pool = "kinds" if field in ("kind", "listKind") else "resources"
            if value in in_use[pool]:
                problem = problem or (f"{field[0].upper()}{field[1:]}Conflict", f'"{value}" is already in use')
            else:
                accepted[field] = value
        short = list(wanted.get("shortNames") or ())
        if used := [name for name in short if name in in_use["resources"]]:
            problem = problem or ("ShortNamesConflict", ", ".join(f'"{name}" is already in use' for name in used))
        else:
            accepted["shortNames"] = short
        accepted["categories"] = list(wanted.get("categories") or ())
        accepted = {field: value for field, value in accepted.items() if value}
        was = any(c.get("type") == "Established" and c.get("status") == "True" for c in _conditions(crd))
        names = ("False", *problem) if problem else ("True", "NoConflicts", "no conflicts found")
        ready = ("True", "InitialNamesAccepted", "the initial names have been accepted")
        if problem and not was:
            ready = ("False", "NotAccepted", "not all names are accepted")
        wanted_conditions = [("NamesAccepted", *names), ("Established", *ready)]
        if (approval := (crd["metadata"].get("annotations") or {}).get(APPROVED)) is not None:
            conforms = approval.startswith("https://")
            text = f"approved in {approval}" if conforms else f"not approved: {approval}"
            state, reason = ("True", "ApprovedAnnotation") if conforms else ("False", "UnapprovedAnnotation")
            wanted_conditions.append(("KubernetesAPIApprovalPolicyConformant", state, reason, text))
        return [self._condition(crd, *entry) for entry in wanted_conditions], accepted

    def _names_in_use(self, crd: Object) -> dict[str, set[str | None]]:
        """Names that other definitions of the group use."""
        in_use: dict[str, set[str | None]] = {"resources": set(), "kinds": set()}
        for record in self.registry.store.select(CRD):
            other = record.decode()
            if record.name == crd["metadata"]["name"] or other["spec"]["group"] != crd["spec"]["group"]:
                continue
            names = (other.get("status") or {}).get("acceptedNames") or {}
            in_use["resources"] |= {names.get("plural"), names.get("singular"), *(names.get("shortNames") or ())}
            in_use["kinds"] |= {names.get("kind"), names.get("listKind")}
        for pool in in_use.values():
            pool.discard(None)
        return in_use

    def _condition(self, crd: Object, type_: str, status: str, reason: str, message: str) -> Object:
        known = next((c for c in _conditions(crd) if c.get("type") == type_), {})
        since = known.get("lastTransitionTime") if known.get("status") == status else None
        return {
            "lastTransitionTime": since or self.registry.now_text(),
            "message": message,
            "reason": reason,
            "status": status,
            "type": type_,
        }

    # ---- serving

    def _announce(self, crd: Object) -> None:
        kind = custom_kind(crd)
        kind.definition.terminating = "deletionTimestamp" in crd["metadata"]
        if self.registry.served.is_built_in(kind.group, kind.plural):
            return
        self.registry.adopt(kind)
        served = tuple(name for name, version in kind.definition.versions.items() if version.served)
        self.registry.served.put(kind, served)

    def _withdraw(self, crd: Object) -> None:
        kind = self._kind(crd)
        if kind is not None:
            self.registry.served.put(kind, ())
            self.registry.store.shelf(kind).end_watches()
        for record in self.registry.store.select(CRD):
            # A name that was in use may be free now.
            if record.decode()["spec"]["group"] == crd["spec"]["group"]:
                self._follow(record)

    def _kind(self, crd: Object) -> CustomKind | None:
        spec = crd["spec"]
        shelf_kind = self.registry.store.kind_of(spec["group"], spec["names"]["plural"])
        return shelf_kind if isinstance(shelf_kind, CustomKind) else None

    def _write_status(self, record: StoredObject, conditions: list[Object], names: Object) -> None:
        def change(crd: Object) -> Object:
            status = {**(crd.get("status") or {})}
            kept = [c for c in status.get("conditions") or () if c.get("type") not in {c["type"] for c in conditions}]
            status["conditions"] = [*conditions, *kept]
            status["acceptedNames"] = names
            storage = next(v["name"] for v in crd["spec"]["versions"] if v.get("storage"))
            stored = list(status.get("storedVersions") or ())
            status["storedVersions"] = stored if storage in stored else [*stored, storage]
            return {**crd, "status": status}

        self._quietly(record, change, "status")

    def _quietly(self, record: StoredObject, change: Any, subresource: str = "") -> None:
        live = self.registry.find(CRD, record.name)
        if live is None:
            return
        self._reconciling = True
        try:
            self.registry.change(live, change, subresource=subresource, write=_WRITE)
        finally:
            self._reconciling = False

    # ---- deletion

    def _clean(self, crd: Object) -> None:
        """Delete all objects of a definition that is being deleted; the last of them lets it go."""
        kind = self._kind(crd)
        if kind is None:
            self._let_go(crd["metadata"]["name"])
            return
        kind.definition.terminating = True
        for record in self.registry.store.select(kind, EVERYTHING):
            try:
                self.registry.delete(kind, record.name, record.namespace, DeleteOptions())
            except StatusError as refused:
                if refused.code != 404:
                    raise
        if not self.registry.store.shelf(kind).records:
            self._let_go(crd["metadata"]["name"])

    def _removed(self, record: StoredObject) -> None:
        kind = record.kind
        if not isinstance(kind, CustomKind):
            return
        served = self.registry.store.kind_of(kind.group, kind.plural)
        ending = isinstance(served, CustomKind) and served.definition.terminating
        if ending and not self.registry.store.shelf(kind).records:
            self._let_go(f"{kind.plural}.{kind.group}")

    def _let_go(self, name: str) -> None:
        record = self.registry.find(CRD, name)
        if record is None or FINALIZER not in (record.decode()["metadata"].get("finalizers") or ()):
            return

        def change(crd: Object) -> Object:
            crd["metadata"]["finalizers"] = [f for f in crd["metadata"]["finalizers"] if f != FINALIZER]
            return crd

        # Not quietly: when this removes the definition, what it defined is withdrawn.
        self.registry.change(record, change, write=_WRITE)


def _conditions(crd: Object) -> list[Object]:
    found: list[Object] = (crd.get("status") or {}).get("conditions") or []
    return found


def _is_true(conditions: list[Object], type_: str) -> bool:
    return any(c["type"] == type_ and c["status"] == "True" for c in conditions)
