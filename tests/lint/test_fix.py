from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api import convert, files
from dragoman.drivers.registry import known_drivers
from dragoman.lint.fix import fixed
from dragoman.lint.linter import LintTarget, lint


def run(text: str) -> tuple[str, list[str]]:
    after, done = fixed(text, lint(files.scan([("f.yaml", text)]), LintTarget(known=known_drivers())))
    return after, [finding.code for finding in done]


OLD = """\
# what we need
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata:
  name: one
spec:
  devices:
    requests:
    - name: gpu
      # which kind
      deviceClassName: gpu.example.com
      selectors:
      - cel:
          expression: |-
            device.driver == "gpu.example.com" &&
              true
      count: 2  # two of them
    - {name: nic, deviceClassName: nic.example.com}
"""
NEW = """\
# what we need
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: one
spec:
  devices:
    requests:
    - name: gpu
      # which kind
      exactly:
        deviceClassName: gpu.example.com
        selectors:
        - cel:
            expression: |-
              device.driver == "gpu.example.com" &&
                true
        count: 2 # two of them
    - {name: nic, exactly: {deviceClassName: nic.example.com}}
"""
UNTOUCHED = (
    "apiVersion: v1\nkind:   Pod   # odd  spacing\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
)


def test_comments_order_and_other_documents_survive() -> None:
    text = f"---\n{OLD}---\n{UNTOUCHED}--- # third\n{OLD.replace('one', 'two')}"
    after, done = run(text)
    assert after == f"---\n{NEW}---\n{UNTOUCHED}--- # third\n{NEW.replace('one', 'two')}"
    assert done == ["OldVersion", "OldVersion"]
    assert run(after) == (after, [])


FIXES: dict[str, tuple[str, str]] = {
    "a flat request in v1": (
        OLD.replace("v1beta1", "v1"),
        NEW,
    ),
    "a misspelt field": (
        NEW.replace("selectors:", "selector:", 1),
        NEW,
    ),
    "a v1beta1 that is v1 in truth": (NEW.replace("io/v1", "io/v1beta1"), NEW),
    "a slice": (
        "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n  driver: d\n  allNodes: false\n"
        "  nodeName: n1\n  pool: {name: p, generation: 1, resourceSliceCount: 1}\n  devices:\n    - name: g  # first\n      basic:\n"
        "        # facts\n        attributes:\n          a: {int: 1}\n    - name: h\n      basic: {}\n",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n  driver: d\n"
        "  nodeName: n1\n  pool: {name: p, generation: 1, resourceSliceCount: 1}\n  devices:\n    - name: g # first\n"
        "        # facts\n      attributes:\n        a: {int: 1}\n    - name: h\n",
    ),
    "an unquoted word": (
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels:\n    gpu: on  # yes\n    y: b\n    no: no\n",
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels:\n    gpu: 'on'  # yes\n    y: b\n    no: no\n",
    ),
    "a claim entry with source": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]\n"
        "  resourceClaims:\n  - name: g\n    source:\n      resourceClaimTemplateName: t  # mine\n",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]\n"
        "  resourceClaims:\n  - name: g\n    resourceClaimTemplateName: t # mine\n",
    ),
}


def _data(text: str) -> Any:
    return [document for document in yaml.safe_load_all(text) if document]


@pytest.mark.parametrize(("before", "after"), FIXES.values(), ids=FIXES)
def test_fixes(before: str, after: str) -> None:
    got, done = run(before)
    assert done
    assert _data(got) == _data(after)
    assert got.count("#") == after.count("#"), "no comment is lost"
    assert run(got)[1] == []


def test_items_of_a_list_are_fixed_in_their_list() -> None:
    items = [yaml.safe_load(OLD), yaml.safe_load(UNTOUCHED)]
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    after, done = run(text)
    assert done == ["OldVersion"]
    assert _data(after)[0]["items"] == [yaml.safe_load(NEW), yaml.safe_load(UNTOUCHED)]


def test_json_stays_json() -> None:
    after, done = run(json.dumps(yaml.safe_load(OLD)))
    assert done == ["OldVersion"]
    assert json.loads(after) == yaml.safe_load(NEW)


def test_what_nobody_can_fix_alone_stays() -> None:
    text = NEW.replace("count: 2", "count: two")
    assert run(text) == (text, [])


exact_request = st.fixed_dictionaries(
    {"deviceClassName": st.sampled_from(["a", "b.c"])},
    optional={
        "count": st.integers(1, 4),
        "allocationMode": st.sampled_from(["ExactCount"]),
        "selectors": st.just([{"cel": {"expression": 'device.driver == "x"'}}]),
        "tolerations": st.just([{"operator": "Exists"}]),
    },
)


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(exact_request, st.builds(lambda w: {"firstAvailable": [{"name": "s", **w}]}, exact_request)),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_a_fixed_claim_is_what_the_server_would_convert_it_to(exact_requests: list[dict[str, Any]], flow: bool) -> None:
    requests = [{"name": f"r{index}", **w} for index, w in enumerate(exact_requests)]
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": requests}},
    }
    text = yaml.safe_dump(old, default_flow_style=flow, sort_keys=False)
    after, _done = run(text)
    assert yaml.safe_load(after) == convert.to_stored("ResourceClaim", "v1beta1", old)


@pytest.mark.parametrize("style", ["|", ">-", ">", ""])
def test_expressions_are_put_right_in_the_style_they_are_written_in(style: str) -> None:
    lines = [
        "device.driver == 'gpu.nvidia.com' &&",
        "device.attributes['gpu.nvidia.com'].memory",
        ".compareTo(quantity('40Gi')) >= 0",
    ]
    pad = "\n        "
    expression = f"{style}{pad if style else ' '}{pad.join(lines)}"
    text = (
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}  # a tier\nspec:\n  selectors:\n"
        f"  # by memory\n  - cel:\n      expression: {expression}\n"
    )
    after, done = run(text)
    assert done == ["AttributeIsCapacity"]
    value = yaml.safe_load(after)["spec"]["selectors"][0]["cel"]["expression"]
    assert value == yaml.safe_load(text)["spec"]["selectors"][0]["cel"]["expression"].replace("attributes", "capacity")
    assert "# a tier" in after
    assert "# by memory" in after
    if style:
        assert after == text.replace("attributes", "capacity")


def test_for_servers_without_v1_old_shapes_are_put_right_in_their_own_version() -> None:
    nested = OLD.replace("deviceClassName: gpu.example.com", "exactly: {deviceClassName: gpu.example.com}")
    text = "\n".join(line for line in nested.splitlines() if "nic" not in line and "two of them" not in line)
    text = text.replace(
        '      selectors:\n      - cel:\n          expression: |-\n            device.driver == "gpu.example.com" &&\n              true\n',
        "",
    )
    findings = lint(files.scan([("f.yaml", text)]), LintTarget(minor=32))
    assert [finding.code for finding in findings] == ["NestedRequest"]
    after, _ = fixed(text, findings)
    assert lint(files.scan([("f.yaml", after)]), LintTarget(minor=32)) == []
    assert yaml.safe_load(after)["apiVersion"] == "resource.k8s.io/v1beta1"
