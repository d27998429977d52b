"""Writes src/dragoman/apiserver/facts/protobuf.json.gz: messages and field numbers of Kubernetes' protobuf encoding.

Source: the Go modules k8s.io/api, apimachinery, apiextensions-apiserver and kube-aggregator v0.37.2 (Apache-2.0), read
from Go's module cache: names, numbers and types from generated.proto, JSON names and whether a field is a pointer from
the struct tags.

Run: python tools/make_protobuf_table.py (needs Go; downloads the modules to Go's cache, outside of this checkout)
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

VERSION = "v0.37.2"
MODULES = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator")
TABLE = Path(__file__).parent.parent / "src" / "dragoman" / "apiserver" / "facts" / "protobuf.json.gz"
META = "k8s.io.apimachinery.pkg.apis.meta.v1"

MESSAGE = re.compile(r"^message (\w+) \{$")
MAP_FIELD = re.compile(r"^  map<(\w+), ([\w.]+)> (\w+) = (\d+);")
PLAIN_FIELD = re.compile(r"^  (optional|repeated) ([\w.]+) (\w+) = (\d+);")
STRUCT = re.compile(r"^type (\w+) struct \{$")
GO_FIELD = re.compile(r"^\t(?:(\w+)\s+)?([*\[\]\w.{}]+)\s+`([^`]*)`")
TAG = re.compile(r'(\w+):"([^"]*)"')
GROUP = re.compile(r'^const GroupName = "([^"]*)"', re.M)


def module_folder(module: str) -> Path:
    """Where Go keeps the module; downloads it if needed."""
    with tempfile.TemporaryDirectory() as empty:
        command = ["go", "mod", "download", "-json", f"{module}@{VERSION}"]
        (Path(empty) / "go.mod").write_text("module facts\n")
        done = subprocess.run(command, cwd=empty, check=True, capture_output=True, text=True)  # noqa: S603
    return Path(json.loads(done.stdout)["Dir"])


def read_messages(package: str, text: str) -> dict[str, list[dict[str, Any]]]:
    """Full message name -> its fields, types by full name."""
    messages: dict[str, list[dict[str, Any]]] = {}
    current: list[dict[str, Any]] | None = None
    for line in text.splitlines():
        if found := MESSAGE.match(line):
            current = messages.setdefault(f"{package}.{found[1]}", [])
        elif current is None:
            continue
        elif line == "}":
            current = None
        elif found := MAP_FIELD.match(line):
            current.append({"number": int(found[4]), "type": full(found[2], package), "map": True, "name": found[3]})
        elif found := PLAIN_FIELD.match(line):
            repeated = found[1] == "repeated"
            current.append(
                {"number": int(found[4]), "type": full(found[2], package), "repeated": repeated, "name": found[3]}
            )
    return messages


def full(name: str, package: str) -> str:
    """A message type by its full name; scalars as they are."""
    if name.startswith("."):
        return name[1:]
    return f"{package}.{name}" if name[0].isupper() else name


def read_tags(folder: Path) -> dict[str, dict[int, tuple[str, str]]]:
    """Struct -> field number -> (JSON name, flags of `rows`); an embedded struct has no JSON name."""
    structs: dict[str, dict[int, tuple[str, str]]] = {}
    for source in sorted(folder.glob("*.go")):
        if source.name.startswith(("generated", "zz_")) or source.name.endswith("_test.go"):
            continue
        current: dict[int, tuple[str, str]] | None = None
        for line in source.read_text(encoding="utf-8").splitlines():
            if found := STRUCT.match(line):
                current = structs.setdefault(found[1], {})
            elif line == "}":
                current = None
            elif current is not None and (found := GO_FIELD.match(line)):
                tags = dict(TAG.findall(found[3]))
                if "protobuf" in tags and tags["protobuf"] != "-":
                    number = int(tags["protobuf"].split(",")[1])
                    name, *options = tags.get("json", "").split(",")
                    embedded = found[1] is None and not name
                    if not embedded and name in ("", "-"):  # IntOrString.type, FieldsV1.Raw: no JSON name
                        name = proto_name(tags["protobuf"])
                    flags = "p" if found[2].startswith("*") else ""
                    flags += "o" if "omitempty" in options else ""
                    flags += "z" if "omitzero" in options else ""
                    current[number] = (name, flags)
    return structs


def proto_name(tag: str) -> str:
    """The name in a protobuf tag: bytes,1,opt,name=Raw."""
    return next((part.removeprefix("name=") for part in tag.split(",") if part.startswith("name=")), "")


def rows(fields: list[dict[str, Any]], tags: dict[int, tuple[str, str]]) -> list[list[Any]]:
    """[number, JSON name ("" if embedded), type, flags]: r repeated, m map, p pointer, o omitempty, z omitzero."""
    out = []
    for field in fields:
        name, of_go = tags.get(field["number"], (field["name"], "o"))
        flags = ("r" if field.get("repeated") else "m" if field.get("map") else "") + of_go
        out.append([field["number"], name, field["type"], flags])
    return out


def main() -> None:
    """Reads the modules, writes the table."""
    messages: dict[str, list[list[Any]]] = {}
    groups: dict[str, str] = {}
    for module in MODULES:
        root = module_folder(module)
        for proto in sorted(root.rglob("generated.proto")):
            folder = proto.parent
            package = f"{module}/{folder.relative_to(root)}".replace("/", ".")
            tags = read_tags(folder)
            for name, fields in read_messages(package, proto.read_text(encoding="utf-8")).items():
                messages[name] = rows(fields, tags.get(name.rpartition(".")[2], {}))
            register = folder / "register.go"
            found = GROUP.search(register.read_text(encoding="utf-8")) if register.exists() else None
            if module != "k8s.io/apimachinery" and found:
                group, version = found[1], folder.name
                groups[f"{group}/{version}" if group else version] = package
    facts = {"messages": messages, "packages": groups, "meta": META}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    TABLE.write_bytes(gzip.compress(text, 9, mtime=0))
    fields = sum(map(len, messages.values()))
    print(f"{len(messages):,} messages, {fields:,} fields, {TABLE.stat().st_size:,} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
