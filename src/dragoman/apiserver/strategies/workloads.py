"""What do workloads and policies need? A generation, immutable selectors, a Job's own selector and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.apiserver.request import Write
from dragoman.apiserver.status import Object
from dragoman.apiserver.strategies.base import Cause, Strategy, dig

if TYPE_CHECKING:
    from dragoman.apiserver.registry import Registry

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"


class Generational(Strategy):
    """A kind whose generation counts changes of spec."""

    keeps_generation = True


class Workload(Generational):
    """Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController, Job."""

    def prepare_create(self, registry: Registry, obj: Object, write: Write) -> list[str]:
        """A Job selects its pods by its own uid unless it brings a selector."""
        spec = obj.setdefault("spec", {})
        template = spec.get("template")
        if "manualSelector" in spec and not spec["manualSelector"] and isinstance(template, dict):
            meta = obj["metadata"]
            labels = template.setdefault("metadata", {}).setdefault("labels", {})
            for key, value in (
                (CONTROLLER_UID, meta["uid"]),
                ("controller-uid", meta["uid"]),
                (JOB_NAME, meta["name"]),
                ("job-name", meta["name"]),
            ):
                labels.setdefault(key, value)
            spec.setdefault("selector", {"matchLabels": {CONTROLLER_UID: meta["uid"]}})
        return []

    def check_create(self, registry: Registry, obj: Object) -> list[Cause]:
        """The selector must select the template's pods."""
        spec = obj["spec"]
        selector = spec.get("selector")
        labels = dig(spec, "template", "metadata", "labels") or {}
        if isinstance(selector, dict) and isinstance(selector.get("matchLabels"), dict):
            wrong = any(labels.get(key) != value for key, value in selector["matchLabels"].items())
            if wrong:
                text = f"Invalid value: {_go_map(labels)}: `selector` does not match template `labels`"
                return [("FieldValueInvalid", text, "spec.template.metadata.labels")]
        return []

    def check_update(self, registry: Registry, new: Object, old: Object, subresource: str) -> list[Cause]:
        """The selector stays."""
        before, after = dig(old, "spec", "selector"), dig(new, "spec", "selector")
        if before is not None and before != after and "matchLabels" in before:
            return [("FieldValueInvalid", f"Invalid value: {after}: field is immutable", "spec.selector")]
        return []


def _go_map(labels: Object) -> str:
    return "{" + ", ".join(f'"{key}":"{value}"' for key, value in sorted(labels.items())) + "}"


class PriorityClassStrategy(Strategy):
    """A priority class keeps its value."""

    keeps_generation = True

    def check_update(self, registry: Registry, new: Object, old: Object, subresource: str) -> list[Cause]:
        """value and preemptionPolicy are immutable."""
        return [
            ("FieldValueForbidden", "Forbidden: may not be changed in an update.", field)
            for field in ("value", "preemptionPolicy")
            if new.get(field) != old.get(field)
        ]
