"""Who needs to hear of this object? One informer for many listeners, each gets only what concerns it.

Keeps references, no copies. It never lists or watches itself (`cluster.watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dragoman.cluster.watch import Informer
from dragoman.snapshot.change import Change, Gone

RouteListener: TypeAlias = Callable[[str, Any], None]
"""Called with ("put", value) or ("gone", the last value known)."""


class Routes:
    """An informer's objects by `route(value)`, a node's name for one; the empty route is nobody's."""

    def __init__(self, informer: Informer, route: Callable[[Any], str]) -> None:
        self.informer = informer
        self._route = route
        self._routed: dict[tuple[str, str], str] = {}
        self._objects: dict[str, dict[tuple[str, str], Any]] = {}
        self._listeners: dict[str, list[RouteListener]] = {}
        informer.subscribe(self._receive)

    def subscribe(self, route: str, listener: RouteListener) -> Callable[[], None]:
        """Tell the listener what is known on that route, then every change; the result ends that."""
        for value in list(self._objects.get(route, {}).values()):
            listener("put", value)
        self._listeners.setdefault(route, []).append(listener)
        return lambda: self._leave(route, listener)

    def objects(self, route: str) -> list[Any]:
        """All that is on that route now."""
        return list(self._objects.get(route, {}).values())

    def _leave(self, route: str, listener: RouteListener) -> None:
        self._listeners[route].remove(listener)
        if not self._listeners[route]:
            del self._listeners[route]

    def _receive(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Gone):
                self._take((change.namespace, change.name))
            else:
                self._put(change.object)

    def _put(self, value: Any) -> None:
        key = (value.metadata.namespace, value.metadata.name)
        route = self._route(value)
        if self._routed.get(key, route) != route:
            self._take(key)
        if not route:
            return
        self._routed[key] = route
        self._objects.setdefault(route, {})[key] = value
        for listener in tuple(self._listeners.get(route, ())):
            listener("put", value)

    def _take(self, key: tuple[str, str]) -> None:
        route = self._routed.pop(key, None)
        if route is None:
            return
        value = self._objects[route].pop(key)
        if not self._objects[route]:
            del self._objects[route]
        for listener in tuple(self._listeners.get(route, ())):
            listener("gone", value)
