"""Which StorageClass does a claim get that names none? The default one: upstream's DefaultStorageClass."""

from __future__ import annotations

from dragoman.api import codec
from dragoman.api.core import StorageClass
from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.snapshot.volumes import CLASS_ANNOTATION, default_class

_CLAIM, _CLASS = BY_NAME["PersistentVolumeClaim"], BY_NAME["StorageClass"]


class DefaultStorageClass(AdmissionPlugin):
    """Completes new PersistentVolumeClaims that name no class; "" asks for none and stays."""

    kinds = frozenset((_CLAIM,))

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Never refuses."""
        obj = attributes.obj
        if attributes.operation != "CREATE" or attributes.subresource or not obj:
            return
        spec, meta = obj.get("spec"), obj.get("metadata") or {}
        if not isinstance(spec, dict) or spec.get("storageClassName") is not None:
            return
        if CLASS_ANNOTATION in (meta.get("annotations") or {}):
            return
        found = default_class(codec.decode(StorageClass, record.decode()) for record in lookup.select(_CLASS))
        if found is not None:
            spec["storageClassName"] = found.metadata.name
