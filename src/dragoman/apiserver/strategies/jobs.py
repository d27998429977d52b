"""What do workloads need? A Job the selector and labels it makes for its pods; a Deployment keeps its labels."""

from __future__ import annotations

from dragoman.api.admission import select_own_pods
from dragoman.api.shape import Object
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import Write
from dragoman.apiserver.strategies.base import Generational


class DeploymentStrategy(Generational):
    """Deployment: a write of its status cannot change its labels."""

    status_keeps = ("labels",)


class JobStrategy(Generational):
    """Job."""

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """A Job selects its pods by its own uid unless it brings a selector."""
        select_own_pods(obj)
        return []
