"""What does `kubectl explain` say of a field? Our own short sentences, for the kinds that Dragoman is about.

Keyed by definition without its group's prefix and version, so that all versions of resource.k8s.io share them.
Upstream's texts are not repeated here: a field without a sentence has none.
"""

from __future__ import annotations

_TEXTS: dict[str, dict[str, str]] = {}


def describe(definition: str, field: str) -> str:
    """The sentence on a field, on the definition itself if `field` is empty; empty if there is none."""
    family, _, name = definition.rpartition(".")
    group = family.rpartition(".")[0].rpartition(".")[2]
    return _TEXTS.get(f"{group}.{name}", {}).get(field, "")
