"""The kind that tests of custom kinds define, and a client of it."""

from __future__ import annotations

from typing import Any

from dragoman.api.shape import Object

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


GROUP = "parts.example.org"


GEARS = f"/apis/{GROUP}/v1/namespaces/default/gears"


MERGE = "application/merge-patch+json"


APPLY = "application/apply-patch+yaml"


SPEC: Object = {
    "type": "object",
    "required": ["teeth"],
    "x-kubernetes-validations": [
        {"rule": "self.teeth < 100 || self.metal == 'steel'", "message": "only steel has so many teeth"},
        {"rule": "self.metal == oldSelf.metal", "messageExpression": "'metal stays ' + oldSelf.metal"},
    ],
    "properties": {
        "teeth": {"type": "integer", "minimum": 3},
        "metal": {"type": "string", "enum": ["steel", "brass"], "default": "brass"},
        "label": {"type": "string", "nullable": True, "maxLength": 5},
        "holes": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["at"],
            "items": {
                "type": "object",
                "required": ["at"],
                "properties": {"at": {"type": "string"}, "size": {"x-kubernetes-int-or-string": True}},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


STATUS: Object = {"type": "object", "properties": {"turns": {"type": "integer"}}}


def version(name: str = "v1", *, storage: bool = True, served: bool = True, **more: Any) -> Object:
    schema = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.teeth", "statusReplicasPath": ".status.turns"},
        },
        "additionalPrinterColumns": [
            {"name": "Teeth", "type": "integer", "jsonPath": ".spec.teeth"},
            {"name": "Hole", "type": "string", "jsonPath": '.spec.holes[?(@.at=="rim")].size'},
        ],
        "selectableFields": [{"jsonPath": ".spec.metal"}],
        **more,
    }


def definition(*versions: Object, plural: str = "gears", kind: str = "Gear", scope: str = "Namespaced") -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, "shortNames": [f"{plural[:2]}"], "categories": ["all"]},
            "versions": list(versions) or [version()],
        },
    }


def gear(name: str = "g", **spec: Any) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gear", "metadata": {"name": name}, "spec": {"teeth": 8, **spec}}


def _spec(crd: Object) -> Any:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
