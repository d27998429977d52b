"""What do workloads need? A Job the selector and labels it makes for its pods; a Deployment keeps its labels."""

from __future__ import annotations

from dragoman.api.shape import Object
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import Write
from dragoman.apiserver.strategies.base import Generational

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"


class DeploymentStrategy(Generational):
    """Deployment: a write of its status cannot change its labels."""

    status_keeps = ("labels",)


class JobStrategy(Generational):
    """Job."""

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
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
