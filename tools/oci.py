"""How does an image become an OCI archive without a registry or a daemon? Layers of files, the same bytes each time.

    layers = [layer({"bin/tool": File(data, 0o755)})]
    write(Path("image.tar"), "example.com/name:1", layers, {"Entrypoint": ["/bin/tool"]}, "amd64")

What reads it: `ctr images import`, `podman load`, `skopeo copy oci-archive:...`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

EPOCH = 1_577_836_800
"""The time of every file and image: 2020-01-01."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Of images, by `platform.machine()`."""


@dataclass(frozen=True)
class File:
    """A regular file; with `link` a symbolic link; with `folder` a folder."""

    data: bytes = b""
    mode: int = 0o644
    link: str = ""
    folder: bool = False


def folder(mode: int = 0o755) -> File:
    """A folder."""
    return File(mode=mode, folder=True)


@dataclass(frozen=True)
class Layer:
    """packed: gzip; its digest names it. diff: digest of the tar inside."""

    packed: bytes
    diff: str

    @classmethod
    def of(cls, packed: bytes) -> Layer:
        """A layer that was packed before."""
        return cls(packed, _digest(gzip.decompress(packed)))

    @property
    def text(self) -> bytes:
        """The tar."""
        return gzip.decompress(self.packed)


def layer(files: Mapping[str, File]) -> Layer:
    """A layer of these files by their paths, without a leading slash; folders above them are made."""
    entries = dict(files)
    for path in files:
        for above in PurePosixPath(path).parents:
            if str(above) != ".":
                entries.setdefault(str(above), folder())
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(entries):
            _add(archive, path, entries[path])
    text = raw.getvalue()
    return Layer(gzip.compress(text, 6, mtime=0), _digest(text))


def read(text: bytes) -> dict[str, File]:
    """The files of a tar, hard links as copies; devices are left out."""
    files: dict[str, File] = {}
    with tarfile.open(fileobj=io.BytesIO(text)) as contents:
        for member in contents:
            path = member.name.removeprefix("./").rstrip("/")
            if path in ("", "."):
                continue
            if member.isdir():
                files[path] = folder(member.mode)
            elif member.issym():
                files[path] = File(link=member.linkname)
            elif member.islnk():
                files[path] = files[member.linkname.removeprefix("./")]
            elif (data := contents.extractfile(member)) is not None:
                files[path] = File(data.read(), member.mode & 0o777)
    return files


def write(target: Path, name: str, layers: Sequence[Layer], config: Mapping[str, Any], architecture: str) -> str:
    """An archive of the image `name` (with its tag); config is that of the image specification. Its digest."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, media: str) -> dict[str, Any]:
        digest = _digest(data)
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{media}", "digest": digest, "size": len(data)}

    when = "2020-01-01T00:00:00Z"
    image = {
        "created": when,
        "architecture": architecture,
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [one.diff for one in layers]},
        "history": [{"created": when} for _ in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(_json(image), "config.v1+json"),
        "layers": [blob(one.packed, "layer.v1.tar+gzip") for one in layers],
    }
    described = blob(_json(manifest), "manifest.v1+json")
    described["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    index = {"schemaVersion": 2, "manifests": [described]}
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, "oci-layout", File(b'{"imageLayoutVersion":"1.0.0"}'))
        _add(archive, "index.json", File(_json(index)))
        for digest in sorted(blobs):
            _add(archive, f"blobs/{digest.replace(':', '/')}", File(blobs[digest]))
    return str(described["digest"])


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _add(archive: tarfile.TarFile, name: str, file: File) -> None:
    member = tarfile.TarInfo(name)
    member.mode, member.mtime, member.size = file.mode, EPOCH, len(file.data)
    if file.folder:
        member.type = tarfile.DIRTYPE
    elif file.link:
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, file.link, 0o777
    archive.addfile(member, io.BytesIO(file.data))
