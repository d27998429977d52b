"""What does a pod need of a node, besides devices? Exact integers, nano-units.

What must fit is `snapshot.usage.pod_requests`; this module adds which names are extended resources and what one
container asks. Never looks at a node.
"""

from __future__ import annotations

from dragoman.api.core import Container
from dragoman.api.resource import IMPLICIT_EXTENDED_PREFIX
from dragoman.snapshot.usage import stated

ResourceAmounts = dict[str, int]
"""Resource name to nano-units."""

NANOS = 1_000_000_000


def is_extended(resource: str) -> bool:
    """Whether the name is an extended resource's: qualified, and not kubernetes.io's own."""
    domain, slash, _ = resource.partition("/")
    if not slash or resource.startswith("requests."):
        return False
    if resource.startswith(IMPLICIT_EXTENDED_PREFIX):
        return True
    return not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io"))


def container_requests(container: Container) -> ResourceAmounts:
    """The requests of one container."""
    return stated(container.resources)


def is_sidecar(container: Container) -> bool:
    """An init container that goes on running (KEP-753)."""
    return container.restart_policy == "Always"
