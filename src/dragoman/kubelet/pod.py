"""What does a kubelet read of a pod? More than a scheduler: commands, environment, volumes. Never judges or writes."""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api.core import PodResourceClaim, PodStatus, ResourceRequirements, SchedulingGroup
from dragoman.api.meta import ObjectMeta, Ref, Value
from dragoman.values.quantity import Quantity

ANNOTATIONS = "dragoman.dev/"
FINISHED = ("Succeeded", "Failed")


class EnvVar(Value, frozen=True):
    """value, or where it comes from."""

    name: str = ""
    value: str = ""
    value_from: Any = None


class VolumeMount(Value, frozen=True):
    """A volume in the container."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class KubeletContainer(Value, frozen=True):
    """A container as the kubelet starts it; restart_policy Always makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[Any, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMount, ...] = ()
    restart_policy: str | None = None
    working_dir: str = ""
    startup_probe: Any = None
    readiness_probe: Any = None
    liveness_probe: Any = None
    lifecycle: Any = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    security_context: Any = None
    ports: tuple[Any, ...] = ()

    @property
    def is_sidecar(self) -> bool:
        """Whether it is an init container that goes on running."""
        return self.restart_policy == "Always"


class KubeletPodSpec(Value, frozen=True):
    """The kubelet's part of a spec."""

    node_name: str = ""
    containers: tuple[KubeletContainer, ...] = ()
    init_containers: tuple[KubeletContainer, ...] = ()
    ephemeral_containers: tuple[KubeletContainer, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    volumes: tuple[Any, ...] = ()
    host_network: bool = False
    service_account_name: str = ""
    readiness_gates: tuple[Any, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    resources: ResourceRequirements | None = None
    overhead: dict[str, Quantity] = {}
    hostname: str = ""
    subdomain: str = ""
    host_aliases: tuple[Any, ...] = ()
    security_context: Any = None
    enable_service_links: bool = True
    runtime_class_name: str | None = None


class KubeletPod(Value, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KubeletPodSpec = KubeletPodSpec()
    status: PodStatus = PodStatus()

    @property
    def uid(self) -> str:
        """Its identity."""
        return self.metadata.uid

    @property
    def ref(self) -> Ref:
        """For events."""
        return Ref("Pod", self.metadata.namespace, self.metadata.name, self.metadata.uid)

    @property
    def is_finished(self) -> bool:
        """Whether its phase is final."""
        return self.status.phase in FINISHED

    @property
    def is_deleted(self) -> bool:
        """Whether somebody wants it gone."""
        return self.metadata.deletion_timestamp is not None

    def annotation(self, what: str, container: str) -> tuple[str, str]:
        """(key, text) of `dragoman.dev/<what>.<container>`, else of `dragoman.dev/<what>`; ("", "") without either."""
        for key in (f"{ANNOTATIONS}{what}.{container}", f"{ANNOTATIONS}{what}"):
            if key in self.metadata.annotations:
                return key, self.metadata.annotations[key]
        return "", ""


class Wanted(msgspec.Struct, frozen=True):
    """A claim that a pod needs: the entry ("" for extended resources), the claim, and whether it was generated."""

    entry: str
    claim: str
    generated: bool


class NotResolved(Exception):
    """A claim entry that names no claim yet."""


def wanted_claims(pod: KubeletPod) -> list[Wanted]:
    """Claims of the pod in order, that for extended resources last. Raises NotResolved."""
    wanted = []
    made = {status.name: status for status in pod.status.resource_claim_statuses}
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name:
            wanted.append(Wanted(entry.name, entry.resource_claim_name, generated=False))
        elif entry.resource_claim_template_name:
            if entry.name not in made:
                raise NotResolved(
                    f'pod "{name}": ResourceClaim not created yet: pod claim "{entry.name}", '
                    f'template "{entry.resource_claim_template_name}"'
                )
            claim = made[entry.name].resource_claim_name
            if claim:
                wanted.append(Wanted(entry.name, claim, generated=True))
        else:
            raise NotResolved(f'pod "{name}": pod claim "{entry.name}" names neither a claim nor a template')
    extended = pod.status.extended_resource_claim_status
    if extended and extended.resource_claim_name:
        wanted.append(Wanted("", extended.resource_claim_name, generated=True))
    return wanted


def requests_of(pod: KubeletPod, container: KubeletContainer) -> list[tuple[str, str]]:
    """(claim name, request or "") that the container may use. Raises NotResolved."""
    by_entry = {wanted.entry: wanted.claim for wanted in wanted_claims(pod)}
    found = [(by_entry[named.name], named.request) for named in container.resources.claims if named.name in by_entry]
    extended = pod.status.extended_resource_claim_status
    for mapping in extended.request_mappings if extended else ():
        asked = {**container.resources.limits, **container.resources.requests}
        if mapping.container_name == container.name and mapping.resource_name in asked:
            assert extended is not None
            found.append((extended.resource_claim_name, mapping.request_name))
    return list(dict.fromkeys(found))
