"""How much of each ResourceQuota is in use right now? Asked last of all admission, kept up to date by every write.

Status of quotas is for people and clients: the quota controller writes it a moment later. What is admitted here goes
by the store itself, so that writes that come at once cannot exceed a quota together, and a new quota holds from its
first moment. Work costs what a write touches; a namespace is counted when its quotas or their spec change.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.api import codec
from dragoman.api.core import Pod, ResourceQuota
from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.resource import EXTENDED_CLAIM_ANNOTATION, DeviceClass, ResourceClaim
from dragoman.api.shape import Object
from dragoman.apiserver.admission.attributes import Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import forbidden
from dragoman.apiserver.store import Selection, StoredObject
from dragoman.quota.evaluate import concerns, more, refused
from dragoman.quota.usage import ZERO, Amounts, UsageContext, is_for_extended, usage

QUOTA: Final = BY_NAME["ResourceQuota"]
POD: Final = BY_NAME["Pod"]
CLAIM: Final = BY_NAME["ResourceClaim"]
CLASS: Final = BY_NAME["DeviceClass"]
_TYPED = {kind: codec.TYPES[kind.kind] for kind in map(BY_NAME.__getitem__, ("Pod", "ResourceClaim"))} | {
    kind: codec.TYPES[kind.kind] for kind in map(BY_NAME.__getitem__, ("Service", "PersistentVolumeClaim"))
}
_CHARGED_ON_UPDATE = frozenset({CLAIM, BY_NAME["Service"], BY_NAME["PersistentVolumeClaim"]})


class QuotaLedger:
    """Usage by namespace, of those in which somebody wrote what a quota may concern."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._namespaces: dict[str, _Namespace] = {}
        self._classes: dict[str, DeviceClass] | None = None

    def admit(self, attributes: Attributes) -> None:
        """Raises Refused (403) where a quota of the namespace has not enough left, in upstream's words."""
        if not attributes.namespace or attributes.obj is None:
            return
        kind = attributes.kind
        created = attributes.operation == "CREATE"
        if not created and kind != POD and kind not in _CHARGED_ON_UPDATE:
            return
        inside = self._namespace(attributes.namespace)
        if not inside.quotas or attributes.subresource not in (("", "resize") if kind == POD else ("",)):
            return
        new = _typed(kind, attributes.obj)
        old = None if attributes.old is None else _typed(kind, attributes.old)
        if kind == POD and not created and not attributes.subresource and _terminates(new) == _terminates(old):
            return
        beside = self._around(new)
        wanted = usage(kind, new, beside)
        delta = wanted if created else more(wanted, usage(kind, old, self._around(old)))
        for quota in inside.quotas:
            counted = not created and concerns(quota, kind, old, beside)
            asked = delta if counted else wanted
            if not asked:
                continue
            why = refused(quota, self._used(inside, quota, kind), kind, new, asked, beside)
            if why is not None:
                raise forbidden(kind, attributes.name, why.text)

    def changed(self, old: StoredObject | None, new: StoredObject | None) -> None:
        """A write has happened: the record before and after it, None for none."""
        record = new or old
        assert record is not None
        if record.kind == CLASS:
            self._namespaces.clear()
            self._classes = None
            return
        inside = self._namespaces.get(record.namespace)
        if inside is None:
            return
        if record.kind == QUOTA:
            if old is None or new is None or old.decode().get("spec") != new.decode().get("spec"):
                del self._namespaces[record.namespace]
            return
        counts = inside.counts.get(record.kind)
        if counts is None:
            return
        if (record.kind == CLAIM and EXTENDED_CLAIM_ANNOTATION.encode() in record.body) or (
            record.kind == POD and b'"extendedResourceClaimStatus"' in record.body
        ):
            inside.counts.pop(CLAIM, None)  # what such a claim is charged depends on its pod, and on others
            if record.kind == CLAIM:
                return
        counts.set(record.name, self._charges(inside, new) if new is not None else ())

    def _namespace(self, name: str) -> _Namespace:
        found = self._namespaces.get(name)
        if found is None:
            records = self._lookup.select(QUOTA, Selection(namespace=name))
            quotas = tuple(codec.decode(ResourceQuota, record.decode()) for record in records)
            found = self._namespaces[name] = _Namespace(quotas)
        return found

    def _used(self, inside: _Namespace, quota: ResourceQuota, kind: Kind) -> Amounts:
        """In use by objects of this kind, and of what is charged for the same names."""
        kinds = (POD, CLAIM) if kind in (POD, CLAIM) else (kind,)
        found: Amounts = {}
        for one in kinds:
            counts = inside.counts.get(one)
            if counts is None:
                counts = inside.counts[one] = _Counts()
                for record in self._lookup.select(one, Selection(namespace=quota.metadata.namespace)):
                    counts.set(record.name, self._charges(inside, record))
            for name, amount in counts.totals.get(quota.metadata.name, {}).items():
                found[name] = found[name] + amount if name in found else amount
        return found

    def _charges(self, inside: _Namespace, record: StoredObject) -> tuple[tuple[str, Amounts], ...]:
        """(quota, what the object is charged in it)."""
        if not inside.quotas:
            return ()
        value = _typed(record.kind, record.decode() if record.kind in _TYPED else {})
        beside = self._around(value)
        amounts = usage(record.kind, value, beside)
        return tuple(
            (quota.metadata.name, {name: amount for name, amount in amounts.items() if name in quota.spec.hard})
            for quota in inside.quotas
            if concerns(quota, record.kind, value, beside)
        )

    def _around(self, value: Any) -> UsageContext:
        if not isinstance(value, ResourceClaim):
            return UsageContext()
        if self._classes is None:
            records = self._lookup.select(CLASS)
            self._classes = {record.name: codec.decode(DeviceClass, record.decode()) for record in records}
        on = self._lookup.gates.on("DRAExtendedResource")
        owner = value.metadata.controller
        if not is_for_extended(value) or owner is None:
            return UsageContext(self._classes, on)
        namespace = value.metadata.namespace
        record = self._lookup.find(POD, owner.name, namespace)
        pods = {owner.name: codec.decode(Pod, record.decode())} if record is not None else {}
        claims = [
            codec.decode(ResourceClaim, other.decode())
            for other in self._lookup.select(CLAIM, Selection(namespace=namespace))
            if EXTENDED_CLAIM_ANNOTATION.encode() in other.body
        ]
        return UsageContext(self._classes, on, pods, claims)


class _Counts:
    """What objects of one kind are charged, and the sums by quota."""

    def __init__(self) -> None:
        self.totals: dict[str, Amounts] = {}
        self._by_name: dict[str, tuple[tuple[str, Amounts], ...]] = {}

    def set(self, name: str, charges: tuple[tuple[str, Amounts], ...]) -> None:
        """The object is charged this from now on; () for nothing."""
        for quota, amounts in self._by_name.pop(name, ()):
            sums = self.totals[quota]
            for resource, amount in amounts.items():
                sums[resource] = sums[resource] - amount
        for quota, amounts in charges:
            sums = self.totals.setdefault(quota, {})
            for resource, amount in amounts.items():
                sums[resource] = sums.get(resource, ZERO) + amount
        if charges:
            self._by_name[name] = charges


class _Namespace:
    def __init__(self, quotas: tuple[ResourceQuota, ...]) -> None:
        self.quotas = quotas
        self.counts: dict[Kind, _Counts] = {}


def _typed(kind: Kind, obj: Object) -> Any:
    type_ = _TYPED.get(kind)
    return None if type_ is None else codec.decode(type_, obj)


def _terminates(pod: Any) -> bool:
    return pod.spec.active_deadline_seconds is not None
