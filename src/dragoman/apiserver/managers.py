"""Who manages which fields? metadata.managedFields read, changed and written.

A manager is known by name, operation and subresource, updaters by apiVersion too. Fields stay in their JSON form
(see `fieldset`). Entries are kept in upstream's order; more than ten updaters are merged into one. Never changes the
list it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dragoman.apiserver.fieldset import Fields, difference, union

APPLY = "Apply"
UPDATE = "Update"

# Of updaters only, and where they go (upstream: MaxUpdateManagers, ancient-changes).
MAX_UPDATERS = 10
_ANCIENT = "ancient-changes"


class Manager(NamedTuple):
    """An owner of fields; api_version is empty for appliers, who are the same in every version."""

    name: str
    operation: str
    subresource: str
    api_version: str

    def __str__(self) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


class _Share(NamedTuple):
    """What one manager owns, since when."""

    api_version: str
    time: str
    fields: Fields


def manager_of(name: str, operation: str, subresource: str, api_version: str) -> Manager:
    """The identity of a manager; apiVersion counts for updaters only."""
    return Manager(name or "unknown", operation, subresource, api_version if operation == UPDATE else "")


class Managers:
    """The managers of one object. Changes itself, never the entries it was read from."""

    def __init__(self, entries: Any) -> None:
        self._shares: dict[Manager, _Share] = {}
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict) or entry.get("operation") not in (APPLY, UPDATE):
                continue
            fields = entry.get("fieldsV1")
            if not isinstance(fields, dict) or not fields:
                continue
            api_version = str(entry.get("apiVersion") or "")
            key = manager_of(
                str(entry.get("manager") or ""), entry["operation"], str(entry.get("subresource") or ""), api_version
            )
            known = self._shares.get(key)
            merged = union(known.fields, fields) if known else fields
            self._shares[key] = _Share(api_version, str(entry.get("time") or ""), merged)

    def __bool__(self) -> bool:
        return bool(self._shares)

    def __iter__(self) -> Iterator[tuple[Manager, Fields]]:
        return ((manager, share.fields) for manager, share in self._shares.items())

    def fields(self, manager: Manager) -> Fields:
        """What a manager owns, {} for nothing."""
        share = self._shares.get(manager)
        return share.fields if share else {}

    def set(self, manager: Manager, fields: Fields, api_version: str, time: str | None) -> None:
        """Give a manager exactly these fields; without any it is gone. time None keeps the time it had."""
        known = self._shares.get(manager)
        if fields:
            kept = known.time if known and time is None else time or ""
            self._shares[manager] = _Share(api_version, kept, fields)
        elif known:
            del self._shares[manager]

    def release(self, fields: Fields, *, but: Manager) -> None:
        """Everybody but one gives these fields up."""
        if not fields:
            return
        for manager, share in list(self._shares.items()):
            if manager != but:
                left = difference(share.fields, fields)
                if left != share.fields:
                    self.set(manager, left, share.api_version, None)

    def cap(self) -> None:
        """Merge the oldest updaters of each version into one while there are more than MAX_UPDATERS."""
        updaters = sorted(
            (share.time, manager) for manager, share in self._shares.items() if manager.operation == UPDATE
        )
        excess = len(updaters) - MAX_UPDATERS
        if excess <= 0:
            return
        for _, manager in updaters[: excess + 1]:
            share = self._shares.pop(manager)
            ancient = manager_of(_ANCIENT, UPDATE, "", share.api_version)
            known = self._shares.get(ancient)
            if known:
                share = _Share(share.api_version, max(share.time, known.time), union(known.fields, share.fields))
            self._shares[ancient] = share

    def entries(self) -> list[dict[str, Any]]:
        """metadata.managedFields: appliers first, then by time and name."""
        out = []
        for manager, share in sorted(self._shares.items(), key=_order):
            entry: dict[str, Any] = {
                "manager": manager.name,
                "operation": manager.operation,
                "apiVersion": share.api_version,
            }
            if share.time:
                entry["time"] = share.time
            entry["fieldsType"] = "FieldsV1"
            entry["fieldsV1"] = share.fields
            if manager.subresource:
                entry["subresource"] = manager.subresource
            out.append(entry)
        return out


def _order(item: tuple[Manager, _Share]) -> tuple[str, str, str, str, str]:
    manager, share = item
    return manager.operation, share.time, manager.name, share.api_version, manager.subresource


def is_reset(entries: Any) -> bool:
    """Whether a client asks to forget all managers: [] or [{}]."""
    return isinstance(entries, list) and (not entries or entries == [{}])
