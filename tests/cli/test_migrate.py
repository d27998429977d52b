"""Does `dragoman migrate` print, write and refuse as it says?"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dragoman.cli.main import guarded, main

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/device-plugin/train.yaml"


def test_files_are_printed_one_by_one_and_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "-f", str(EXAMPLE)]) == 0
    there, said = capsys.readouterr()
    assert [document["kind"] for document in yaml.safe_load_all(there)] == [
        "Deployment", "ResourceQuota", "ResourceClaimTemplate",
    ]  # fmt: skip
    assert "2 rewritten, 0 refused, 0 losses" in said
    file = tmp_path / "dra.yaml"
    file.write_text(there)
    assert main(["migrate", "-f", str(file), "--to", "device-plugin", "--write"]) == 0
    assert file.read_text() == EXAMPLE.read_text()


def test_a_diff_shows_what_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "-f", str(EXAMPLE), "--diff"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "-            nvidia.com/gpu: 2   # data parallel" in lines
    assert "+          - name: gpu   # data parallel" in lines


def test_a_refusal_names_the_line_and_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    resources:\n"
        "      limits:\n        koordinator.sh/gpu: 50\n"
    )
    assert main(["migrate", "-f", str(file)]) == 1
    out, said = capsys.readouterr()
    assert out == file.read_text()
    assert f"{file}:9: error: koordinator.sh/gpu: it is a share of a GPU in percent" in said
    assert "[NoCounterpart] (Pod p: spec.containers[0].resources.limits[koordinator.sh/gpu])" in said


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "name the files to migrate"),
        (["-f", "BROKEN"], "broken YAML"),
        (["-f", "nowhere.yaml"], "no such file"),
        (["-f", "BROKEN", "--to", "device-plugin", "--strategy", "extended-resource"], "is for --to dra"),
    ],
)
def test_bad_input_is_one_error(
    words: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [\n")
    assert guarded(["migrate", *(word.replace("BROKEN", str(broken)) for word in words)]) == 2
    assert error in capsys.readouterr().err
