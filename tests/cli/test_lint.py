from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.errors import DragomanError

FLAT = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - name: r  # one
      deviceClassName: c
      selectors: [{cel: {expression: "true"}}]
"""
NESTED = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - name: r  # one
      exactly:
        deviceClassName: c
        selectors: [{cel: {expression: "true"}}]
"""


def test_findings_go_to_stdout_and_decide_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(FLAT)
    assert main(["lint", "-f", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{file}:8: error: deviceClassName, selectors of a request")
    assert err == "1 document checked: 1 error\n"
    file.write_text(NESTED)
    assert main(["lint", "-f", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


def test_json_and_sarif_are_whole_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(FLAT)
    assert main(["lint", "-f", str(file), "-o", "json"]) == 1
    assert [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]] == ["FlatRequest"]
    assert main(["lint", "-f", str(file), "-o", "sarif"]) == 1
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"][0]["ruleId"] == "FlatRequest"


def test_fix_writes_the_file_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(FLAT)
    assert main(["lint", "-f", str(file), "--fix"]) == 0
    assert file.read_text().replace("r # one", "r  # one") == NESTED
    assert capsys.readouterr().err.startswith(f"fixed: {file}:8: FlatRequest ResourceClaim default/c")


def test_fix_of_standard_input_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(FLAT.encode())))
    assert main(["lint", "-f", "-", "--fix"]) == 0
    assert capsys.readouterr().out.replace("r # one", "r  # one") == NESTED


BAD = {
    "no file": (["lint"], "-f: name the files to lint"),
    "a file that is not there": (["lint", "-f", "/nowhere.yaml"], "no such file"),
    "a version of another age": (["lint", "-f", "-", "--kubernetes", "1.5"], "must be 1.30 to 1.37"),
    "an unknown gate": (["lint", "-f", "-", "--feature-gates", "DRAMagic=true"], "unknown feature gate"),
}


@pytest.mark.parametrize(("argv", "message"), BAD.values(), ids=BAD)
def test_bad_usage_is_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(DragomanError) as caught:
        main(argv)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
"""


def test_a_dump_is_what_the_files_are_judged_against(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, dump = tmp_path / "claim.yaml", tmp_path / "dump.yaml"
    file.write_text(NESTED.replace("deviceClassName: c", "deviceClassName: gpus"))
    dump.write_text(f"{CLASS}---\n{FLAT.replace('name: c}', 'name: other}')}")
    assert main(["lint", "-f", str(file), "--against", str(dump)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{file}:9: warning: there is no DeviceClass gpus in the cluster [UnknownClass] "
        "(ResourceClaim default/c: spec.devices.requests[0].exactly.deviceClassName)",
        "    9 |         deviceClassName: gpus",
        "      |                          ^^^^",
        "  help: write gpu",
    ], "nothing is said of the dump's own objects"
    assert err == "1 document checked: 1 warning\n"


def test_an_edit_is_shown_where_linting_again_proves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(FLAT)
    main(["lint", "-f", str(file)])
    assert "      +      exactly:" in capsys.readouterr().out.splitlines()
    monkeypatch.setattr("dragoman.lint.fix.fixed", lambda text, findings: (text + "# nothing\n", findings))
    main(["lint", "-f", str(file)])
    shown = capsys.readouterr().out
    assert "help: move them under `exactly`" in shown
    assert "+# nothing" not in shown
    breaking = FLAT.replace("requests:", "requests: 3 #")
    monkeypatch.setattr("dragoman.lint.fix.fixed", lambda _text, findings: (breaking, findings))
    main(["lint", "-f", str(file)])
    assert "requests: 3" not in capsys.readouterr().out, "an edit that makes another error is no help"
