"""What lint says of the problems that people reported in public, as written and with names and counts changed by a seed.

The files stand in ../shared/cases/reports beside the checkout; without them the tests are skipped by name.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import yaml

from dragoman.api import files
from dragoman.lint.linter import lint
from tests.reports.test_reports import FOLDER, Docs, Names, read

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/cases/reports is not there")

SEEDS = range(4)
QUIET = ("UnusedClaim", "OldVersion")
"""True of many of the files, and not what they are about."""

Change = Callable[[Docs, random.Random], list[str]]


def fewer_devices(docs: Docs, rng: random.Random) -> list[str]:
    (resource_slice,) = [doc for doc in docs if doc["kind"] == "ResourceSlice"]
    left = resource_slice["spec"]["devices"] = resource_slice["spec"]["devices"][: rng.randint(2, 4)]
    return [f"its {len(left)} devices are ignored"]


def less_memory(docs: Docs, rng: random.Random) -> list[str]:
    for doc in docs:
        for device in doc["spec"].get("devices", ()) if doc["kind"] == "ResourceSlice" else ():
            device["capacity"]["memory"]["value"] = f"{rng.randint(41, 200)}Gi"
    return []


def one_too_many(docs: Docs, rng: random.Random) -> list[str]:
    have = rng.randint(5, 31)
    for doc in docs:
        if doc["kind"] == "ResourceSlice":
            doc["spec"]["devices"] = doc["spec"]["devices"][:have]
        if doc["kind"] == "ResourceClaim":
            doc["spec"]["devices"]["requests"][0]["exactly"]["count"] = have + 1
    return [f"asks for {have + 1} devices, and no node has more than {have}"]


# file: object, code, facts of message and fix, what to change beside names
EXPECTED: dict[str, tuple[str, str, list[str], Change | None]] = {
    "01-cel-missing-attribute-one-node": ("DeviceClass gpu", "UnguardedAttribute", ["which have no"], None),
    "02-memory-is-capacity-not-attribute": (
        "DeviceClass big",
        "AttributeIsCapacity",
        ["'memory' is published as", "capacity, not an attribute", "use device.capacity['gpu.example.com'].memory"],
        less_memory,
    ),
    "04-list-matchattribute-backtracking": (
        "ResourceSlice a",
        "GatedField",
        ["unless DRAListTypeAttributes is on"],
        None,
    ),
    "11-template-slice-count-zero": (
        "ResourceSlice tmpl",
        "NeverComplete",
        ["pool.resourceSliceCount is 0, the pool can never be complete"],
        fewer_devices,
    ),
    "12-ask-32-have-31": ("ResourceClaim default/c", "LargerThanAnyNode", [], one_too_many),
    "19-matchattribute-not-published-by-other-driver": (
        "ResourceClaim default/pair",
        "ConstraintNotShared",
        ["is published by 1 of the 2 drivers involved, not by nic.example.com", "there is nic.example.com/pcie"],
        None,
    ),
    "34-force-delete-and-recreate": ("Deployment default/app", "RolloutStuck", ["it never finishes"], None),
    "44-eight-pairs-seven-nics": ("ResourceClaim default/rails", "LargerThanAnyNode", [], None),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", EXPECTED)
def test_each_error_is_found_with_its_facts_and_no_other(name: str, seed: int) -> None:
    subject, code, facts, change = EXPECTED[name]
    docs = read(name)
    more = change(docs, random.Random(seed)) if change is not None else []
    names = Names(docs, seed)
    text = yaml.safe_dump_all(names.docs(docs))
    findings = [f for f in lint(files.scan([("f.yaml", text)])) if f.code not in QUIET]
    assert [(f.code, f.subject) for f in findings] == [(code, names.text(subject))]
    for fact in (*facts, *more):
        assert names.text(fact) in f"{findings[0].message}; {findings[0].fix}"
    assert findings[0].line > 0


def test_the_other_files_have_no_such_errors() -> None:
    found = {
        path.stem: [
            f"{f.code} {f.subject}" for f in lint(files.scan([(path.name, path.read_text())])) if f.code not in QUIET
        ]
        for path in sorted(FOLDER.glob("*.yaml"))
        if path.stem not in EXPECTED
    }
    assert {name: findings for name, findings in found.items() if findings} == {}
