"""What is in the image: the same bytes each time, nothing that was not wanted, all of it listed."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import make_image
import oci
import pytest


def test_a_layer_is_the_same_whatever_the_order() -> None:
    files = {"b/c": oci.File(b"1"), "a": oci.File(link="b/c"), "b": oci.folder(0o700)}
    one, two = oci.layer(files), oci.layer(dict(reversed(files.items())))
    assert one == two
    assert oci.read(one.text) == files
    assert oci.Layer.of(one.packed) == one


def test_an_archive_names_its_blobs_by_their_hashes(tmp_path: Path) -> None:
    layers = [oci.layer({"bin/tool": oci.File(b"#!", 0o755)})]
    digest = oci.write(tmp_path / "one.tar", "example.com/tool:7", layers, {"User": "1"}, "amd64")
    oci.write(tmp_path / "two.tar", "example.com/tool:7", layers, {"User": "1"}, "amd64")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    found = _contents(tmp_path / "one.tar")
    for name, data in found.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/{oci._digest(data).replace(':', '/')}"
    [manifest] = json.loads(found["index.json"])["manifests"]
    assert manifest["digest"] == digest
    assert manifest["annotations"]["org.opencontainers.image.ref.name"] == "7"


def _contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        return {one.name: found.read() for one in opened if (found := opened.extractfile(one))}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the image, as the tool leaves it."""
    folder = tmp_path_factory.mktemp("image")
    try:
        make_image.build(folder, make_image.default_cache(), make_image.NAME)
    except make_image.Failed as error:
        pytest.skip(f"no image can be made here: {error}")
    return folder


def _layers(folder: Path) -> tuple[dict[str, object], list[dict[str, oci.File]]]:
    found = _contents(folder / "dragoman-image.tar")

    def blob(reference: dict[str, str]) -> bytes:
        return found[f"blobs/{reference['digest'].replace(':', '/')}"]

    [index] = json.loads(found["index.json"])["manifests"]
    manifest = json.loads(blob(index))
    layers = [oci.read(oci.Layer.of(blob(one)).text) for one in manifest["layers"]]
    return json.loads(blob(manifest["config"])), layers


@pytest.mark.slow
def test_what_the_image_holds(built: Path) -> None:
    settings, layers = _layers(built)
    assert settings["config"]["User"] == "65532:65532"  # type: ignore[index]
    files = {path: file for layer in layers for path, file in layer.items()}
    assert not any(file.mode & 0o6000 for file in files.values())
    assert not [path for path in files if re.search(r"/(sh|bash|dash|apt|dpkg|pip)$", path)]
    assert "usr/local/bin/dragoman" in files
    assert f"{make_image.SITE}/dragoman/testing/__init__.py" in files
    for path in [path for path in files if re.search(r"/dragoman/.*\.py$", path)]:
        folder, _, name = path.rpartition("/")
        compiled = files[f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-311.pyc"]
        assert str(built.parent).encode() not in compiled.data
    # Nobody writes there: folders of others' are root's and closed.
    assert all(not file.mode & 0o002 for path, file in files.items() if path != "tmp" and not file.link)


@pytest.mark.slow
def test_the_second_build_is_the_same(built: Path, tmp_path: Path) -> None:
    again = tmp_path / "cache"
    again.mkdir()
    for kept in ("debs", "wheels"):  # what was fetched is checked by its hashes; all else is made again
        (again / kept).symlink_to(make_image.default_cache() / kept)
    make_image.build(tmp_path / "image", again, make_image.NAME)
    for file in sorted(built.iterdir()):
        assert file.read_bytes() == (tmp_path / "image" / file.name).read_bytes(), file.name


@pytest.mark.slow
def test_the_lists_name_everything(built: Path) -> None:
    listed = json.loads((built / "dragoman-image.sbom.spdx.json").read_text())
    assert listed["spdxVersion"] == "SPDX-2.3"
    packages = {one["name"]: one for one in listed["packages"]}
    _, layers = _layers(built)
    found = {match[1] for path in layers[1] if (match := re.search(r"/([^/]+)-[^/-]+\.dist-info/METADATA$", path))}
    assert {name.replace("-", "_").lower() for name in found} <= {
        name.replace("-", "_").replace(".", "_").lower() for name in packages
    } | {name.replace("-", "_").lower() for name in packages}
    assert "hatchling" not in packages
    identifiers = [one["SPDXID"] for one in listed["packages"]]
    assert len(set(identifiers)) == len(identifiers)
    related = {one["relatedSpdxElement"] for one in listed["relationships"]}
    assert related == set(identifiers)
    text = (built / "dragoman-image.licences.txt").read_text()
    assert all(name in text for name in packages if name != "dragoman-image")
    wheel = json.loads(next(built.glob("dragoman-*.sbom.spdx.json")).read_text())
    assert not [one for one in wheel["packages"] if one["SPDXID"].startswith("SPDXRef-deb")]
    assert wheel["packages"][0]["checksums"]


def test_the_lock_names_each_package_once() -> None:
    rows = [line.split() for line in make_image.LOCK.read_text().splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows] == list(make_image.PACKAGES)
    assert all(re.fullmatch(r"[0-9a-f]{64}", row[2]) for row in rows)
