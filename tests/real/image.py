"""How do tests get an image without a registry? One static binary as an OCI archive, the same bytes each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write(target: Path, name: str, binary: Path, entry: list[str], *, links: Iterable[str] = ()) -> None:
    """An archive of an image `name` with the binary as /bin/NAME and links to it in /bin."""
    layer = _layer(binary, links)
    packed = gzip.compress(layer, mtime=0)
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, media: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {
            "mediaType": f"application/vnd.oci.image.{media}",
            "digest": f"sha256:{digest}",
            "size": len(data),
        }

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": entry, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(packed, "layer.v1.tar+gzip")],
    }
    described = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    described["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    index = {"schemaVersion": 2, "manifests": [described]}
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        for digest, data in blobs.items():
            _add(archive, f"blobs/sha256/{digest}", data)


def _layer(binary: Path, links: Iterable[str]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for folder in ("bin", "etc", "tmp", "dev", "proc", "sys", "root"):
            _add(archive, folder, mode=0o1777 if folder == "tmp" else 0o755, type=tarfile.DIRTYPE)
        _add(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _add(archive, f"bin/{binary.name}", binary.read_bytes(), mode=0o755)
        for link in links:
            if link != binary.name:
                _add(archive, f"bin/{link}", type=tarfile.SYMTYPE, link=binary.name, mode=0o777)
    return raw.getvalue()


def _add(
    archive: tarfile.TarFile,
    name: str,
    data: bytes = b"",
    *,
    mode: int = 0o644,
    type: bytes = tarfile.REGTYPE,
    link: str = "",
) -> None:
    member = tarfile.TarInfo(name)
    member.mode, member.type, member.linkname, member.size = mode, type, link, len(data)
    archive.addfile(member, io.BytesIO(data))
