"""OpenAPI v3: an index, documents that kubectl can use, headers that let it keep them."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from dragoman.api.kinds import KINDS, Kind
from dragoman.apiserver import openapi
from dragoman.apiserver.served import Served

DOCUMENTS = openapi.OpenApi(Served(everything=True))
NOW = 1767225600.0


def read(path: str) -> Any:
    found = DOCUMENTS.document(path)
    assert found is not None
    return msgspec.json.decode(found.body)


def test_the_index_names_every_group_and_version_with_its_hash():
    paths = DOCUMENTS.index()["paths"]
    served = {f"apis/{k.group}/{v}" if k.group else f"api/{v}" for k in KINDS for v in k.versions}
    assert served <= set(paths)
    for path, entry in paths.items():
        found = DOCUMENTS.document(path)
        assert found is not None
        assert entry["serverRelativeURL"] == f"/openapi/v3/{path}?hash={found.hash}"


def test_documents_are_found_by_group_and_version_too():
    assert DOCUMENTS.document("v1") == DOCUMENTS.document("api/v1")
    assert DOCUMENTS.document("apps/v1") == DOCUMENTS.document("apis/apps/v1")
    assert DOCUMENTS.document("apis/nope/v1") is None
    assert DOCUMENTS.document("") is None


@pytest.mark.parametrize("path", sorted(DOCUMENTS.index()["paths"]))
def test_every_reference_leads_somewhere(path):
    found = DOCUMENTS.document(path)
    assert found is not None
    text = found.body.decode()
    schemas = read(path)["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= set(schemas)
    assert "x-dragoman" not in text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_kind_can_be_explained_patched_and_validated(kind):
    for version in kind.versions:
        path = f"apis/{kind.group}/{version}" if kind.group else f"api/{version}"
        doc = read(path)
        scope = "namespaces/{namespace}/" if kind.namespaced else ""
        one = doc["paths"][f"/{path}/{scope}{kind.plural}/{{name}}"]
        gvk = {"group": kind.group, "version": version, "kind": kind.kind}
        for method in ("get", "put", "patch", "delete"):
            assert one[method]["x-kubernetes-group-version-kind"] == gvk
        assert "fieldValidation" in {parameter["name"] for parameter in one["patch"]["parameters"]}
        assert "application/apply-patch+yaml" in one["patch"]["requestBody"]["content"]
        known = [
            s for s in doc["components"]["schemas"].values() if gvk in s.get("x-kubernetes-group-version-kind", [])
        ]
        assert len(known) == 1
        for subresource in kind.subresources:
            assert f"/{path}/{scope}{kind.plural}/{{name}}/{subresource}" in doc["paths"]


def test_merge_keys_list_types_and_formats_are_there():
    schemas = read("api/v1")["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"] == "int-or-string"
    assert schemas["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"]["default"] == "TCP"


def test_our_own_kinds_are_described():
    schemas = read("apis/resource.k8s.io/v1")["components"]["schemas"]
    assert schemas["io.k8s.api.resource.v1.ResourceClaim"]["description"]
    spec = schemas["io.k8s.api.resource.v1.ExactDeviceRequest"]["properties"]
    assert all(member.get("description") for member in spec.values())


def test_a_document_with_its_hash_may_be_kept_for_ever():
    found = DOCUMENTS.document("api/v1")
    assert found is not None
    kept = openapi.caching_headers(found, found.hash, NOW)
    assert kept["Cache-Control"] == "public, immutable"
    assert kept["Expires"] == "Fri, 01 Jan 2027 00:00:00 GMT"
    for asked in ("", "0" * 64):
        assert "no-cache" in openapi.caching_headers(found, asked, NOW)["Cache-Control"]
        assert openapi.caching_headers(found, asked, NOW)["ETag"] == f'"{found.hash}"'


def test_a_new_kind_is_a_line_in_the_table_and_changes_only_its_group():
    thing = Kind("Thing", "things", "example.com", ("v1",), True)
    served = Served(everything=True)
    documents = openapi.OpenApi(served)
    before = documents.index()["paths"]
    served.put(thing, ("v1",))
    served.put(Kind("Gadget", "gadgets", "apps", ("v1",), True), ("v1",))
    after = documents.index()["paths"]
    assert set(after) - set(before) == {"apis/example.com/v1"}
    assert {path for path in before if before[path] != after[path]} == {"apis/apps/v1"}
    found = documents.document("apis/example.com/v1")
    assert found is not None
    assert "/apis/example.com/v1/namespaces/{namespace}/things/{name}" in msgspec.json.decode(found.body)["paths"]


def test_texts_are_of_fields_that_exist_and_of_all_of_our_group():
    from dragoman.apiserver.openapi_texts import _TEXTS
    from dragoman.apiserver.shape import definitions

    fields: dict[str, set[str]] = {}
    for name, schema in definitions().items():
        *_, group, _, kind = name.split(".")
        fields.setdefault(f"{group}.{kind}", {""}).update(schema.get("properties", ()))
    assert {name: set(texts) - fields[name] for name, texts in _TEXTS.items() if set(texts) - fields[name]} == {}
    shared = {"", "apiVersion", "kind", "metadata", "items"}
    ours = {name: members - shared for name, members in fields.items() if name.startswith("resource.")}
    missing = {name: members - set(_TEXTS.get(name, ())) for name, members in ours.items()}
    assert {name: members for name, members in missing.items() if members} == {}
