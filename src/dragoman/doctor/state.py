"""What does doctor examine? All that was seen of one cluster, live or in a dump, as one value with indexes.

Objects are JSON shaped, of kinds we know in the stored version. Whether a kind was seen at all is part of it: nothing
of a kind that may not be listed means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from dragoman.api.files import Document, Scan
from dragoman.api.gates import DEFAULTS, GATES, Gates, gates_with
from dragoman.api.kinds import KINDS, Kind
from dragoman.api.shape import Object, dig, text
from dragoman.inspect.inventory import Inventory, inventory
from dragoman.known_drivers import NONE_KNOWN, KnownDrivers
from dragoman.lint.finding import Finding
from dragoman.lint.linter import LintTarget
from dragoman.lint.linter import lint as linted
from dragoman.snapshot.change import HELD, Snapshot

T = TypeVar("T")

FACTS = "ClusterFacts"
"""Kind of the document with which a record says what no object does."""
HELD_KINDS = tuple(sorted(HELD - {"CronJob", "ReplicationController"}))
RIGHTS = ("ClusterRole", "ClusterRoleBinding", "ValidatingWebhookConfiguration")
"""Kinds that are listed: those that decisions read, and who may do what."""
NAMED = (("ConfigMap", "kube-system", "kubelet-config"), ("ConfigMap", "kube-system", "kubeadm-config"))
"""Objects that are read by name; kubeadm writes them."""
CUSTOM = (
    Kind("ClusterPolicy", "clusterpolicies", "nvidia.com", ("v1",), False),
    Kind("GPUCluster", "gpuclusters", "nvidia.com", ("v1alpha1",), False),
    Kind("ComputeDomain", "computedomains", "resource.nvidia.com", ("v1beta1",), True),
    Kind("ClusterVersion", "clusterversions", "config.openshift.io", ("v1",), False),
)
"""Kinds of others that are listed where a server has them."""
GateCheck = Callable[[Mapping[str, bool], str], object]
"""Raises Invalid for feature gates of a driver that cannot be on together."""


class ServerFacts(msgspec.Struct, frozen=True):
    """What the API server says of itself. version: gitVersion, "" if unknown. api: newest served version of
    resource.k8s.io. gates: `kubernetes_feature_enabled`, None if its metrics may not be read. kinds: all that were
    listed; None for files, in which only what is there is known."""

    version: str = ""
    api: str = ""
    gates: Mapping[str, bool] | None = None
    kinds: frozenset[str] | None = None
    hidden: frozenset[str] = frozenset()


class ExaminedCluster(msgspec.Struct, frozen=True):
    """documents: as read. subject: what it is, for people. gate_checks: by the name of a driver."""

    subject: str
    documents: tuple[Document, ...]
    snapshot: Snapshot
    now: datetime
    server: ServerFacts = ServerFacts()
    known: KnownDrivers = NONE_KNOWN
    gate_checks: Mapping[str, GateCheck] = {}
    memory: dict[Hashable, Any] = {}

    # ---- what is there

    def all(self, kind: str) -> list[Object]:
        """The objects of a kind, by namespace and name."""
        return self.by_kind.get(kind, [])

    @property
    def by_kind(self) -> dict[str, list[Object]]:
        """The objects of each kind."""

        def collected() -> dict[str, list[Object]]:
            found: dict[str, list[Object]] = {}
            for document in self.documents:
                found.setdefault(document.kind_name, []).append(document.object)
            for entries in found.values():
                entries.sort(key=lambda obj: (text(dig(obj, "metadata"), "namespace"), name_of(obj)))
            return found

        return self.once("by kind", collected)

    def knows(self, kind: str) -> bool:
        """Whether all objects of a kind were seen; of files: whether there is one."""
        if self.server.kinds is not None:
            return kind in self.server.kinds
        return bool(self.all(kind))

    def why_not(self, kinds: Sequence[str]) -> str:
        """Why kinds are not known."""
        hidden = [kind for kind in kinds if kind in self.server.hidden]
        names = ", ".join(plural_of(kind) for kind in hidden or kinds)
        return f"{names} may not be listed" if hidden else f"no {names} in what was read"

    # ---- what others find in it

    @property
    def gates(self) -> Gates:
        """The API server's gates; Kubernetes' defaults where they are not known."""
        if self.server.gates is None:
            return DEFAULTS
        return gates_with({name: on for name, on in self.server.gates.items() if name in GATES})[0]

    @property
    def devices(self) -> Inventory:
        """What `dragoman devices` counts, by class."""
        known = self.knows("Node")
        return self.once("inventory", lambda: inventory(self.snapshot, ("class",), self.now, nodes_known=known))

    @property
    def lint(self) -> list[Finding]:
        """What `dragoman lint` finds in the objects."""

        def found() -> list[Finding]:
            target = LintTarget(gates=self.gates, known=self.known)
            return linted(
                Scan(list(self.documents), [], []), target, self.documents if self.server.kinds is not None else ()
            )

        return self.once("lint", found)

    def once(self, question: Hashable, answer: Callable[[], T]) -> T:
        """The answer to a question, found once."""
        if question not in self.memory:
            self.memory[question] = answer()
        found: T = self.memory[question]
        return found


def name_of(obj: Object) -> str:
    """metadata.name."""
    return text(dig(obj, "metadata"), "name")


def namespace_of(obj: Object) -> str:
    """metadata.namespace."""
    return text(dig(obj, "metadata"), "namespace")


def subject_of(kind: str, obj: Object) -> str:
    """`Node gpu-0`, `Pod default/train`."""
    return f"{kind} {'/'.join(filter(None, (namespace_of(obj), name_of(obj))))}"


def labels_of(obj: Object) -> Object:
    """metadata.labels."""
    return dig(obj, "metadata", "labels")


def plural_of(kind: str) -> str:
    """The resource's plural name."""
    return next((entry.plural for entry in (*KINDS, *CUSTOM) if entry.kind == kind), kind)


def words(values: Iterable[str], limit: int = 5) -> str:
    """`a, b and 3 more`."""
    every = list(values)
    shown = ", ".join(every[:limit])
    return f"{shown} and {len(every) - limit} more" if len(every) > limit else shown


def facts_of(document: Object) -> ServerFacts:
    """The facts that a record's ClusterFacts says; those of no record for other documents."""
    server = dig(document, "server")
    gates = server.get("featureGates")
    kinds = server.get("kinds")
    return ServerFacts(
        version=text(server, "version"),
        api=text(server, "resourceAPI"),
        gates={str(name): on is True for name, on in gates.items()} if isinstance(gates, dict) else None,
        kinds=frozenset(map(str, kinds)) if isinstance(kinds, list) else None,
        hidden=frozenset(map(str, server.get("hidden") or ())),
    )


def facts_as_json(facts: ServerFacts) -> Object:
    """The body of a ClusterFacts document; `facts_of` reads it."""
    return {
        "server": {
            "version": facts.version,
            "resourceAPI": facts.api,
            "featureGates": dict(facts.gates) if facts.gates is not None else None,
            "kinds": sorted(facts.kinds or ()),
            "hidden": sorted(facts.hidden),
        }
    }
