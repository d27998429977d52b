"""May this namespace ask for admin access to devices? KEP-5018: only with its label."""

from __future__ import annotations

from typing import Any

from dragoman.api.kinds import BY_NAME
from dragoman.api.resource import ADMIN_ACCESS_LABEL
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import StatusError
from dragoman.apiserver.strategies.base import dig

_SPECS = {BY_NAME["ResourceClaim"]: ("spec",), BY_NAME["ResourceClaimTemplate"]: ("spec", "spec")}


class AdminAccess(AdmissionPlugin):
    """Refuses new claims and templates with adminAccess where the namespace is not labelled for it."""

    def validate(self, lookup: Lookup, attributes: Attributes) -> None:
        """The first request with admin access is named."""
        kind = attributes.kind
        inner = _SPECS.get(kind)
        if attributes.operation != "CREATE" or inner is None:
            return
        requests: Any = dig(attributes.obj, *inner, "devices", "requests") or []
        if not isinstance(requests, list):
            return
        at = [index for index, request in enumerate(requests) if dig(request, "exactly", "adminAccess")]
        if not at:
            return
        record = lookup.find(BY_NAME["Namespace"], attributes.namespace)
        if record is None or record.labels.get(ADMIN_ACCESS_LABEL) != "true":
            path = ".".join(inner) + f".devices.requests[{at[0]}].adminAccess"
            raise StatusError(
                403,
                "Forbidden",
                f'{kind.plural}.{kind.group} "{attributes.name}" is forbidden: {path}: Forbidden: admin access to '
                f"devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace",
                {"name": attributes.name, "group": kind.group, "kind": kind.plural},
            )
