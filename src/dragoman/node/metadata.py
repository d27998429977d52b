"""What may a container read about its devices? Files with attributes, mounted by CDI (KEP-5304).

Written for every (claim, request) that was prepared, removed with it. It decides nothing about the content.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.resource import POD_CLAIM_ANNOTATION, ResourceClaim
from dragoman.errors import Invalid, NotFound
from dragoman.node import cdi
from dragoman.node.driver import ClaimRef, DeviceMetadata, PreparedDevice
from dragoman.node.files import write_atomically

API_VERSION = "metadata.resource.k8s.io/v1alpha1"
KIND = "DeviceMetadata"
IN_CONTAINER = "/var/run/kubernetes.io/dra-device-attributes"
CDI_VERSION = "0.5.0"


class MetadataFiles:
    """The files of one driver under its data folder."""

    def __init__(self, driver: str, data_dir: Path, cdi_dir: Path) -> None:
        self.driver = driver
        self.folder = data_dir / "dra-device-metadata"
        self.cdi_dir = cdi_dir

    def write(self, ref: ClaimRef, claim: ResourceClaim, facts: Sequence[DeviceMetadata]) -> dict[str, str]:
        """Files and CDI specs of a claim; the CDI id by top-level request. Raises OSError, Invalid."""
        pod_claim = claim.metadata.annotations.get(POD_CLAIM_ANNOTATION, "")
        ids = {}
        for request, some in _by_request(facts).items():
            path = self._path(ref, request)
            if not path.exists():
                self._write_file(path, self._content(ref, pod_claim, some, generation=1))
            where = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{ref.name}"
            inside = f"{IN_CONTAINER}/{where}/{request}/{self.driver}-metadata.json"
            ids[request] = self._write_spec(ref, request, path, inside)
        return ids

    def update(self, ref: ClaimRef, request: str, facts: Sequence[DeviceMetadata]) -> None:
        """Replace what a request's file says, in place (a bind mount keeps working). Raises NotFound."""
        path = self._path(ref, request)
        if not path.exists():
            raise NotFound(f"request {request!r} of claim {ref} has no metadata file of driver {self.driver}")
        before = read(path.read_bytes())
        generation = int(before["metadata"].get("generation", 1)) + 1
        content = self._content(ref, before.get("podClaimName", ""), facts, generation=generation)
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()

    def remove(self, ref: ClaimRef) -> None:
        """Files and specs of a claim. Raises OSError."""
        folder = self.folder / f"{ref.namespace}_{ref.name}"
        if folder.exists():
            shutil.rmtree(folder)
        for path in self.cdi_dir.glob(f"{self.driver}_metadata_{ref.uid}_*.json"):
            path.unlink(missing_ok=True)

    def _path(self, ref: ClaimRef, request: str) -> Path:
        return self.folder / f"{ref.namespace}_{ref.name}" / request / "metadata.json"

    def _write_file(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        write_atomically(path, content, durable=False, mode=0o644)

    def _write_spec(self, ref: ClaimRef, request: str, host: Path, inside: str) -> str:
        kind = f"{self.driver}/metadata"
        name = f"{ref.uid}_{request}"
        mount = cdi.Mount(str(host), inside, options=("ro", "bind"))
        spec = cdi.Spec(CDI_VERSION, kind, (cdi.CdiDevice(name, container_edits=cdi.Edits(mounts=(mount,))),))
        cdi.write(self.cdi_dir / f"{self.driver}_metadata_{name}.json", spec)
        return cdi.qualified(kind, name)

    def _content(self, ref: ClaimRef, pod_claim: str, facts: Sequence[DeviceMetadata], *, generation: int) -> bytes:
        requests: dict[str, list[dict[str, Any]]] = {}
        for fact in facts:
            entry: dict[str, Any] = {"driver": self.driver, "pool": fact.pool, "name": fact.device}
            if fact.attributes:
                entry["attributes"] = {key: codec.to_json(value) for key, value in sorted(fact.attributes.items())}
            if fact.network_data:
                entry["networkData"] = codec.to_json(fact.network_data)
            requests.setdefault(fact.request, []).append(entry)
        content: dict[str, Any] = {
            "kind": KIND,
            "apiVersion": API_VERSION,
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid, "generation": generation},
        }
        if pod_claim:
            content["podClaimName"] = pod_claim
        content["requests"] = [{"name": name, "devices": devices} for name, devices in requests.items()]
        return msgspec.json.encode(content) + b"\n"


def _by_request(facts: Sequence[DeviceMetadata]) -> dict[str, list[DeviceMetadata]]:
    found: dict[str, list[DeviceMetadata]] = {}
    for fact in facts:
        found.setdefault(fact.request.partition("/")[0], []).append(fact)
    return found


def read(content: bytes) -> dict[str, Any]:
    """The first object of a stream whose version we know. Raises Invalid."""
    for line in _objects(content):
        if line.get("apiVersion") == API_VERSION:
            return line
    raise Invalid("metadata file", "no compatible metadata version found in stream")


def _objects(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        if line.strip():
            value = msgspec.json.decode(line)
            if isinstance(value, dict):
                yield value


def with_ids(devices: Sequence[PreparedDevice], ids: dict[str, str]) -> tuple[PreparedDevice, ...]:
    """Each request's metadata id on the first device of that request."""
    left = dict(ids)
    result = []
    for device in devices:
        extra = tuple(left.pop(request) for request in device.requests if request in left)
        result.append(msgspec.structs.replace(device, cdi_ids=(*device.cdi_ids, *extra)) if extra else device)
    return tuple(result)
