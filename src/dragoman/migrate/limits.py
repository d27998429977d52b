"""What becomes of a ResourceQuota or LimitRange that counts GPUs of a device plugin?

Quotas of a DeviceClass count the devices that claims ask for (`quota/usage.py`). A LimitRange knows no claims.
"""

from __future__ import annotations

from typing import Any

from dragoman.migrate.report import LOSS, Unmovable
from dragoman.migrate.resources import IMPLICIT, MIG_CLASS, is_gpu_resource, kind_of_request, whole_kind
from dragoman.migrate.yamledit import Editor, Path
from dragoman.values.quantity import Quantity

_DEVICES = ".deviceclass.resource.k8s.io/devices"
_REQUESTS = "requests."
_BOUNDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
LimitRemark = tuple[str, str, str, str, str]


def quota(ed: Editor, path: Path, to: str, strategy: str) -> list[LimitRemark]:
    """Edit `spec.hard` of a ResourceQuota. Raises Unmovable."""
    hard = (*path, "spec", "hard")
    said: list[LimitRemark] = []
    for key in list(ed.at(hard) or ()):
        field = f"spec.hard[{key}]"
        new = _to_dra(key, strategy) if to == "dra" else _to_plugin(key, field)
        if new is None:
            continue
        spec = ed.at((*path, "spec"))
        if to == "dra" and strategy == "claims" and (spec.get("scopes") or spec.get("scopeSelector")):
            raise Unmovable(
                "ScopedQuota",
                field,
                "a quota with scopes counts pods only, not the devices of claims",
                "write a quota of its own for the devices, without scopes",
            )
        if new.startswith(MIG_CLASS):
            said.append(
                (
                    LOSS,
                    "AllProfiles",
                    field,
                    f"{new} counts MIG devices of every profile, not only {key}",
                    "make a DeviceClass for the profile, and count that",
                )
            )
        if new in ed.at(hard):
            total = Quantity.parse(str(ed.at((*hard, new)))).nanos + Quantity.parse(str(ed.at((*hard, key)))).nanos
            ed.set_scalar((*hard, new), total // 10**9)
            ed.remove((*hard, key))
        else:
            ed.rename((*hard, key), new)
    return said


def _to_dra(key: str, strategy: str) -> str | None:
    name = key.removeprefix(_REQUESTS)
    if name == key or not is_gpu_resource(name):
        return None
    kind = whole_kind(name)
    if kind is None or kind.capacity:
        raise Unmovable("NoCounterpart", f"spec.hard[{key}]", f"no DeviceClass counts what {name} counts", "")
    if strategy == "claims":
        return f"{kind.device_class}{_DEVICES}"
    own = f"{kind.base}.nvidia.com" if kind.device_class == MIG_CLASS else kind.device_class
    return f"{_REQUESTS}{IMPLICIT}{own}"


def _to_plugin(key: str, field: str) -> str | None:
    if key.endswith(_DEVICES):
        name = key.removesuffix(_DEVICES)
    elif key.startswith(_REQUESTS + IMPLICIT):
        name = key.removeprefix(_REQUESTS + IMPLICIT)
    else:
        return None
    if key.startswith(_REQUESTS) and name.startswith("mig-") and name.endswith(".nvidia.com"):
        resource = "nvidia.com/mig-" + name.removeprefix("mig-").removesuffix(".nvidia.com").replace("-", ".")
        return _REQUESTS + resource if whole_kind(resource) else None
    found = kind_of_request(name, [])
    if found is None:
        if name == MIG_CLASS:
            raise Unmovable(
                "NoCounterpart",
                field,
                "device plugins count MIG devices by profile, this quota counts them all",
                "write a quota for each profile",
            )
        return None
    return _REQUESTS + found[0].resource


def limit_range(ed: Editor, path: Path, strategy: str) -> list[LimitRemark]:
    """Take bounds and defaults on GPUs out of a LimitRange; a default would be added to pods beside their claims."""
    said: list[LimitRemark] = []
    for number in range(len(ed.at((*path, "spec", "limits")) or ())):
        for bound in _BOUNDS:
            where = (*path, "spec", "limits", number, bound)
            for key in [k for k in ed.at(where) or () if is_gpu_resource(k)]:
                field = f"spec.limits[{number}].{bound}[{key}]"
                if len(ed.at(where)) > 1:
                    ed.remove((*where, key))
                elif len(ed.at(where[:-1])) > 2:
                    ed.remove(where)
                else:
                    raise Unmovable(
                        "NoCounterpart",
                        field,
                        f"a LimitRange has no {bound} for devices of claims, and this one says nothing else",
                        "delete it; bound the namespace by a ResourceQuota",
                    )
                what = (
                    "gives no container a device that it does not ask for" if "default" in bound else "does not bound"
                )
                said.append(
                    (
                        LOSS,
                        "LimitRange",
                        field,
                        f"{bound} of {key} is taken out: a LimitRange {what} by claims",
                        "bound the namespace by a ResourceQuota",
                    )
                )
    return said


def quota_keys(spec: Any) -> list[str]:
    """The keys of a quota or of one entry of a LimitRange that count GPUs on the device plugin path."""
    return [key for key in (spec or ()) if is_gpu_resource(str(key).removeprefix(_REQUESTS).removeprefix("limits."))]
