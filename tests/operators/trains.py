"""An operator written with kopf: a Train runs as so many ConfigMaps ("cars"). Started by `kopf run`, on its own or in a
pod, where TRAINS_SERVICE names the Service of its webhooks and TRAINS_CERTS the folder of their certificate."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import kopf
from kubernetes import client, config

GROUP = "operators.example.com"
try:
    config.load_incluster_config()
except config.ConfigException:
    config.load_kube_config()
core = client.CoreV1Api()


async def serve(review: Any) -> AsyncIterator[Any]:
    """kopf's server, reached through a Service."""
    certs, port = Path(os.environ["TRAINS_CERTS"]), int(os.environ["TRAINS_PORT"])
    server = kopf.WebhookServer(
        addr="0.0.0.0", port=port, certfile=str(certs / "tls.crt"), pkeyfile=str(certs / "tls.key")
    )
    namespace, name = os.environ["TRAINS_SERVICE"].split("/")
    async for _ in server(review):
        service = kopf.WebhookClientConfigService(namespace=namespace, name=name, port=443, path="")
        ca = base64.b64encode((certs / "tls.crt").read_bytes()).decode()
        yield kopf.WebhookClientConfig(service=service, caBundle=ca)


@kopf.on.startup()
def begin(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    if os.environ.get("TRAINS_SERVICE"):
        settings.admission.server = serve
        settings.admission.managed = f"trains.{GROUP}"


if os.environ.get("TRAINS_SERVICE"):

    @kopf.on.validate(GROUP, "v1", "trains", id="cars")
    def validate(spec: Any, **_: Any) -> None:
        if spec.get("cars", 0) > 9:
            raise kopf.AdmissionError("a train has at most 9 cars", code=422)

    @kopf.on.mutate(GROUP, "v1", "trains", id="label")
    def mutate(patch: Any, **_: Any) -> None:
        patch.setdefault("metadata", {}).setdefault("labels", {})["checked"] = "yes"


@kopf.on.create(GROUP, "v1", "trains")
@kopf.on.update(GROUP, "v1", "trains", field="spec.cars")
def couple(spec: Any, name: str, namespace: str, patch: Any, **_: Any) -> dict[str, Any]:
    """As many ConfigMaps as cars."""
    wanted = {f"{name}-car-{number}" for number in range(spec.get("cars", 0))}
    here = {
        item.metadata.name for item in core.list_namespaced_config_map(namespace, label_selector=f"train={name}").items
    }
    for car in sorted(wanted - here):
        body: dict[str, Any] = {"metadata": {"name": car, "labels": {"train": name}}}
        kopf.adopt(body)
        core.create_namespaced_config_map(namespace, body)
    for car in sorted(here - wanted):
        core.delete_namespaced_config_map(car, namespace)
    patch.status["cars"] = len(wanted)
    return {"version": os.environ.get("TRAINS_VERSION", "")}


@kopf.on.delete(GROUP, "v1", "trains")
def uncouple(name: str, namespace: str, **_: Any) -> None:
    """Left for whoever looks."""
    core.create_namespaced_config_map(namespace, {"metadata": {"name": f"{name}-arrived"}})
