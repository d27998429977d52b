"""What does this server serve? Legacy and aggregated discovery, made from the table of kinds.

`kubectl drain` and older clients read the legacy documents, current ones the aggregated list
(apidiscovery.k8s.io/v2). Bodies are made once and carry an ETag, the hash of the body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from dragoman.api.kinds import KINDS, Kind
from dragoman.api.shape import Object
from dragoman.apiserver.reviews import REVIEWS

EVENTS_GROUP = "events.k8s.io"
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
}
# Order of groups decides what a bare name means: core events before events.k8s.io.
_FIRST = ("", "apps", "batch", "resource.k8s.io")


class DiscoveryDocument(msgspec.Struct, frozen=True):
    """A body and its ETag."""

    body: bytes
    etag: str


def document(obj: Object) -> DiscoveryDocument:
    """Encode once."""
    body = msgspec.json.encode(obj)
    return DiscoveryDocument(body, '"' + hashlib.sha256(body).hexdigest().upper() + '"')


def groups() -> dict[str, tuple[str, ...]]:
    """Every group with its versions, preferred first; the core group is ""."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        versions = found.setdefault(kind.group, [])
        versions.extend(version for version in kind.versions if version not in versions)
    for group, _ in REVIEWS:
        found.setdefault(group, ["v1"])
    found.setdefault("autoscaling", ["v1"])
    found[EVENTS_GROUP] = ["v1"]
    rank = {group: index for index, group in enumerate(_FIRST)}
    return {g: tuple(sorted(found[g], key=_priority)) for g in sorted(found, key=lambda g: (rank.get(g, 99), g))}


def _priority(version: str) -> tuple[int, str]:
    stage = 0 if "beta" not in version and "alpha" not in version else 1 if "beta" in version else 2
    return stage, "".join(chr(255 - ord(c)) for c in version)


def kinds_of(group: str, version: str) -> list[Kind]:
    """The kinds of a group's version."""
    if group == EVENTS_GROUP:
        return [kind for kind in KINDS if kind.kind == "Event"]
    return [kind for kind in KINDS if kind.group == group and version in kind.versions]


def _singular(kind: Kind) -> str:
    return kind.kind.lower()


def legacy_resources(group: str, version: str) -> Object:
    """APIResourceList of a group's version."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": list(_legacy(group, version)),
    }


def _legacy(group: str, version: str) -> Iterator[Object]:
    for kind in kinds_of(group, version):
        resource: Object = {
            "name": kind.plural,
            "singularName": _singular(kind),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(VERBS),
        }
        if kind.short:
            resource["shortNames"] = list(kind.short)
        if kind.categories:
            resource["categories"] = list(kind.categories)
        yield resource
        for name in kind.subresources if group != EVENTS_GROUP else ():
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
    for (review_group, plural), (review, namespaced) in REVIEWS.items():
        if review_group == group:
            yield {
                "name": plural,
                "singularName": review.lower(),
                "namespaced": namespaced,
                "kind": review,
                "verbs": ["create"],
            }


def _aggregated_resources(group: str, version: str) -> list[Object]:
    out: list[Object] = []
    for kind in kinds_of(group, version):
        resource: Object = {
            "resource": kind.plural,
            "responseKind": {"group": group, "version": version, "kind": kind.kind},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "singularResource": _singular(kind),
            "verbs": list(VERBS),
        }
        if kind.short:
            resource["shortNames"] = list(kind.short)
        if kind.categories:
            resource["categories"] = list(kind.categories)
        subresources: list[Object] = []
        for name in kind.subresources if group != EVENTS_GROUP else ():
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
    for (review_group, plural), (review, namespaced) in REVIEWS.items():
        if review_group == group:
            out.append(
                {
                    "resource": plural,
                    "responseKind": {"group": group, "version": version, "kind": review},
                    "scope": "Namespaced" if namespaced else "Cluster",
                    "singularResource": review.lower(),
                    "verbs": ["create"],
                }
            )
    return out


def aggregated(*, core: bool, api: str = "v2") -> Object:
    """APIGroupDiscoveryList: of the core group (/api) or of the others (/apis)."""
    items: list[Object] = []
    for group, versions in groups().items():
        if (group == "") is not core:
            continue
        listed: list[Object] = [
            {"version": version, "freshness": "Current", "resources": _aggregated_resources(group, version)}
            for version in versions
        ]
        metadata: Object = {"name": group} if group else {}
        items.append({"metadata": metadata, "versions": listed})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{api}", "metadata": {}, "items": items}


def legacy_versions() -> Object:
    """APIVersions of /api."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def legacy_group(group: str) -> Object:
    """APIGroup of /apis/GROUP."""
    versions = groups()[group]
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": listed, "preferredVersion": listed[0]}


def legacy_groups() -> Object:
    """APIGroupList of /apis."""
    named = [legacy_group(group) for group in groups() if group]
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
