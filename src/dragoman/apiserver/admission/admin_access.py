"""May this namespace ask for admin access to devices? KEP-5018: only with its label."""

from __future__ import annotations

from dragoman.api.admission import admin_access_refused
from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import forbidden


class AdminAccess(AdmissionPlugin):
    """Refuses new claims and templates with adminAccess where the namespace is not labelled for it."""

    kinds = frozenset((BY_NAME["ResourceClaim"], BY_NAME["ResourceClaimTemplate"]))

    def validate(self, lookup: Lookup, attributes: Attributes) -> None:
        """The first request with admin access is named."""
        kind = attributes.kind
        if attributes.operation != "CREATE" or attributes.obj is None:
            return
        record = lookup.find(BY_NAME["Namespace"], attributes.namespace)
        path, why = admin_access_refused(kind.kind, attributes.obj, record.labels if record is not None else None)
        if path:
            raise forbidden(kind, attributes.name, f"{path}: Forbidden: {why}")
