"""Which kinds and versions does this server offer? The table of `api.kinds`, narrowed, and custom resources beside it.

Narrowed by the Kubernetes version that is played, by feature gates and by `--runtime-config`, as kube-apiserver does:
stable versions are on, beta and alpha ones off. What is not offered is 404 and in no discovery document; the process's
own parts reach it through the registry all the same. Sources: DefaultAPIResourceConfigSource of kube-apiserver and the
release notes of 1.32 to 1.37.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.kinds import BY_NAME, KINDS, Kind
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.reviews import REVIEWS
from dragoman.errors import Invalid

EVENTS_GROUP = "events.k8s.io"
METRICS_GROUP, METRICS_VERSION = "metrics.k8s.io", "v1beta1"
METRICS: dict[str, tuple[str, bool]] = {"nodes": ("NodeMetrics", False), "pods": ("PodMetrics", True)}
"""Resources of the metrics group: the kind, and whether it is namespaced."""
EVENT = BY_NAME["Event"]
OLDEST, NEWEST = 32, 37
# The minor version of Kubernetes in which a version of a group (or of one resource of it) came; "*" is the whole group.
SINCE: dict[tuple[str, str, str], int] = {
    ("resource.k8s.io", "v1", "*"): 34,
    ("resource.k8s.io", "v1beta2", "*"): 33,
    ("resource.k8s.io", "v1", "devicetaintrules"): 37,
    ("resource.k8s.io", "v1beta2", "devicetaintrules"): 36,
    ("resource.k8s.io", "v1alpha3", "devicetaintrules"): 33,
    ("resource.k8s.io", "v1alpha3", "resourcepoolstatusrequests"): 36,
    ("scheduling.k8s.io", "v1beta1", "*"): 37,
    ("scheduling.k8s.io", "v1alpha3", "*"): 37,
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies"): 36,
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings"): 36,
    ("admissionregistration.k8s.io", "v1beta1", "*"): 34,
    ("networking.k8s.io", "v1", "ipaddresses"): 33,
    ("networking.k8s.io", "v1", "servicecidrs"): 33,
    ("storage.k8s.io", "v1", "volumeattributesclasses"): 34,
    ("storagemigration.k8s.io", "v1", "*"): 37,
    ("storagemigration.k8s.io", "v1beta1", "*"): 35,
    ("certificates.k8s.io", "v1", "clustertrustbundles"): 37,
    ("certificates.k8s.io", "v1", "podcertificaterequests"): 37,
    ("certificates.k8s.io", "v1beta1", "clustertrustbundles"): 33,
    ("certificates.k8s.io", "v1beta1", "podcertificaterequests"): 35,
}
_STAGE = re.compile(r"v\d+((?:alpha|beta)\d+)?$")
# Order of groups decides what a bare name means: core events before events.k8s.io.
_ORDER = (
    *("", "apiregistration.k8s.io", "apps", EVENTS_GROUP, "authentication.k8s.io", "authorization.k8s.io"),
    *("autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io"),
    *("storage.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io"),
    *("coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io"),
    *("storagemigration.k8s.io",),
)


def stage(version: str) -> str:
    """ga, beta or alpha, by the name of a version."""
    return "beta" if "beta" in version else "alpha" if "alpha" in version else "ga"


def priority(version: str) -> tuple[int, int, int]:
    """Sorts versions as discovery does: stable before beta before alpha, newer first (version.CompareKubeAware)."""
    found = re.match(r"v(\d+)(?:(alpha|beta)(\d+))?$", version)
    if found is None:
        return 3, 0, 0
    return {None: 0, "beta": 1, "alpha": 2}[found[2]], -int(found[1]), -int(found[3] or 0)


def parse_runtime_config(text: str) -> dict[str, bool]:
    """`api/all=true,resource.k8s.io/v1beta1=true` as in --runtime-config of kube-apiserver. Raises Invalid."""
    out: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = entry.partition("=")
        if equals and value not in ("true", "false"):
            raise Invalid("--runtime-config", f"{entry!r}: the value must be true or false")
        parts = key.split("/")
        known = key in ("api/all", "api/ga", "api/beta", "api/alpha", "v1")
        if not known and not (2 <= len(parts) <= 3 and _STAGE.match(parts[1])):
            raise Invalid(
                "--runtime-config",
                f"{key!r} must be GROUP/VERSION, GROUP/VERSION/RESOURCE, api/all, api/ga, api/beta or api/alpha",
            )
        out[key] = value != "false"
    return out


class Served:
    """The kinds of one server. `generation` grows with every change, so that documents made from it can be kept."""

    def __init__(
        self,
        *,
        minor: int = NEWEST,
        gates: Gates = DEFAULTS,
        runtime_config: Mapping[str, bool] | None = None,
        everything: bool = False,
    ) -> None:
        """everything: all versions of all kinds, whatever the gates say (for a process's own parts and tests)."""
        self.minor = minor
        self.generation = 0
        self.has_metrics = False
        self._on = {"api/all": True} if everything else dict(runtime_config or {})
        self._versions: dict[tuple[str, str], tuple[str, ...]] = {}
        self._kinds: dict[tuple[str, str], Kind] = {}
        for kind in KINDS:
            if kind.gate and not everything and not gates.on(kind.gate):
                continue
            versions = tuple(v for v in kind.versions if self._offered(kind.group, v, kind.plural))
            if versions:
                self._kinds[kind.group, kind.plural] = kind
                self._versions[kind.group, kind.plural] = versions
        self._named = frozenset(self._kinds)

    def _offered(self, group: str, version: str, plural: str) -> bool:
        since = SINCE.get((group, version, plural), SINCE.get((group, version, "*"), 0))
        if since > self.minor:
            return False
        name = f"{group}/{version}" if group else version
        for key in (f"{name}/{plural}", name, f"api/{stage(version)}", "api/all"):
            if key in self._on:
                return self._on[key]
        return stage(version) == "ga"

    def serve_metrics(self) -> None:
        """Offer metrics.k8s.io: somebody measures pods."""
        self.generation += 1
        self.has_metrics = True

    # ---- custom resources

    def put(self, kind: Kind, versions: tuple[str, ...]) -> None:
        """Offer a custom resource, or its new form; nothing built in is replaced. Without versions it goes."""
        key = kind.group, kind.plural
        assert key not in self._named, "a built-in kind is not replaced"
        self.generation += 1
        if versions:
            self._kinds[key], self._versions[key] = kind, tuple(sorted(versions, key=priority))
        else:
            self._kinds.pop(key, None)
            self._versions.pop(key, None)

    def is_built_in(self, group: str, plural: str) -> bool:
        """Whether the resource is one of the table."""
        return (group, plural) in self._named

    # ---- looking up

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind of a path, None where nothing is offered there."""
        if group == EVENTS_GROUP and plural == "events":
            return EVENT if version == "v1" else None
        versions = self._versions.get((group, plural))
        return self._kinds[group, plural] if versions and version in versions else None

    def named(self, kind: str, group: str) -> Kind | None:
        """The kind of that name and group."""
        return next((k for k in self._kinds.values() if k.kind == kind and k.group == group), None)

    def __iter__(self) -> Iterator[Kind]:
        """All kinds, in a stable order."""
        return iter(self._kinds.values())

    def custom(self) -> Iterable[Kind]:
        """Custom resources only."""
        return [kind for key, kind in self._kinds.items() if key not in self._named]

    def versions(self, kind: Kind) -> tuple[str, ...]:
        """The offered versions of a kind, preferred first."""
        return self._versions.get((kind.group, kind.plural), ())

    def subresources(self, kind: Kind, version: str) -> tuple[str, ...]:
        """The subresources of a kind in one of its versions."""
        return kind.definition.version(version).subresources if isinstance(kind, CustomKind) else kind.subresources

    def kinds_of(self, group: str, version: str) -> list[Kind]:
        """The kinds that a group's version offers."""
        if group == EVENTS_GROUP:
            return [EVENT] if version == "v1" else []
        return [k for k in self._kinds.values() if k.group == group and version in self.versions(k)]

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Every group with its versions, preferred first; the core group is ""."""
        found: dict[str, set[str]] = {}
        for (group, _), versions in self._versions.items():
            found.setdefault(group, set()).update(versions)
        for group, _ in REVIEWS:
            found.setdefault(group, set()).add("v1")
        found[EVENTS_GROUP] = {"v1"}
        if self.has_metrics:
            found.setdefault(METRICS_GROUP, set()).add(METRICS_VERSION)
        rank = {group: index for index, group in enumerate(_ORDER)}
        ordered = sorted(found, key=lambda group: (rank.get(group, len(rank)), group))
        return {group: tuple(sorted(found[group], key=priority)) for group in ordered}
