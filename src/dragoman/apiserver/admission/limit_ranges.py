"""What do LimitRanges of the namespace add and forbid? Upstream's LimitRanger; the rules are in `quota.limits`."""

from __future__ import annotations

from dragoman.api import codec
from dragoman.api.core import LimitRange, PersistentVolumeClaim, Pod
from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import forbidden
from dragoman.apiserver.store import Selection
from dragoman.quota.limits import broken, fill

_RANGE = BY_NAME["LimitRange"]
_POD = BY_NAME["Pod"]
_VOLUME_CLAIM = BY_NAME["PersistentVolumeClaim"]


class LimitRanges(AdmissionPlugin):
    """Defaults for containers of new pods; limits for pods, containers and volume claims."""

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Containers that state nothing get the defaults."""
        if not _is_new_pod(attributes) or attributes.obj is None:
            return
        ranges = _ranges(lookup, attributes.namespace)
        if ranges:
            fill(ranges, attributes.obj)

    def validate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Raises Refused with everything that the first LimitRange forbids."""
        is_volume = attributes.kind == _VOLUME_CLAIM and not attributes.subresource
        resized = attributes.kind == _POD and attributes.subresource == "resize"
        if attributes.obj is None or not (_is_new_pod(attributes) or is_volume or resized):
            return
        if ((attributes.old or {}).get("metadata") or {}).get("deletionTimestamp"):
            return
        ranges = _ranges(lookup, attributes.namespace)
        if not ranges:
            return
        obj = attributes.obj
        value = codec.decode(PersistentVolumeClaim, obj) if is_volume else codec.decode(Pod, obj)
        why = broken(ranges, value)
        if why:
            raise forbidden(attributes.kind, attributes.name, why)


def _is_new_pod(attributes: Attributes) -> bool:
    return attributes.kind == _POD and attributes.operation == "CREATE" and not attributes.subresource


def _ranges(lookup: Lookup, namespace: str) -> list[LimitRange]:
    records = lookup.select(_RANGE, Selection(namespace=namespace))
    return [codec.decode(LimitRange, record.decode()) for record in records]
