"""The list of known mistakes (`make mutants`) fits the source and is documented; running it is a target of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import mutants
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_can_be_put_back(mutant: mutants.Mutant) -> None:
    text = mutants.mutated(mutant)
    ast.parse(text)
    assert text != (ROOT / mutants.source_of(mutant)).read_text()
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).is_file(), test


def test_the_document_lists_them_all() -> None:
    document = mutants.DOCUMENT.read_text()
    for mutant in mutants.MUTANTS:
        assert f"| `{mutant.name}` | {mutant.mistake} |" in document


def test_names_are_unique() -> None:
    names = [mutant.name for mutant in mutants.MUTANTS]
    assert len(names) == len(set(names))
