"""CDI specs as they are written and read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dragoman.errors import Invalid
from dragoman.node import cdi
from dragoman.node.cdi import CdiDevice, DeviceNode, Edits, Hook, IntelRdt, Mount, NetDevice

ENV = Edits(env=("A=b",))

VERSIONS: dict[str, tuple[str, CdiDevice, str]] = {
    "plain": ("v.com/gpu", CdiDevice("gpu-0", container_edits=ENV), "0.3.0"),
    "mount type": ("v.com/gpu", CdiDevice("a", container_edits=Edits(mounts=(Mount("/h", "/c", "bind"),))), "0.4.0"),
    "host path": ("v.com/gpu", CdiDevice("a", container_edits=Edits(device_nodes=(DeviceNode("/c", "/h"),))), "0.5.0"),
    "digit first": ("v.com/gpu", CdiDevice("0f", container_edits=ENV), "0.5.0"),
    "dot in the class": ("v.com/g.pu", CdiDevice("a", container_edits=ENV), "0.6.0"),
    "annotations": ("v.com/gpu", CdiDevice("a", {"k": "v"}, ENV), "0.6.0"),
    "groups": ("v.com/gpu", CdiDevice("a", container_edits=Edits(additional_gids=(44,))), "0.7.0"),
    "rdt": ("v.com/gpu", CdiDevice("a", container_edits=Edits(intel_rdt=IntelRdt("c"))), "0.7.0"),
    "net devices": ("v.com/gpu", CdiDevice("a", container_edits=Edits(net_devices=(NetDevice("e0", "e1"),))), "1.1.0"),
    "rdt monitoring": (
        "v.com/gpu",
        CdiDevice("a", container_edits=Edits(intel_rdt=IntelRdt("c", enable_monitoring=True))),
        "1.1.0",
    ),
}


@pytest.mark.parametrize(("kind", "device", "version"), VERSIONS.values(), ids=VERSIONS)
def test_the_lowest_version_that_knows_what_is_used(kind: str, device: CdiDevice, version: str, tmp_path: Path) -> None:
    spec = cdi.made(kind, (device,))
    assert spec.cdi_version == version
    cdi.write(tmp_path / "a.json", spec)
    assert cdi.read(tmp_path / "a.json") == spec
    assert not list(tmp_path.glob(".*")), "nothing is left beside"


FAULTS: dict[str, tuple[str, tuple[CdiDevice, ...], str]] = {
    "no class": ("v.com", (CdiDevice("a"),), "kind: must be vendor/class"),
    "vendor with a digit first": (
        "0v/gpu",
        (CdiDevice("a"),),
        "kind: must be vendor/class, each beginning with a letter",
    ),
    "no devices": ("v/gpu", (), "devices: must name at least one device"),
    "device twice": ("v/gpu", (CdiDevice("a"), CdiDevice("a")), "devices[1].name: 'a' is defined twice"),
    "bad name": ("v/gpu", (CdiDevice("-a"),), "devices[0].name: must begin and end with a letter or digit"),
    "env": (
        "v/gpu",
        (CdiDevice("a", container_edits=Edits(env=("A",))),),
        "devices[0].containerEdits.env[0]: must be KEY=",
    ),
    "node type": (
        "v/gpu",
        (CdiDevice("a", container_edits=Edits(device_nodes=(DeviceNode("/d", type="x"),))),),
        "deviceNodes[0].type: must be b, c, u or p, got 'x'",
    ),
    "permissions": (
        "v/gpu",
        (CdiDevice("a", container_edits=Edits(device_nodes=(DeviceNode("/d", permissions="rx"),))),),
        "deviceNodes[0].permissions: may have r, w and m, got 'rx'",
    ),
    "hook": (
        "v/gpu",
        (CdiDevice("a", container_edits=Edits(hooks=(Hook("never", "/bin/x"),))),),
        "hooks[0].hookName: must be one of",
    ),
}


@pytest.mark.parametrize(("kind", "devices", "words"), FAULTS.values(), ids=FAULTS)
def test_what_a_runtime_would_refuse_is_not_made(kind: str, devices: tuple[CdiDevice, ...], words: str) -> None:
    with pytest.raises(Invalid) as error:
        cdi.made(kind, devices)
    assert words in str(error.value)


READ: dict[str, tuple[str, str]] = {
    "unknown field": ('{"cdiVersion":"0.5.0","kind":"v/c","devices":[{"name":"a","more":1}]}', "unknown field `more`"),
    "no json": ("{", "is not a CDI spec"),
    "version too low": (
        '{"cdiVersion":"0.3.0","kind":"v/c","devices":[{"name":"0"}]}',
        "cdiVersion: must be at least 0.5.0 for what the spec uses, got 0.3.0",
    ),
    "unknown version": ('{"cdiVersion":"9.0.0","kind":"v/c","devices":[{"name":"a"}]}', "cdiVersion: must be one of"),
}


@pytest.mark.parametrize(("content", "words"), READ.values(), ids=READ)
def test_reading_is_strict_and_names_the_file(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(content)
    with pytest.raises(Invalid) as error:
        cdi.read(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)


def test_yaml_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("cdiVersion: 0.5.0\nkind: v/c\ndevices:\n- name: a\n  containerEdits: {env: [A=1]}\n")
    assert cdi.read(path).devices[0].container_edits.env == ("A=1",)


def test_an_equal_file_is_left_alone(tmp_path: Path) -> None:
    path, spec = tmp_path / "a.json", cdi.made("v/c", (CdiDevice("a", container_edits=ENV),))
    cdi.write(path, spec)
    before = path.stat()
    cdi.write(path, spec)
    assert path.stat().st_ino == before.st_ino


def test_the_wire_has_cdi_names(tmp_path: Path) -> None:
    node = DeviceNode("/dev/x", "/dev/y", "c", 1, 2, 0o660, "rw", 0, 44)
    rdt = IntelRdt("c", "l3", "mb", True, True)
    spec = cdi.made("v/c", (CdiDevice("a", container_edits=Edits(device_nodes=(node,), intel_rdt=rdt)),))
    wire = msgspec.json.decode(msgspec.json.encode(spec))
    assert wire["devices"][0]["containerEdits"]["deviceNodes"] == [
        {
            "path": "/dev/x",
            "hostPath": "/dev/y",
            "type": "c",
            "major": 1,
            "minor": 2,
            "fileMode": 432,
            "permissions": "rw",
            "uid": 0,
            "gid": 44,
        }
    ]
    assert wire["devices"][0]["containerEdits"]["intelRdt"] == {
        "closID": "c",
        "l3CacheSchema": "l3",
        "memBwSchema": "mb",
        "enableCMT": True,
        "enableMBM": True,
    }
