"""Writes src/dragoman/apiserver/facts/schemas.json.gz: the OpenAPI definitions of Kubernetes, without their texts.

Source: the package kubernetes-validate 1.37.0 (Apache-2.0), which carries the JSON schemas made from the OpenAPI
document of Kubernetes v1.37.0 with its x-kubernetes extensions. It holds no `default` values: those that list keys
need are typed by hand below (source: `+default` markers of k8s.io/api/core/v1/types.go).

Run: python tools/make_schemas.py
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

RELEASE = "v1.37.0-local"
FACTS = Path(__file__).parent.parent / "src" / "dragoman" / "apiserver" / "facts"
REF = "#/$defs/"

# (definition, property) -> default.
DEFAULTS: dict[tuple[str, str], Any] = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.LocalObjectReference", "name"): "",
    ("io.k8s.api.core.v1.SecretKeySelector", "name"): "",
    ("io.k8s.api.core.v1.ConfigMapKeySelector", "name"): "",
}
# The package says nothing of the form of these; what upstream's OpenAPI document says of them.
SCALARS: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string", "x-dragoman-form": "quantity"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
}


def plain_type(value: Any) -> Any:
    """The package writes ["string", "null"] for what the API calls string."""
    if isinstance(value, list):
        (name,) = [entry for entry in value if entry != "null"]
        return name
    return value


def tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """One schema without descriptions, nulls and enums of apiVersion; references by bare name."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "description" or key == "enum":
            continue
        if key == "type":
            out[key] = plain_type(value)
        elif key == "$ref":
            out[key] = value.removeprefix(REF)
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = tidy(value)
        elif key == "properties":
            out[key] = {name: tidy(entry) for name, entry in value.items()}
        else:
            out[key] = value
    return out


def write(name: str, value: Any) -> None:
    """Compressed, and equal bytes for equal facts (no time stamp)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    path = FACTS / name
    path.write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{path.name}: {len(text):,} bytes, {path.stat().st_size:,} compressed")  # noqa: T201


def build() -> dict[str, Any]:
    """The definitions, from the installed package."""
    source = files("kubernetes_validate") / "kubernetes-json-schema" / RELEASE / "_definitions.json"
    raw = json.loads(source.read_text(encoding="utf-8"))["$defs"]
    schemas = {name: SCALARS.get(name) or tidy(schema) for name, schema in raw.items()}
    for (definition, name), default in DEFAULTS.items():
        schemas[definition]["properties"][name]["default"] = default
    return schemas


def main() -> None:
    """Writes the file."""
    write("schemas.json.gz", build())


if __name__ == "__main__":
    main()
