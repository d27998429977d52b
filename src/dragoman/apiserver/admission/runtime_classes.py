"""What does a pod's RuntimeClass add to it? Overhead, node selector, tolerations: upstream's admission of that name."""

from __future__ import annotations

from typing import Any

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import forbidden

POD, RUNTIME_CLASS = BY_NAME["Pod"], BY_NAME["RuntimeClass"]


class RuntimeClasses(AdmissionPlugin):
    """Completes new pods that name a RuntimeClass, and refuses those that contradict it."""

    kinds = frozenset((POD,))

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Raises 403 for a class that is not there, or another overhead than its own."""
        if attributes.operation != "CREATE" or attributes.subresource:
            return
        spec = (attributes.obj or {}).get("spec")
        if not isinstance(spec, dict):
            return  # validation has its say about that
        name = spec.get("runtimeClassName") or ""
        if not name:
            if spec.get("overhead"):
                raise _rejected(attributes, "Pod Overhead set without corresponding RuntimeClass defined Overhead")
            return
        found = lookup.find(RUNTIME_CLASS, name)
        if found is None:
            raise _rejected(attributes, f'RuntimeClass "{name}" not found')
        chosen = found.decode()
        overhead = (chosen.get("overhead") or {}).get("podFixed") or {}
        if spec.get("overhead") and spec["overhead"] != overhead:
            raise _rejected(attributes, "Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        if overhead:
            spec["overhead"] = overhead
        self._place(spec, chosen.get("scheduling") or {}, attributes)

    def _place(self, spec: Object, scheduling: Object, attributes: Attributes) -> None:
        selector: dict[str, Any] = dict(spec.get("nodeSelector") or {})
        for key, value in (scheduling.get("nodeSelector") or {}).items():
            if selector.setdefault(key, value) != value:
                text = (
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = "
                )
                raise _rejected(attributes, f"{text}{selector[key]}")
        if selector:
            spec["nodeSelector"] = selector
        own = list(spec.get("tolerations") or [])
        added = [toleration for toleration in scheduling.get("tolerations") or [] if toleration not in own]
        if added:
            spec["tolerations"] = [*own, *added]


def _rejected(attributes: Attributes, text: str) -> Exception:
    return forbidden(attributes.kind, attributes.name, f"pod rejected: {text}")
