"""The committed facts: what the scripts in tools/ make of their sources."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dragoman.api.kinds import KINDS
from dragoman.apiserver import facts

TOOLS = Path(__file__).parent.parent.parent / "tools"


@pytest.mark.slow
def test_schemas_are_what_the_script_makes():
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("kubernetes-validate is not installed")
    spec = importlib.util.spec_from_file_location("make_schemas", TOOLS / "make_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert facts.read("schemas") == script.build()


def test_no_texts_of_others_are_committed():
    for schema in facts.read("schemas").values():
        assert "description" not in schema
        assert all("description" not in member for member in schema.get("properties", {}).values())


def test_protobuf_facts_know_every_served_kind_and_every_type_they_mention():
    table = facts.read("protobuf")
    messages = table["messages"]
    scalars = {"string", "bytes", "int32", "int64", "bool", "double"}
    assert {row[2] for rows in messages.values() for row in rows} <= scalars | set(messages)
    for kind in KINDS:
        for version in kind.versions:
            assert f"{table['packages'][kind.version_text(version)]}.{kind.kind}" in messages
    for rows in messages.values():
        numbers = [row[0] for row in rows]
        assert len(numbers) == len(set(numbers))
