"""docs/reference/lint.md names every code, and its examples are what it says they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragoman.api import files
from dragoman.apiserver.client_apply import applied
from dragoman.drivers.registry import known_drivers
from dragoman.lint.finding import CODES
from dragoman.lint.fix import fixed
from dragoman.lint.linter import LintTarget, lint

TARGET = LintTarget(known=known_drivers(), applied=applied)

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "lint.md").read_text(encoding="utf-8")
SECTIONS = {
    found[1]: found[2] for found in re.finditer(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
}
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
(DEVICES,) = re.findall(r"^```yaml devices\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
# Said beside the example's own code, for it cannot be helped.
ALSO = {"NestedRequest": {"OldVersion"}, "BareDevice": {"OldVersion"}, "UpdateRefused": {"RedefinedObject"}}


def scan(example: str) -> files.Scan:
    beside = example.startswith("# beside the devices\n")
    *earlier, last = example.split("# another file\n")
    others = [("devices.yaml", DEVICES)] if beside else [(f"earlier-{i}.yaml", text) for i, text in enumerate(earlier)]
    return files.scan([*others, ("f.yaml", last)], changes=True)


def test_every_code_is_there_once_with_its_severity() -> None:
    assert set(SECTIONS) == set(CODES)
    assert len(re.findall(r"^### `", TEXT, re.MULTILINE)) == len(CODES)
    for name, section in SECTIONS.items():
        assert section.strip().startswith(f"{CODES[name].severity.capitalize()}. "), name


@pytest.mark.parametrize("code", CODES)
def test_its_first_example_is_found_and_its_second_is_clean(code: str) -> None:
    wrong, *right = BLOCK.findall(SECTIONS[code])
    assert {finding.code for finding in lint(scan(wrong), TARGET)} - ALSO.get(code, set()) == {code}
    for example in right:
        assert lint(scan(example), TARGET) == []


@pytest.mark.parametrize("code", [code for code, section in SECTIONS.items() if "`--fix`" in section])
def test_what_fix_is_said_to_write_it_writes(code: str) -> None:
    wrong = BLOCK.findall(SECTIONS[code])[0]
    text, done = fixed(wrong, [finding for finding in lint(scan(wrong), TARGET) if finding.file == "f.yaml"])
    assert done
    assert lint(scan(text), TARGET) == []
