"""Does the published CA stay what it is? kube-root-ca.crt of a namespace always holds the certificate of this server.

A real cluster's root-ca-cert-publisher sets it right a moment later; here a write never makes it wrong.
"""

from __future__ import annotations

from typing import Final

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup

CONFIG_MAP: Final = BY_NAME["ConfigMap"]
NAME: Final = "kube-root-ca.crt"


class RootCertificate(AdmissionPlugin):
    """Keeps ca.crt."""

    kinds = frozenset((CONFIG_MAP,))

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """On every change of the ConfigMap."""
        obj = attributes.obj
        if attributes.name == NAME and attributes.operation == "UPDATE" and obj:
            obj["data"] = {**(obj.get("data") or {}), "ca.crt": lookup.ca_text}
