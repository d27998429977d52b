"""Which tests of the conformance suite cannot pass on simulated nodes, and why? Patterns of names, each with its reason.

A test that no pattern names is expected to pass. A failure that is not named here is a fault of ours.
"""

from __future__ import annotations

import re

NETWORK = "needs a network between pods: addresses of simulated pods and of Services are not reachable"
DNS = "needs a DNS server in the cluster"
AGGREGATED = "aggregated API servers are not served"
PROXY = "the proxy subresource of pods, services and nodes is not served"
KERNEL = "looks at what the kernel of a container does, which simulated containers do not have"
RESIZE = "in-place resize is not served"

REASONS: tuple[tuple[str, str], ...] = (
    (r"\[sig-network\] DNS ", DNS),
    (r"\[sig-network\] Networking Granular Checks", NETWORK),
    (r"\[sig-network\] HostPort ", NETWORK),
    (r"\[sig-network\] Proxy ", PROXY),
    (r"\[sig-network\] Services should .*(session affinity|functioning NodePort|to NodePort|to ClusterIP)", NETWORK),
    (r"\[sig-network\] Services should serve ", NETWORK),
    (r"\[sig-network\] EndpointSlice should support a Service with multiple", NETWORK),
    (r"Aggregator Should be able to support", AGGREGATED),
    (r"Guestbook application", NETWORK),
    (r"Pod InPlace Resize", RESIZE),
    (r"Sysctls .*should support sysctls", KERNEL),
)
_COMPILED = tuple((re.compile(pattern), reason) for pattern, reason in REASONS)


def not_run(name: str) -> str:
    """Why a test cannot pass; empty for one that can."""
    return next((reason for pattern, reason in _COMPILED if pattern.search(name)), "")
