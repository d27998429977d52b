"""Does the namespace of a new object exist, and does it take new content? Upstream's NamespaceLifecycle."""

from __future__ import annotations

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import forbidden, not_found

NAMESPACE = BY_NAME["Namespace"]


class NamespaceLifecycle(AdmissionPlugin):
    """Refuses creation in a namespace that is absent (404) or terminating (403)."""

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """First of all plugins, so that nothing is computed for what cannot be stored."""
        if attributes.operation != "CREATE" or not attributes.kind.namespaced:
            return
        namespace = attributes.namespace
        record = lookup.find(NAMESPACE, namespace)
        if record is None:
            raise not_found(NAMESPACE, namespace)
        if record.fields.get("status.phase") != "Terminating":
            return
        refused = forbidden(
            attributes.kind,
            attributes.name,
            f"unable to create new content in namespace {namespace} because it is being terminated",
        )
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        if refused.details is not None:
            refused.details["causes"] = [cause]
        raise refused
