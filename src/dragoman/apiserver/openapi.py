"""What does /openapi/v3 say? An index, and a document a group and version with paths and schemas.

Made from the table of kinds and the schema facts, on first request and kept as bytes. kubectl decides from the PATCH
operations' fieldValidation parameter that the server checks fields, maps resources to kinds by
x-kubernetes-group-version-kind of the paths (`explain`) and finds merge keys in the schemas (`apply`). OpenAPI v2
is made from the same documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from email.utils import formatdate
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from dragoman import __version__
from dragoman.api.kinds import Kind
from dragoman.apiserver import openapi2
from dragoman.apiserver.custom import publish
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.openapi_texts import describe, digest
from dragoman.apiserver.reviews import REVIEWS
from dragoman.apiserver.served import Served
from dragoman.apiserver.shape import definition_names, definitions

_SCHEMAS = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_DELETE_OPTIONS = f"{_META}DeleteOptions"
_STATUS = f"{_META}Status"
_YEAR_S = 365 * 24 * 3600

# Subresource -> (methods, group, version, kind of its body); the kind of the resource where None.
_SUBRESOURCES: dict[str, tuple[tuple[str, ...], tuple[str, str, str] | None]] = {
    "status": (("get", "put", "patch"), None),
    "scale": (("get", "put", "patch"), ("autoscaling", "v1", "Scale")),
    "finalize": (("put",), None),
    "approval": (("get", "put", "patch"), None),
    "ephemeralcontainers": (("get", "put", "patch"), None),
    "resize": (("get", "put", "patch"), None),
    "binding": (("post",), ("", "v1", "Binding")),
    "eviction": (("post",), ("policy", "v1", "Eviction")),
    "token": (("post",), ("authentication.k8s.io", "v1", "TokenRequest")),
    "log": (("get",), None),
}


class OpenApiDocument(msgspec.Struct, frozen=True):
    """A body of JSON and the hash it is known by (also its ETag)."""

    body: bytes
    hash: str


class OpenApi:
    """The documents of one server, made on first request and again when what it serves has changed."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._generation = -1
        self._documents: dict[str, OpenApiDocument] = {}
        self._known: dict[str, tuple[str, str]] = {}
        self._hashes: dict[str, str] = {}

    def index(self) -> dict[str, Any]:
        """GET /openapi/v3: where the document of each group and version is."""
        return {
            "paths": {
                path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._hash_of(path)}"} for path in self._paths()
            }
        }

    def document(self, group_version: str) -> OpenApiDocument | None:
        """GET /openapi/v3/PATH, or None if nothing is served there.

        group_version: `api/v1` or `apis/apps/v1` as in the index; `v1` and `apps/v1` are taken too.
        """
        path = group_version.strip("/")
        if not path.startswith(("api/", "apis/")):
            path = f"apis/{path}" if "/" in path else f"api/{path}"
        if path not in self._paths():
            return None
        if path not in self._documents:
            self._documents[path] = OpenApiDocument(msgspec.json.encode(self._body(path)), self._hash_of(path))
        return self._documents[path]

    def v2(self, *, protobuf: bool) -> OpenApiDocument:
        """GET /openapi/v2: everything in one document."""
        key = "v2 protobuf" if protobuf else "v2"
        known = self._paths()
        if key not in self._documents:
            body = openapi2.document((self._body(path) for path in known), f"v1.{self._served.minor}.0")
            data = openapi2.encode(body) if protobuf else msgspec.json.encode(body)
            self._documents[key] = OpenApiDocument(data, hashlib.sha256(data).hexdigest().upper())
        return self._documents[key]

    def _paths(self) -> dict[str, tuple[str, str]]:
        """Path in the index -> (group, version), sorted."""
        if self._generation != self._served.generation:
            self._generation = self._served.generation
            found = sorted((group, v) for group, versions in self._served.groups().items() for v in versions)
            self._known = {f"apis/{group}/{v}" if group else f"api/{v}": (group, v) for group, v in found}
            fresh = {path: self._hash(*where) for path, where in self._known.items()}
            self._documents = {p: d for p, d in self._documents.items() if fresh.get(p) == d.hash}
            self._hashes = fresh
        return self._known

    def _hash_of(self, path: str) -> str:
        self._paths()
        return self._hashes[path]

    def _hash(self, group: str, version: str) -> str:
        """Known without making the document: it depends on facts, texts, kinds and this release only."""
        ours = [
            (kind.kind, kind.plural, kind.definition.spec) if isinstance(kind, CustomKind) else kind
            for kind in self._served.kinds_of(group, version)
        ]
        text = msgspec.json.encode((__version__, group, version, ours))
        return hashlib.sha256(_facts_hash() + text).hexdigest().upper()

    def _body(self, path: str) -> dict[str, Any]:
        group, version = self._known[path]
        paths: dict[str, Any] = {}
        wanted = {_DELETE_OPTIONS, _STATUS, f"{_META}WatchEvent"}
        custom: dict[str, Any] = {}
        for kind in self._served.kinds_of(group, version):
            if isinstance(kind, CustomKind):
                custom |= publish.schemas(kind, version)
                wanted |= {f"{_META}ObjectMeta", f"{_META}ListMeta"}
            paths |= _kind_paths(kind, group, version, self._served.subresources(kind, version), wanted)
        for (review_group, resource), (name, namespaced) in REVIEWS.items():
            if (review_group, version) == (group, "v1"):
                gvk = (review_group, version, name)
                wanted |= _names([gvk])
                where = f"/{path}/namespaces/{{namespace}}/{resource}" if namespaced else f"/{path}/{resource}"
                paths[where] = {"post": _operation("post", "create", gvk, gvk), **_parameters(namespaced, name=False)}
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": f"v1.{self._served.minor}.0"},
            "paths": paths,
            "components": {"schemas": dict(sorted({**_components(wanted), **custom}.items()))},
        }


