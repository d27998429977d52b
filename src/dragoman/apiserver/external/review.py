"""What does a webhook get to read, and what does its answer say? AdmissionReview of admission.k8s.io v1 and v1beta1.

Pure functions. Source: k8s.io/apiserver pkg/admission/plugin/webhook/request and errors.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.admission import Attributes
from dragoman.apiserver.request import User
from dragoman.apiserver.status import StatusError
from dragoman.apiserver.versions import from_stored, type_text

KNOWN: Final = ("v1", "v1beta1")
_KINDS_BELOW: Final = {
    "scale": ("autoscaling", "v1", "Scale"),
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "exec": ("", "v1", "PodExecOptions"),
    "attach": ("", "v1", "PodAttachOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
}
_OPTIONS: Final = {
    "CREATE": "CreateOptions",
    "UPDATE": "UpdateOptions",
    "DELETE": "DeleteOptions",
}


class WebhookCallFailed(Exception):
    """A webhook could not be asked; the text says why."""


class BadReview(Exception):
    """An answer that is not a valid AdmissionReview; the text says why."""


class Answer(msgspec.Struct, frozen=True):
    """What a webhook said; patch None: it changes nothing."""

    allowed: bool
    patch: list[Any] | None = None
    status: Object = {}
    warnings: tuple[str, ...] = ()


def versioned(attributes: Attributes, obj: Object | None, version: str) -> Object | None:
    """An object of a write in a version of its kind, with apiVersion and kind."""
    if obj is None:
        return None
    kind = attributes.kind
    if attributes.operation == "CONNECT":
        return obj
    below = _KINDS_BELOW.get(attributes.subresource)
    if below == _KINDS_BELOW["scale"]:
        spec, status = {"replicas": (obj.get("spec") or {}).get("replicas", 0)}, obj.get("status") or {}
        body: Object = {"metadata": obj["metadata"], "spec": spec, "status": {"replicas": status.get("replicas", 0)}}
        return {"apiVersion": "autoscaling/v1", "kind": "Scale", **body}
    if below == _KINDS_BELOW["binding"]:
        meta = {field: obj["metadata"][field] for field in ("name", "namespace") if field in obj["metadata"]}
        target = {"kind": "Node", "name": (obj.get("spec") or {}).get("nodeName", "")}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
    return {**type_text(kind, version), **from_stored(kind, version, obj)}


def kind_of(attributes: Attributes, version: str) -> Object:
    """GroupVersionKind of what is written."""
    group, number, kind = _KINDS_BELOW.get(
        attributes.subresource, (attributes.kind.group, version, attributes.kind.kind)
    )
    return {"group": group, "version": number, "kind": kind}


def resource_of(attributes: Attributes, version: str) -> Object:
    """GroupVersionResource of what is written."""
    return {"group": attributes.kind.group, "version": version, "resource": attributes.kind.plural}


def user_of(user: User) -> Object:
    """authentication.k8s.io/v1 UserInfo."""
    out: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        out["uid"] = user.uid
    if user.extra:
        out["extra"] = {key: list(values) for key, values in user.extra.items()}
    return out


def request_of(attributes: Attributes, version: str) -> Object:
    """The AdmissionRequest without uid and objects: what expressions know as `request`."""
    asked = attributes.write.version or attributes.kind.versions[0]
    out: Object = {
        "kind": kind_of(attributes, version),
        "resource": resource_of(attributes, version),
        "requestKind": kind_of(attributes, asked),
        "requestResource": resource_of(attributes, asked),
        "name": attributes.name,
        "operation": attributes.operation,
        "userInfo": user_of(attributes.write.user),
        "dryRun": attributes.write.dry_run,
    }
    if attributes.subresource:
        out["subResource"] = out["requestSubResource"] = attributes.subresource
    if attributes.namespace:
        out["namespace"] = attributes.namespace
    elif attributes.kind.kind == "Namespace":
        out["namespace"] = attributes.name
    options = _OPTIONS.get(attributes.operation)
    if options:
        out["options"] = {"kind": options, "apiVersion": "meta.k8s.io/v1"}
        if attributes.write.dry_run:
            out["options"]["dryRun"] = ["All"]
        if options != "DeleteOptions":
            out["options"]["fieldManager"] = attributes.write.manager
    return out


def review_of(attributes: Attributes, version: str, uid: str, api: str) -> Object:
    """The AdmissionReview to send."""
    request = {
        "uid": uid,
        **request_of(attributes, version),
        "object": versioned(attributes, attributes.obj, version),
        "oldObject": versioned(attributes, attributes.old, version),
    }
    return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{api}", "request": request}


def answer_of(body: Any, uid: str, api: str, *, mutating: bool) -> Answer:
    """What an AdmissionReview answers. Raises BadReview."""
    response = body.get("response") if isinstance(body, dict) else None
    if not isinstance(response, dict):
        raise BadReview("webhook response was absent")
    if api == "v1":
        _check_v1(body, response, uid, mutating=mutating)
    patch: list[Any] | None = None
    if mutating and response.get("patch"):
        kind = response.get("patchType", "JSONPatch")
        if kind != "JSONPatch":
            raise BadReview(f'unsupported patch type "{kind}"')
        patch = _patch(response["patch"])
    return Answer(
        response.get("allowed") is True,
        patch or None,
        response.get("status") or {},
        tuple(str(warning) for warning in response.get("warnings") or ()),
    )


def _check_v1(body: Object, response: Object, uid: str, *, mutating: bool) -> None:
    if response.get("uid") != uid:
        raise BadReview(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    said = f"{body.get('apiVersion', '')}, Kind={body.get('kind', '')}"
    if said != "admission.k8s.io/v1, Kind=AdmissionReview":
        raise BadReview(f"expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {said}")
    patch, kind = response.get("patch"), response.get("patchType")
    if not mutating:
        for field, value in (("patch", patch), ("patchType", kind)):
            if value:
                raise BadReview(f"validating webhook may not return response.{field}")
    elif patch and kind is None:
        raise BadReview("webhook returned response.patch but not response.patchType")
    elif kind is not None and not patch:
        raise BadReview("webhook returned response.patchType but not response.patch")


def _patch(text: Any) -> list[Any]:
    try:
        patch = msgspec.json.decode(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadReview(f"received undecodable patch in webhook response: {error}") from error
    if not isinstance(patch, list):
        raise BadReview("received undecodable patch in webhook response: no list of operations")
    return patch


def denial(name: str, status: Object) -> StatusError:
    """The refusal that a webhook's status asks for."""
    text = f'admission webhook "{name}" denied the request'
    if status.get("message"):
        message = f"{text}: {status['message']}"
    elif status.get("reason"):
        message = f"{text}: {status['reason']}"
    else:
        message = f"{text} without explanation"
    code = status.get("code")
    code = code if isinstance(code, int) and code >= 400 else 400
    return StatusError(code, str(status.get("reason") or ""), message, status.get("details"))
