"""How do tests get an image without a registry? One static binary as an OCI archive, the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from oci import File, folder, layer
from oci import write as write_archive


def write(target: Path, name: str, binary: Path, entry: list[str], *, links: Iterable[str] = ()) -> None:
    """An archive of an image `name` with the binary as /bin/NAME and links to it in /bin."""
    files = {name: folder(0o1777 if name == "tmp" else 0o755) for name in ("tmp", "dev", "proc", "sys", "root")}
    files["etc/passwd"] = File(b"root:x:0:0:root:/root:/bin/sh\n")
    files[f"bin/{binary.name}"] = File(binary.read_bytes(), 0o755)
    files |= {f"bin/{link}": File(link=binary.name) for link in links if link != binary.name}
    write_archive(target, name, [layer(files)], {"Entrypoint": entry, "Env": ["PATH=/bin"]}, "amd64")
