"""Does every type have a name of its own, and is every word one of the field's? docs/glossary.md is the list."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dragoman"

TWICE = {
    "Attributes": "of one write (admission.Attributes) and of one question (authorizer.Attributes), as upstream has them"
}
"""Public type names that may be defined in several modules, each with the reason."""

VIEW = "of a node (snapshot.views) or of a device as selectors see it (api.selectors)"

PLACES_ALLOWED = {
    ("doubles", "cel"): "numbers of the selector language; in messages as upstream has them",
    ("piece", "cel"): "of a format string",
    ("sort", "cel"): "a function of the language, and what it costs",
    ("mapped", "cel/stdlib/net.py"): "IPv4-mapped addresses of IPv6",
    ("mapped", "explain/messages.py"): "upstream's words for a pod's reason",
    ("busy", "kubelet/shell/files.py"): "strerror(EBUSY)",
    ("sort", "daemon/scheduler_config.py"): "kube-scheduler's extension point queueSort and its plugin",
    ("sort", "kubelet/shell/text.py"): "the program of that name",
    ("guide", "daemon/coexistence.py"): "the folder of a page that help names",
    ("guide", "doctor/table.py"): "the folder of pages that fixes and sources name",
    ("view", "allocate/attribute_reads.py"): VIEW,
    ("view", "allocate/equivalence.py"): VIEW,
    ("view", "allocate/match.py"): VIEW,
    ("view", "allocate/verify.py"): VIEW,
}
"""Avoided words that are right in a place (a file, or a folder), each with the reason."""

STANDARD = {"sort", "sort_keys"}
"""Attributes and keywords of the standard library."""


class Avoided(NamedTuple):
    """A word or phrase that the glossary avoids, in these packages or (none named) everywhere."""

    words: tuple[str, ...]
    packages: tuple[str, ...]

    def concerns(self, place: str) -> bool:
        return not self.packages or any(place.startswith(f"{package}/") for package in self.packages)

    def stands_in(self, words: Sequence[str]) -> bool:
        size = len(self.words)
        for start in range(len(words) - size + 1):
            *head, last = words[start : start + size]
            if tuple(head) == self.words[:-1] and last in (self.words[-1], f"{self.words[-1]}s"):
                return True
        return False


def _glossary() -> list[Avoided]:
    """The last column of the glossary's tables: words and phrases, packages in parentheses behind a word."""
    found = []
    for line in (ROOT / "docs/glossary.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| ") or len(cells) != 4 or cells[0] == "word":
            continue
        for entry in re.findall(r"[^,(]+(?:\([^)]*\))?", cells[3]):
            words, _, packages = entry.strip().rstrip(")").partition(" (")
            if words:
                found.append(Avoided(tuple(words.lower().split()), tuple(re.findall(r"\w+", packages))))
    return found


AVOIDED = _glossary()


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def _named(file: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_identifiers(_tree(file))))


@functools.cache
def _said(file: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_texts(_tree(file))))


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
        for name in _public_types(_tree(file)):
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
            yield "" if node.attr in STANDARD else node.attr
        elif isinstance(node, ast.keyword):
            yield "" if node.arg is None or node.arg in STANDARD else node.arg
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.rpartition(".")[2]


def _words(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", text)]


def _avoided_in(place: str, texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """(place, word, text) of each avoided word that is not allowed there."""
    concerned = [avoided for avoided in AVOIDED if avoided.concerns(place)]
    likely = re.compile("|".join(avoided.words[-1] for avoided in concerned), re.I)
    for text in texts:
        if not likely.search(text):
            continue
        words = _words(text)
        for avoided in concerned:
            if avoided.stands_in(words) and not _allowed(place, avoided):
                yield place, " ".join(avoided.words), text


def _allowed(place: str, avoided: Avoided) -> bool:
    return any(avoided.words == (word,) and f"{place}/".startswith(f"{start}/") for word, start in PLACES_ALLOWED)


def test_the_glossary_lists_words_to_avoid() -> None:
    assert {("wish",), ("gave", "up"), ("given", "away", "twice")} <= {avoided.words for avoided in AVOIDED}
    view = next(avoided for avoided in AVOIDED if avoided.words == ("view",))
    assert view.concerns("allocate/search.py")
    assert not view.concerns("node/files.py")


def test_a_word_is_found_in_every_form_of_a_name() -> None:
    wish, gave_up = Avoided(("wish",), ()), Avoided(("gave", "up"), ())
    assert all(wish.stands_in(_words(name)) for name in ("_pod_wish", "PodWish", "WISH_MAX", "wishs", "a-wish.py"))
    assert not any(wish.stands_in(_words(name)) for name in ("wishbone", "swish", ""))
    assert gave_up.stands_in(_words("SearchGaveUp"))
    assert not gave_up.stands_in(_words("up_gave"))


def test_no_name_of_a_file_or_a_thing_has_an_avoided_word() -> None:
    found = set()
    for file in _files():
        place = file.relative_to(SOURCE).as_posix()
        found |= set(_avoided_in(place, [place, *_named(file)]))
    assert not found


def test_no_code_or_message_has_an_avoided_word() -> None:
    found = set()
    for file in _files():
        place = file.relative_to(SOURCE).as_posix()
        found |= set(_avoided_in(place, _said(file)))
    assert not found


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
        (file.relative_to(SOURCE).as_posix(), text) for file in _files() for text in _said(file) if PHRASES.search(text)
    }
    assert not found


PROSE = re.compile(
    r"\b(told|alike|wish(es|ed)?|moulds?|tellers?|terrains?|furnish(es|ed)?|anew|in vain|heed(s|ed)?|lest)\b", re.I
)
"""Words that neither the glossary nor the tools of Kubernetes use; listed only where no sentence needs them."""


def _prose() -> Iterator[tuple[str, str]]:
    """(file, line) of all sources but generated ones, and of all pages but two: the glossary lists the
    words, and conformance.md has what upstream's suite said."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for file in (*_files(), *(page for page in pages if page.name not in ("glossary.md", "conformance.md"))):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield file.relative_to(ROOT).as_posix(), line


def test_docs_docstrings_and_messages_are_plain_english() -> None:
    assert not [found for found in _prose() if PROSE.search(found[1])]


def test_no_help_text_or_message_says_a_word_twice() -> None:
    twice = re.compile(r"\b([a-z]{3,}(?: [a-z]+)?) \1\b(?! ?-)")
    assert not [(file.name, text) for file in _files() for text in _said(file) if twice.search(text)]


def test_names_in_tests_are_plain_english() -> None:
    """Functions and classes, which failures and `-k` show."""
    found = set()
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                words = " ".join(_words(node.name))
                found |= {(file.relative_to(ROOT).as_posix(), node.name)} if PROSE.search(words) else set()
    assert not found


def test_nothing_is_allowed_that_does_not_occur() -> None:
    found = set()
    for file in _files():
        place = file.relative_to(SOURCE).as_posix()
        for word, start in PLACES_ALLOWED:
            if f"{place}/".startswith(f"{start}/"):
                texts = (_words(text) for text in (*_named(file), *_said(file)))
                found |= {(word, start)} if any(Avoided((word,), ()).stands_in(words) for words in texts) else set()
    assert found == set(PLACES_ALLOWED)
