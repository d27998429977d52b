"""What are ComputeDomains and the objects made for them called, and how do they look to those who read them?

Names and shapes as in dra-driver-nvidia-gpu 0.5 (api/nvidia.com/resource/v1beta1, templates/).
"""

from __future__ import annotations

import msgspec

from dragoman.api.kinds import Kind, custom_name, kind_of
from dragoman.api.meta import ObjectMeta, Value

GROUP, VERSION = "resource.nvidia.com", "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
DOMAIN: Kind = kind_of(custom_name("ComputeDomain", GROUP, VERSION, "computedomains", namespaced=True))
CLIQUE: Kind = kind_of(custom_name("ComputeDomainClique", GROUP, VERSION, "computedomaincliques", namespaced=True))

LABEL = f"{GROUP}/computeDomain"
"""Of created objects, and of nodes that take part: the uid of the ComputeDomain."""
FINALIZER = LABEL
TARGET = f"{GROUP}/computeDomainTarget"
CLIQUE_LABEL = f"{GROUP}/computeDomain.cliqueID"
"""Of daemon pods and of cliques; empty on a pod of a node without NVLink fabric."""
NODE_CLIQUE = "nvidia.com/gpu.clique"
TOPOLOGY_PREFERRED = "dragoman.dev/topology-preferred"
"""Annotation by which the scheduler keeps a gang together (schedule.topology)."""

NAMESPACE = "nvidia-dra-driver-gpu"
CONTROLLER_ACCOUNT = "compute-domain-controller-service-account"
DAEMON_ACCOUNT = "compute-domain-daemon-service-account"
PLUGIN_ACCOUNT = "compute-domain-kubelet-plugin-service-account"
DAEMON_CLASS = "compute-domain-daemon.nvidia.com"
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
CHANNELS = 2048
CHANNEL, DAEMON = "channel-0", "daemon-0"
MAX_NODES = 18
"""Nodes of an IMEX domain: trays of an NVL72 rack."""
READY, NOT_READY = "Ready", "NotReady"
DNS_PREFIX = "compute-domain-daemon-"


def daemon_name(uid: str) -> str:
    """Of a domain's DaemonSet, and of the claim template of its pods."""
    return f"computedomain-daemon-{uid}"


def clique_name(uid: str, clique: str) -> str:
    """Of the object of one clique of a domain."""
    return f"{uid}.{clique}"


def dns_name(index: int) -> str:
    """Of the daemon with that index."""
    return f"{DNS_PREFIX}{index:04d}"


class DomainNode(Value, frozen=True):
    """An entry of status.nodes; index -1 without fabric."""

    name: str = ""
    ip_address: str = ""
    clique_id: str = msgspec.field(name="cliqueID", default="")
    index: int = 0
    status: str = NOT_READY

    def body(self) -> dict[str, object]:
        """As JSON, with empty values, which say something here."""
        return {
            "name": self.name,
            "ipAddress": self.ip_address,
            "cliqueID": self.clique_id,
            "index": self.index,
            "status": self.status,
        }


class TemplateName(Value, frozen=True):
    """spec.channel.resourceClaimTemplate."""

    name: str = ""


class Channel(Value, frozen=True):
    """spec.channel."""

    resource_claim_template: TemplateName = TemplateName()
    allocation_mode: str = "Single"


class DomainSpec(Value, frozen=True):
    """spec."""

    num_nodes: int = 0
    channel: Channel = Channel()


class DomainStatus(Value, frozen=True):
    """status; the status within is empty while nobody has written it."""

    status: str = ""
    nodes: tuple[DomainNode, ...] = ()


class ComputeDomain(Value, frozen=True):
    """A ComputeDomain."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DomainSpec = DomainSpec()
    status: DomainStatus = DomainStatus()

    @property
    def is_ending(self) -> bool:
        """Whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None

    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


class CliqueDaemon(Value, frozen=True):
    """An entry of a clique's daemons."""

    node_name: str = ""
    ip_address: str = ""
    clique_id: str = msgspec.field(name="cliqueID", default="")
    index: int = 0
    status: str = NOT_READY

    def body(self) -> dict[str, object]:
        """As JSON."""
        return {
            "nodeName": self.node_name,
            "ipAddress": self.ip_address,
            "cliqueID": self.clique_id,
            "index": self.index,
            "status": self.status,
        }


class Clique(Value, frozen=True):
    """A ComputeDomainClique: who takes part on one NVLink partition. It has neither spec nor status."""

    metadata: ObjectMeta = ObjectMeta()
    daemons: tuple[CliqueDaemon, ...] = ()

    @property
    def domain(self) -> str:
        """The domain's uid."""
        return self.metadata.labels.get(LABEL, "")
