"""What does this server serve? Legacy and aggregated discovery, made from what is served.

`kubectl drain` and older clients read the legacy documents, current ones the aggregated list
(apidiscovery.k8s.io/v2). Bodies are made once and carry an ETag, the hash of the body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver.reviews import REVIEWS
from dragoman.apiserver.served import METRICS, METRICS_GROUP, Served

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
# subresource -> (group, version, kind of the body; empty: the parent's own, verbs)
_SUBRESOURCES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "status": ("", "", "", ("get", "patch", "update")),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "binding": ("", "v1", "Binding", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "log": ("", "", "", ("get",)),
    "ephemeralcontainers": ("", "", "", ("get", "patch", "update")),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    "finalize": ("", "", "", ("update",)),
    "approval": ("", "", "", ("get", "patch", "update")),
}
_NO_COLLECTION_DELETE = ("namespaces",)


class DiscoveryDocument(msgspec.Struct, frozen=True):
    """A body and its ETag."""

    body: bytes
    etag: str


def document(obj: Object) -> DiscoveryDocument:
    """Encode once."""
    body = msgspec.json.encode(obj)
    return DiscoveryDocument(body, '"' + hashlib.sha256(body).hexdigest().upper() + '"')


def _verbs(kind: Kind) -> list[str]:
    return [verb for verb in VERBS if verb != "deletecollection" or kind.plural not in _NO_COLLECTION_DELETE]


def legacy_resources(served: Served, group: str, version: str) -> Object:
    """APIResourceList of a group's version."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": list(_legacy(served, group, version)),
    }


def _legacy(served: Served, group: str, version: str) -> Iterator[Object]:
    for kind in served.kinds_of(group, version):
        resource: Object = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": _verbs(kind),
        }
        if kind.short:
            resource["shortNames"] = list(kind.short)
        if kind.categories:
            resource["categories"] = list(kind.categories)
        yield resource
        for name in served.subresources(kind, version):
            sub_group, sub_version, sub_kind, verbs = _SUBRESOURCES[name]
            resource = {
                "name": f"{kind.plural}/{name}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub_kind or kind.kind,
                "verbs": list(verbs),
            }
            if sub_kind:
                resource |= {"group": sub_group, "version": sub_version}
            yield resource
    for plural, review, namespaced, verbs in _answered(group):
        singular = "" if group == METRICS_GROUP else review.lower()
        yield {"name": plural, "singularName": singular, "namespaced": namespaced, "kind": review, "verbs": list(verbs)}


def _answered(group: str) -> Iterator[tuple[str, str, bool, tuple[str, ...]]]:
    """Resources that are answered and not stored: (plural, kind, namespaced, verbs)."""
    for (review_group, plural), (review, namespaced) in REVIEWS.items():
        if review_group == group:
            yield plural, review, namespaced, ("create",)
    if group == METRICS_GROUP:
        for plural, (kind, namespaced) in METRICS.items():
            yield plural, kind, namespaced, ("get", "list")


def _aggregated_resources(served: Served, group: str, version: str) -> list[Object]:
    out: list[Object] = []
    for kind in served.kinds_of(group, version):
        resource: Object = {
            "resource": kind.plural,
            "responseKind": {"group": group, "version": version, "kind": kind.kind},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "singularResource": kind.singular,
            "verbs": _verbs(kind),
        }
        if kind.short:
            resource["shortNames"] = list(kind.short)
        if kind.categories:
            resource["categories"] = list(kind.categories)
        subresources: list[Object] = []
        for name in served.subresources(kind, version):
            sub_group, sub_version, sub_kind, verbs = _SUBRESOURCES[name]
            response = (
                {"group": sub_group, "version": sub_version, "kind": sub_kind}
                if sub_kind
                else {"group": group, "version": version, "kind": kind.kind}
            )
            subresources.append({"subresource": name, "responseKind": response, "verbs": list(verbs)})
        if subresources:
            resource["subresources"] = subresources
        out.append(resource)
    for plural, review, namespaced, verbs in _answered(group):
        out.append(
            {
                "resource": plural,
                "responseKind": {"group": group, "version": version, "kind": review},
                "scope": "Namespaced" if namespaced else "Cluster",
                "singularResource": "" if group == METRICS_GROUP else review.lower(),
                "verbs": list(verbs),
            }
        )
    return out


def aggregated(served: Served, *, core: bool, api: str = "v2") -> Object:
    """APIGroupDiscoveryList: of the core group (/api) or of the others (/apis)."""
    items: list[Object] = []
    for group, versions in served.groups().items():
        if (group == "") is not core:
            continue
        listed: list[Object] = [
            {"version": version, "freshness": "Current", "resources": _aggregated_resources(served, group, version)}
            for version in versions
        ]
        metadata: Object = {"name": group} if group else {}
        items.append({"metadata": metadata, "versions": listed})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{api}", "metadata": {}, "items": items}


def legacy_versions() -> Object:
    """APIVersions of /api."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def legacy_group(served: Served, group: str) -> Object:
    """APIGroup of /apis/GROUP."""
    versions = served.groups()[group]
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": listed, "preferredVersion": listed[0]}


def legacy_groups(served: Served) -> Object:
    """APIGroupList of /apis."""
    named = [legacy_group(served, group) for group in served.groups() if group]
    for entry in named:
        entry.pop("kind")
        entry.pop("apiVersion")
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}


def version_text(minor: int) -> Object:
    """/version; gitVersion tells that this is no kube-apiserver."""
    return {
        "major": "1",
        "minor": str(minor),
        "gitVersion": f"v1.{minor}.0+dragoman",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "cpython",
        "platform": "linux/amd64",
    }
