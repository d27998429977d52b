"""Every write that can be decided on, one closed union by verb.

The core returns effects; `cluster.commit` carries them out in order, each with its precondition. Nothing
here writes.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from dragoman.api.meta import Ref

PatchType = Literal["merge", "json", "strategic", "apply"]


class Create(msgspec.Struct, frozen=True):
    """Create `body` (a whole object, JSON shaped, apiVersion and kind set)."""

    body: dict[str, Any]


class Patch(msgspec.Struct, frozen=True):
    """Change an object by a patch.

    `ref.uid` (if set) and `resource_version` (if set) are preconditions: another incarnation or version makes
    the write fail with Stale. `subresource` is "" or "status". `manager` and `force` belong to kind "apply".
    """

    ref: Ref
    patch: Any
    type: PatchType = "merge"
    subresource: str = ""
    resource_version: str = ""
    manager: str = ""
    force: bool = False


class Delete(msgspec.Struct, frozen=True):
    """Delete an object; `ref.uid` and `resource_version` are preconditions where set.

    An empty `ref.name` means all objects of the kind in that namespace.
    """

    ref: Ref
    resource_version: str = ""
    grace_period_s: int | None = None
    propagation: Literal["", "Background", "Foreground", "Orphan"] = ""


class Bind(msgspec.Struct, frozen=True):
    """Bind a pod to a node (pods/binding), guarded by `pod.uid`."""

    pod: Ref
    node: str


class Evict(msgspec.Struct, frozen=True):
    """Evict a pod through pods/eviction, honouring disruption budgets."""

    pod: Ref
    grace_period_s: int | None = None


class Emit(msgspec.Struct, frozen=True):
    """A Kubernetes Event about an object. `component` is the reporting source."""

    about: Ref
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    component: str
    action: str = ""


Effect: TypeAlias = Create | Patch | Delete | Bind | Evict | Emit
