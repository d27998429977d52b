"""Our own allocator vectors: NAME.in.yaml (a node, its cluster, claims to allocate together) and NAME.out.yaml.

The output lists for each claim without allocation, in order, `request driver/pool/device capacity=amount...`, and
where it is said `on key operator values` for the node selector; or `refused:` with the codes of the reasons.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.allocate.allocator import Allocation, Ask, allocate
from dragoman.api.codec import TYPES, decode
from dragoman.api.resource import AllocationResult
from dragoman.snapshot.change import Snapshot

VECTORS = sorted(Path(__file__).parent.glob("allocator/*.in.yaml"))


def reported(result: AllocationResult, *, with_selector: bool) -> list[str]:
    lines = []
    for entry in result.devices.results:
        amounts = [f"{name}={amount}" for name, amount in (entry.consumed_capacity or {}).items()]
        lines.append(" ".join([entry.request, f"{entry.driver}/{entry.pool}/{entry.device}", *amounts]))
    if with_selector and result.node_selector is not None:
        for term in result.node_selector.node_selector_terms:
            found = (*term.match_fields, *term.match_expressions)
            lines += [f"on {r.key} {r.operator} {' '.join(r.values)}" for r in found]
    return lines


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.name.removesuffix(".in.yaml"))
def test_vector(path: Path) -> None:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(path.read_text()))
    objects = [(d["kind"], decode(TYPES[d["kind"]], d)) for d in documents]
    claims = tuple(o for kind, o in objects if kind == "ResourceClaim" and o.status.allocation is None)
    snapshot = Snapshot.from_objects(objects)
    (node,) = snapshot.nodes
    numbers = itertools.count()
    answer = allocate(snapshot, [Ask(claims, node)], share_id=lambda: f"share-{next(numbers)}")
    expected = yaml.safe_load(path.with_name(path.name.replace(".in.", ".out.")).read_text())
    if not isinstance(answer, Allocation):
        assert {"refused": [reason.code for reason in answer.reasons]} == expected
    else:
        selectors = [any(line.startswith("on ") for line in lines) for lines in expected]
        assert [reported(r, with_selector=w) for r, w in zip(answer.results[0], selectors, strict=True)] == expected


def test_there_are_vectors() -> None:
    assert VECTORS
