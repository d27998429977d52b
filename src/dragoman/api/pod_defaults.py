"""Which fields of a pod, its containers and volumes does the API server fill in?

The door is `api.defaults`. Changes the dicts it is given, which are the caller's own copy.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.shape import Object, dig, fill, objects, sub
from dragoman.values.quantity import Quantity

_DEFAULT_MODE = 0o644
_VOLUME_NAME = "name"
_MODED_VOLUMES = ("secret", "configMap", "downwardAPI", "projected")


def default_pod(pod: Object) -> None:
    """A pod's defaults: those of its spec, and limits as requests where there are none."""
    if not isinstance(pod.setdefault("spec", {}), dict):
        return
    spec = pod["spec"]
    default_pod_spec(spec)
    _fill_pointer(spec, "enableServiceLinks", True)
    for resources in _all_resources(spec):
        limits = dig(resources, "limits")
        if limits and resources.get("requests") is None:
            resources["requests"] = {}
        requests = sub(resources, "requests")
        if requests is not None:
            for name, value in limits.items():
                requests.setdefault(name, value)


def default_pod_spec(spec: Object) -> None:
    """What pods and pod templates have in common."""
    fill(spec, "dnsPolicy", "ClusterFirst")
    fill(spec, "restartPolicy", "Always")
    fill(spec, "schedulerName", "default-scheduler")
    _fill_pointer(spec, "securityContext", {})
    _fill_pointer(spec, "terminationGracePeriodSeconds", 30)
    container_quantities(dig(spec, "resources"))
    canonical_each(spec, "overhead")
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in objects(spec, field):
            _container(container, host_network=spec.get("hostNetwork") is True)
    for volume in objects(spec, "volumes"):
        _volume(volume)


def _container(container: Object, *, host_network: bool) -> None:
    image = container.get("image", "")
    if isinstance(image, str):
        fill(container, "imagePullPolicy", "Always" if image and _is_latest(image) else "IfNotPresent")
    fill(container, "terminationMessagePath", "/dev/termination-log")
    fill(container, "terminationMessagePolicy", "File")
    _fill_pointer(container, "resources", {})
    container_quantities(dig(container, "resources"))
    for port in objects(container, "ports"):
        fill(port, "protocol", "TCP")
        if host_network and port.get("containerPort") is not None:
            fill(port, "hostPort", port["containerPort"])
    for variable in objects(container, "env"):
        if (field_ref := sub(dig(variable, "valueFrom"), "fieldRef")) is not None:
            fill(field_ref, "apiVersion", "v1")
        if (resource_ref := sub(dig(variable, "valueFrom"), "resourceFieldRef")) is not None:
            _fill_pointer(resource_ref, "divisor", "0")
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := sub(container, field)) is not None:
            _probe(probe)
    for hook in ("postStart", "preStop"):
        _http_get(dig(container, "lifecycle", hook))


def _is_latest(image: str) -> bool:
    """Whether the image is named without digest and without a tag, or with the tag `latest`."""
    if "@" in image:
        return False
    _, _, tag = image.rsplit("/", 1)[-1].partition(":")
    return tag in ("", "latest")


def _probe(probe: Object) -> None:
    fill(probe, "timeoutSeconds", 1)
    fill(probe, "periodSeconds", 10)
    fill(probe, "successThreshold", 1)
    fill(probe, "failureThreshold", 3)
    _http_get(probe)
    if (grpc := sub(probe, "grpc")) is not None:
        _fill_pointer(grpc, "service", "")


def _http_get(holder: Object) -> None:
    if (action := sub(holder, "httpGet")) is not None:
        fill(action, "path", "/")
        fill(action, "scheme", "HTTP")


def _volume(volume: Object) -> None:
    if not any(value is not None for field, value in volume.items() if field != _VOLUME_NAME):
        volume["emptyDir"] = {}
    for field in _MODED_VOLUMES:
        if (source := sub(volume, field)) is not None:
            _fill_pointer(source, "defaultMode", _DEFAULT_MODE)
    if (host_path := sub(volume, "hostPath")) is not None:
        _fill_pointer(host_path, "type", "")
    if (empty_dir := sub(volume, "emptyDir")) is not None:
        canonical(empty_dir, "sizeLimit")
    for source in [volume, *objects(dig(volume, "projected"), "sources")]:
        for item in objects(dig(source, "downwardAPI"), "items"):
            if (field_ref := sub(item, "fieldRef")) is not None:
                fill(field_ref, "apiVersion", "v1")
        if (token := sub(source, "serviceAccountToken")) is not None:
            _fill_pointer(token, "expirationSeconds", 3600)
    if (claim_spec := sub(dig(volume, "ephemeral", "volumeClaimTemplate"), "spec")) is not None:
        container_quantities(dig(claim_spec, "resources"))
        _fill_pointer(claim_spec, "volumeMode", "Filesystem")


def _all_resources(spec: Object) -> list[Object]:
    containers = [*objects(spec, "initContainers"), *objects(spec, "containers")]
    return [*(dig(container, "resources") for container in containers), dig(spec, "resources")]


# ---- quantities


def container_quantities(resources: Object) -> None:
    """Canonical text for requests and limits, no finer than thousandths (rounded up), as the API server keeps them."""
    for field in ("requests", "limits"):
        canonical_each(resources, field)


def canonical_each(holder: Object, field: str) -> None:
    """Canonical text for every quantity of a map."""
    if (quantities := sub(holder, field)) is not None:
        for name in quantities:
            canonical(quantities, name)


def canonical(holder: Object, field: Any) -> None:
    """Canonical text for one quantity; what is none stays for validation."""
    raw = holder.get(field)
    if raw is None or isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return
    try:
        holder[field] = str(Quantity.parse(raw))
    except ValueError:
        return


def _fill_pointer(holder: Object, field: str, value: Any) -> None:
    if holder.get(field) is None:
        holder[field] = value
