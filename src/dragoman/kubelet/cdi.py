"""Which edits do CDI device names stand for? The folders of a node, read as a container runtime reads them.

Later folders win over earlier ones; a name defined twice in one folder, or in a file that is not valid, does not
resolve. It writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dragoman.errors import Invalid
from dragoman.node.cdi import Edits, Spec, merged, qualified, read, split_name

_Stamp = tuple[int, int, int]


class CdiFolders:
    """CDI folders in rising priority, /etc/cdi and /var/run/cdi on a real node; files are cached by their stamp."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders
        self._read: dict[Path, tuple[_Stamp, Spec | Invalid]] = {}

    def edits(self, names: Sequence[str]) -> Edits:
        """What those devices change together: each spec's own edits once, before its first device's.

        Raises Invalid naming the devices that do not resolve, and why.
        """
        found, faults = self._devices()
        missing = [name for name in names if name not in found]
        if missing:
            reasons = "; ".join(faults.get(name, "") for name in missing if name in faults) or self._general(missing)
            raise Invalid("CDI", f"unresolvable CDI devices {', '.join(missing)}: {reasons}")
        parts: list[Edits] = []
        used: set[Path] = set()
        for name in dict.fromkeys(names):
            path, edits = found[name]
            spec = self._read[path][1]
            assert isinstance(spec, Spec)
            if path not in used:
                used.add(path)
                parts.append(spec.container_edits)
            parts.append(edits)
        return merged(parts)

    def _general(self, missing: Sequence[str]) -> str:
        kinds = {split_name(name)[0] for name in missing}
        bad = [f"{path.name}: {spec}" for path, (_, spec) in sorted(self._read.items()) if isinstance(spec, Invalid)]
        where = ", ".join(str(folder) for folder in self.folders)
        invalid = f"; invalid files: {'; '.join(bad)}" if bad else ""
        return f"no file in {where} defines such devices of kind {', '.join(sorted(kinds))}{invalid}"

    def _devices(self) -> tuple[dict[str, tuple[Path, Edits]], dict[str, str]]:
        found: dict[str, tuple[Path, Edits]] = {}
        faults: dict[str, str] = {}
        seen: set[Path] = set()
        for folder in self.folders:
            here: dict[str, tuple[Path, Edits]] = {}
            conflicts: dict[str, str] = {}
            for path in self._files(folder):
                seen.add(path)
                spec = self._spec(path)
                for device in spec.devices if isinstance(spec, Spec) else ():
                    name = qualified(spec.kind, device.name) if isinstance(spec, Spec) else ""
                    if name in here:
                        conflicts[name] = f"{name} is defined in {here[name][0].name} and {path.name}"
                    here[name] = (path, device.container_edits)
            found.update(here)
            for name in here:
                faults.pop(name, None)
            faults.update(conflicts)
            for name in conflicts:
                found.pop(name, None)
        for path in [path for path in self._read if path not in seen]:
            del self._read[path]
        return found, faults

    def _files(self, folder: Path) -> list[Path]:
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if entry.name.endswith((".json", ".yaml"))]
        except FileNotFoundError:
            return []
        return [folder / name for name in sorted(names) if not name.startswith(".")]

    def _spec(self, path: Path) -> Spec | Invalid:
        try:
            status = path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            known = self._read.get(path)
            if known is None or known[0] != stamp:
                known = (stamp, read(path))
        except FileNotFoundError:
            known = ((0, 0, 0), Invalid(str(path), "has just been removed"))
        except Invalid as error:
            known = (stamp, error)
        self._read[path] = known
        return known[1]
