"""Equal parts of slices are one object, and nothing else about them changes."""

from __future__ import annotations

from typing import Any

from dragoman.api import codec
from dragoman.api.resource import ResourceSlice


def slice_of(index: int) -> dict[str, Any]:
    device = {
        "name": f"gpu-{index}",
        "attributes": {"model": {"string": "A"}, "uuid": {"string": f"u{index}"}, "n": {"int": 1}, "b": {"bool": True}},
        "capacity": {"memory": {"value": "80Gi"}},
    }
    return {"spec": {"driver": "d", "devices": [device]}}


def test_equal_attributes_and_capacities_are_kept_once() -> None:
    one, two = (codec.decode(ResourceSlice, slice_of(index)).spec.devices[0] for index in (1, 2))
    assert one.attributes["model"] is two.attributes["model"]
    assert one.capacity["memory"] is two.capacity["memory"]
    assert one.attributes["uuid"].string == "u1"
    assert two.attributes["uuid"].string == "u2"


def test_equal_numbers_of_other_types_stay_what_they_are() -> None:
    device = codec.decode(ResourceSlice, slice_of(1)).spec.devices[0]
    assert device.attributes["n"].int_ == 1
    assert device.attributes["n"].bool_ is None
    assert device.attributes["b"].bool_ is True


def test_quantities_keep_their_texts() -> None:
    texts = []
    for text in ("1024", "1Ki"):
        body = slice_of(1)
        body["spec"]["devices"][0]["capacity"]["memory"]["value"] = text
        texts.append(str(codec.decode(ResourceSlice, body).spec.devices[0].capacity["memory"].value))
    assert texts == ["1024", "1Ki"]


def test_the_same_version_of_a_slice_is_one_object_and_another_content_is_not() -> None:
    def decoded(index: int) -> ResourceSlice:
        return codec.decode(ResourceSlice, {"metadata": {"uid": "u-slice", "resourceVersion": "7"}, **slice_of(index)})

    first, again, other = decoded(1), decoded(1), decoded(2)
    assert first is again
    assert other.spec.devices[0].name == "gpu-2"
