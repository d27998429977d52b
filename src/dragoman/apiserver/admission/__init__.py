"""May this write happen, and what does the cluster add to it? The chain that every write passes, in upstream's order.

One table, `PLUGINS`: what looks at other objects to admit one. A plugin mutates, validates, or both; all mutate in
the table's order, then all validate. What stands outside the process (webhooks) or is stored as policy joins as
`External` of the registry and is asked after the plugins of each phase; ResourceQuota (`apiserver.quota`, which also
follows every write) counts last, when nothing else can refuse any more.

    defaults -> mutating plugins -> mutating policies, webhooks -> strategy -> validation
             -> validating plugins -> validating policies, webhooks -> quota -> store

What concerns only the object itself stands in its strategy and in `api.validate`.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.api.kinds import Kind
from dragoman.apiserver.admission.accounts import ServiceAccounts
from dragoman.apiserver.admission.admin_access import AdminAccess
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes, External, Operation
from dragoman.apiserver.admission.lifecycle import NamespaceLifecycle
from dragoman.apiserver.admission.limit_ranges import LimitRanges
from dragoman.apiserver.admission.priorities import Priorities
from dragoman.apiserver.admission.restriction import NodeRestriction
from dragoman.apiserver.admission.rights import ClaimStatus, Escalation, Signers
from dragoman.apiserver.admission.root_ca import RootCertificate
from dragoman.apiserver.admission.runtime_classes import RuntimeClasses
from dragoman.apiserver.admission.storage_classes import DefaultStorageClass
from dragoman.apiserver.admission.unattended import Unattended
from dragoman.apiserver.lookup import Lookup

__all__ = ["PLUGINS", "AdmissionPlugin", "Attributes", "External", "Operation", "mutate", "validate"]

PLUGINS: tuple[AdmissionPlugin, ...] = (
    NamespaceLifecycle(),
    NodeRestriction(),
    RootCertificate(),
    ServiceAccounts(),
    Priorities(),
    LimitRanges(),
    RuntimeClasses(),
    DefaultStorageClass(),
    AdminAccess(),
    Escalation(),
    ClaimStatus(),
    Signers(),
    Unattended(),
)
"""In the order in which they are asked."""


def mutate(lookup: Lookup, attributes: Attributes) -> None:
    """Let every plugin change `attributes.obj`. Raises Refused."""
    for ask in _asked(attributes.kind)[0]:
        ask(lookup, attributes)


def validate(lookup: Lookup, attributes: Attributes) -> None:
    """Let every plugin judge what will be stored. Raises Refused."""
    for ask in _asked(attributes.kind)[1]:
        ask(lookup, attributes)


_Asks = tuple[Callable[[Lookup, Attributes], None], ...]
_asks: dict[tuple[str, str], tuple[_Asks, _Asks]] = {}


def _asked(kind: Kind) -> tuple[_Asks, _Asks]:
    """The plugins that have something to say about a kind, in the two phases: most have not, and cost nothing."""
    known = _asks.get((kind.group, kind.plural))
    if known is None:
        concerned = [plugin for plugin in PLUGINS if plugin.kinds is None or kind in plugin.kinds]
        known = (
            tuple(p.mutate for p in concerned if type(p).mutate is not AdmissionPlugin.mutate),
            tuple(p.validate for p in concerned if type(p).validate is not AdmissionPlugin.validate),
        )
        _asks[kind.group, kind.plural] = known
    return known