def caching_headers(found: OpenApiDocument, asked_hash: str, now: float) -> dict[str, str]:
    """Response headers of a document. With the right `?hash=` it may be kept for ever, else it must be asked again.

    now: epoch seconds. (kubectl keeps documents on disk by these headers.)
    """
    headers = {"ETag": f'"{found.hash}"', "Vary": "Accept"}
    if asked_hash == found.hash:
        headers |= {"Cache-Control": "public, immutable", "Expires": formatdate(now + _YEAR_S, usegmt=True)}
    else:
        headers["Cache-Control"] = "no-cache, private"
    return headers


@cache
def _facts_hash() -> bytes:
    packed = files("dragoman.apiserver.facts").joinpath("schemas.json.gz").read_bytes()
    return hashlib.sha256(packed + digest()).digest()


# ---- paths


def _kind_paths(
    kind: Kind, group: str, version: str, subresources: tuple[str, ...], wanted: set[str]
) -> dict[str, Any]:
    gvk = (group, version, kind.kind)
    wanted |= _names([gvk, (group, version, kind.list_kind)])
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    listing = _operation("get", "list", gvk, (group, version, kind.list_kind))
    collection = {
        "get": listing,
        "post": _operation("post", "post", gvk, gvk),
        "delete": _operation("delete", "deletecollection", gvk, None),
        **_parameters(kind.namespaced, name=False),
    }
    one = {
        "get": _operation("get", "get", gvk, gvk),
        "put": _operation("put", "put", gvk, gvk),
        "patch": _operation("patch", "patch", gvk, gvk),
        "delete": _operation("delete", "delete", gvk, None),
        **_parameters(kind.namespaced, name=True),
    }
    scope = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
    paths: dict[str, Any] = {scope: collection, f"{scope}/{{name}}": one}
    if kind.namespaced:
        paths[f"{base}/{kind.plural}"] = {"get": listing}
    for subresource in subresources if group == kind.group else ():
        methods, body = _SUBRESOURCES.get(subresource, (("get",), None))
        body_gvk = body or gvk
        wanted |= _names([body_gvk])
        paths[f"{scope}/{{name}}/{subresource}"] = {
            **{method: _operation(method, _ACTIONS[method], body_gvk, body_gvk) for method in methods},
            **_parameters(kind.namespaced, name=True),
        }
    return paths


