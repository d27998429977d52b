"""Does anything act on this object here? A warning at creation where the cluster only stores it.

kubectl shows it as `Warning: ...`. The table shrinks as parts are built; what a kube-controller-manager would act on
beside `up --without controllers` is not in it.
"""

from __future__ import annotations

from dragoman.api.kinds import BY_NAME, Kind
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup

_REASONS = {
    "NetworkPolicy": "nothing restricts traffic here: pods have no network",
    "Ingress": "nothing routes traffic here",
    "IngressClass": "nothing routes traffic here",
    "APIService": "aggregated API servers are not reached here",
    "FlowSchema": "requests are not queued here",
    "PriorityLevelConfiguration": "requests are not queued here",
    "StorageVersionMigration": "objects are always stored in the newest version here",
    "CSIDriver": "volumes are not mounted here",
    "VolumeAttachment": "volumes are not mounted here",
}
REASONS: dict[Kind, str] = {BY_NAME[name]: reason for name, reason in _REASONS.items()}


class Unattended(AdmissionPlugin):
    """Warns; never refuses."""

    kinds = frozenset(REASONS)

    def validate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Once an object, at its creation."""
        if attributes.operation == "CREATE" and not attributes.subresource:
            reason = REASONS[attributes.kind]
            if not (attributes.kind.kind == "APIService" and _is_local(attributes)):
                attributes.warnings.append(f"{attributes.kind.kind} is stored and nothing acts on it: {reason}")


def _is_local(attributes: Attributes) -> bool:
    return not ((attributes.obj or {}).get("spec") or {}).get("service")
