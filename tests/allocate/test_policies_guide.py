"""The policy that the guide writes does what the guide says."""

from __future__ import annotations

import re
from pathlib import Path

from dragoman.allocate.allocator import Allocation, AllocatorOptions, allocate, survey
from dragoman.allocate.refusal import Refusals
from dragoman.allocate.values import Ask
from dragoman.snapshot.change import Snapshot
from tests.allocate.shortforms import claim, device, device_class, given, held, ids, node, resource_slice, wants

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "policies.md"


def test_the_policy_of_the_guide_takes_even_devices_and_the_emptiest_node() -> None:
    reported, written = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    names: dict[str, AllocatorOptions] = {}
    exec(compile(reported, str(GUIDE), "exec"), names)
    assert [count for _, count in names["options"].demand.kinds] == [40, 100]
    exec(compile(written, str(GUIDE), "exec"), names)
    options = names["options"]
    devices = [device(f"gpu-{index}", attrs={"index": index}) for index in (1, 3, 4)]
    snapshot = Snapshot.from_objects(
        [
            node("n1"),
            node("n2"),
            device_class(),
            resource_slice(devices, name="s1", pool="n1", nodeName="n1"),
            resource_slice(devices, name="s2", pool="n2", nodeName="n2"),
            held("gpu-1", "n1"),
        ]
    )
    answer = allocate(snapshot, [Ask((claim(wants()),), "n1")], options, share_id=ids())
    assert isinstance(answer, Allocation)
    assert given(answer) == ["r=n1/gpu-4"]
    found = survey(snapshot, [claim(wants())], options)
    assert not isinstance(found, Refusals)
    assert min(found.classes, key=lambda equivalent: equivalent.rank()).nodes == ["n2"]
