"""Under which service account does a pod run? Upstream's ServiceAccount admission."""

from __future__ import annotations

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import forbidden

SERVICE_ACCOUNT = BY_NAME["ServiceAccount"]


class ServiceAccounts(AdmissionPlugin):
    """Names the account of a new pod, which must exist."""

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """`default` where the pod names none."""
        pod = attributes.obj
        if attributes.operation != "CREATE" or attributes.kind != BY_NAME["Pod"] or attributes.subresource or not pod:
            return
        spec = pod.setdefault("spec", {})
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        if lookup.find(SERVICE_ACCOUNT, name, attributes.namespace) is None:
            raise forbidden(
                attributes.kind,
                attributes.name,
                f'error looking up service account {attributes.namespace}/{name}: serviceaccount "{name}" not found',
            )