_ACTIONS = {"get": "get", "put": "put", "patch": "patch", "post": "post", "delete": "delete"}
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_LIST_PARAMETERS = {
    "allowWatchBookmarks": "boolean",
    "continue": "string",
    "fieldSelector": "string",
    "labelSelector": "string",
    "limit": "integer",
    "resourceVersion": "string",
    "resourceVersionMatch": "string",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}


def _operation(
    method: str, action: str, gvk: tuple[str, str, str], body: tuple[str, str, str] | None
) -> dict[str, Any]:
    group, version, kind = gvk
    out: dict[str, Any] = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        "responses": {"200": {"description": "OK", "content": _content(_name(body) if body else _STATUS)}},
    }
    if action in ("list", "deletecollection"):
        out["parameters"] = [_query(name, type_) for name, type_ in _LIST_PARAMETERS.items()]
    if method in ("post", "put", "patch"):
        names = [*_WRITE_PARAMETERS, "force"] if method == "patch" else _WRITE_PARAMETERS
        out["parameters"] = [_query(name, "boolean" if name == "force" else "string") for name in names]
        # kubectl takes a strategic patch wherever it is offered, and custom resources know none.
        types = [mime for mime in _PATCH_TYPES if gvk in definition_names() or "strategic" not in mime]
        content = {mime: {"schema": {"type": "object"}} for mime in types} if method == "patch" else None
        out["requestBody"] = {"required": True, "content": content or _content(_name(body) if body else "")}
    if method == "delete":
        out["requestBody"] = {"content": _content(_DELETE_OPTIONS)}
    return out


def _content(definition: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"$ref": _SCHEMAS + definition} if definition else {"type": "object"}
    return {"application/json": {"schema": schema}}


def _query(name: str, type_: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": type_, "uniqueItems": True}}


def _parameters(namespaced: bool, *, name: bool) -> dict[str, Any]:
    names = (["namespace"] if namespaced else []) + (["name"] if name else [])
    path = [{"name": entry, "in": "path", "required": True, "schema": {"type": "string"}} for entry in names]
    return {"parameters": path} if path else {}


# ---- schemas


def _name(gvk: tuple[str, str, str]) -> str:
    return definition_names().get(gvk) or (publish.definition_name(*gvk) if "." in gvk[0] else "")


def _names(gvks: Iterable[tuple[str, str, str]]) -> set[str]:
    return {name for gvk in gvks if (name := definition_names().get(gvk))}


def _components(wanted: set[str]) -> dict[str, Any]:
    """The wanted definitions and all they refer to, by name."""
    out: dict[str, Any] = {}
    pending = sorted(wanted, reverse=True)
    while pending:
        name = pending.pop()
        if name not in out:
            referred: set[str] = set()
            out[name] = _component(name, referred)
            pending.extend(sorted(referred - out.keys(), reverse=True))
    return dict(sorted(out.items()))


def _component(name: str, referred: set[str]) -> dict[str, Any]:
    schema = _schema(definitions()[name], referred)
    text = describe(name, "")
    if text:
        schema["description"] = text
    for member, entry in schema.get("properties", {}).items():
        text = describe(name, member)
        if text:
            _add_text(schema["properties"], member, entry, text)
    return schema


def _add_text(properties: dict[str, Any], member: str, entry: dict[str, Any], text: str) -> None:
    # A reference has no room for siblings in OpenAPI 3.0.
    properties[member] = {"allOf": [entry], "description": text} if "$ref" in entry else {**entry, "description": text}


def _schema(schema: dict[str, Any], referred: set[str]) -> dict[str, Any]:
    if schema.get("x-dragoman-form") == "quantity":
        return {"oneOf": [{"type": "string"}, {"type": "number"}]}
    if schema.get("format") == "int-or-string":
        return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            out[key] = {name: _schema(member, referred) for name, member in value.items()}
        elif key in ("items", "additionalProperties"):
            out[key] = _schema(value, referred)
        elif key != "$ref":
            out[key] = value
    if "$ref" in schema:
        referred.add(schema["$ref"])
        reference = {"$ref": _SCHEMAS + schema["$ref"]}
        return {**out, "allOf": [reference]} if out else reference
    return out
