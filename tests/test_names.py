"""Does every type have a name of its own, and is every word one of the field's? docs/glossary.md is the list."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dragoman"

TWICE = {
    "Attributes": "of one write (admission.Attributes) and of one question (authorizer.Attributes), as upstream has them"
}
"""Public type names that may be defined in several modules, each with the reason."""

AVOIDED = set(
    re.findall(
        r"\w+",
        "wish wishes sight sights terrain terrains teller told tell tells story stories alike mould moulds piece pieces "
        "neighbour neighbours furnish furnished stray strays brought offer offers",
    )
)
"""Words that no identifier has as a part; the glossary names what stands for them."""

ELSEWHERE = {
    "cel": {"piece", "pieces"},  # of a format string
    "cli/output.py": {"piece", "pieces"},
    "kubelet": {"offers"},  # offers_health: a verb
}


def _files() -> Iterator[Path]:
    for file in sorted(SOURCE.rglob("*.py")):
        if "proto" not in file.parts:
            yield file


def _public_types(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and re.fullmatch(r"[A-Z]\w*[a-z]\w*", target.id):
                yield target.id


def test_no_public_type_name_stands_for_two_things() -> None:
    found = defaultdict(list)
    for file in _files():
        for name in _public_types(ast.parse(file.read_text())):
            if not name.startswith("_"):
                found[name].append(str(file.relative_to(SOURCE)))
    twice = {name: files for name, files in found.items() if len(files) > 1 and name not in TWICE}
    assert not twice
    assert not [name for name in TWICE if len(found[name]) < 2], "allowed twice, but defined once"


def _identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.rpartition(".")[2]


def _words(identifier: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", identifier)}


def test_no_identifier_has_a_word_that_the_glossary_avoids() -> None:
    found = set()
    for file in _files():
        place = file.relative_to(SOURCE).as_posix()
        allowed: set[str] = set().union(*(words for start, words in ELSEWHERE.items() if place.startswith(start)))
        for name in _identifiers(ast.parse(file.read_text())):
            found |= {(place, name) for _ in (_words(name) & AVOIDED) - allowed}
    assert not found


def test_the_glossary_names_every_avoided_word() -> None:
    rows = [line.split("|") for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| ")]
    avoided = {word.strip() for row in rows if len(row) > 5 for word in row[4].split(",")}
    plural = {word.rstrip("s") for word in AVOIDED}
    lacking = {
        word for word in plural if not any(word in entry or word.removesuffix("e") in entry for entry in avoided)
    }
    assert not lacking - {"furnish", "furnished", "tell", "storie"}


PHRASES = re.compile(
    r"nothing waits|waits and fits|has no place|what is the matter|given away twice|as predicted|nothing to say\b|"
    r"is no name for|is there twice|published no longer|pods it may|\bis told\b|\bwas told\b|what\? Say|which \w+\? Say"
)
"""What messages do not say; the glossary and Kubernetes' own tools have the words for it."""


def _texts(tree: ast.Module) -> Iterator[str]:
    """String constants but docstrings."""
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def test_no_message_has_a_phrase_of_ours() -> None:
    found = {
        (file.relative_to(SOURCE).as_posix(), text)
        for file in _files()
        for text in _texts(ast.parse(file.read_text()))
        if PHRASES.search(text)
    }
    assert not found
