"""Is everything documented, linked and in use? Commands, flags, refusal codes, metrics; modules nobody imports."""

from __future__ import annotations

import ast
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import make_commands
import pytest

import dragoman
from dragoman.allocate import refusal as allocate_refusal
from dragoman.schedule import refusal as schedule_refusal

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dragoman"
COMMANDS = ROOT / "docs" / "reference" / "commands.md"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FORBIDDEN_WORDS = re.compile(r"(?:^|_)(?:util|utils|helper|helpers|manager|info|data|misc|common)(?:_|$)")


def _sections(page: str) -> dict[str, str]:
    """The text below each `## heading`."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_command_and_flag_is_documented() -> None:
    documented = _sections(COMMANDS.read_text())
    lacking = []
    for name, parser, _ in make_commands.parsers():
        section = documented.pop(name, "")
        flags = {option for action in parser._actions for option in action.option_strings} - {"-h", "--help"}
        reported = set(re.findall(r"`(--?[a-zA-Z][-a-z]*)`", section))
        lacking += [f"{name}: {flag} is not documented" for flag in sorted(flags - reported)]
        lacking += [f"{name}: {flag} does not exist" for flag in sorted(reported - flags)]
        if not section:
            lacking.append(f"{name} is not documented")
    lacking += [f"{name} does not exist" for name in documented]
    assert not lacking, f"`make docs` writes {COMMANDS.name} again: {lacking}"


HEAVY = [
    "aiohttp",
    "grpc",
    "rich",
    "cryptography",
    "uvicorn",
    "dragoman.daemon",
    "dragoman.schedule",
    "dragoman.allocate",
]


def test_help_loads_nothing_that_takes_long() -> None:
    """--help of any command answers at once: what decides, serves or reads is imported when a command runs."""
    words = sorted({module for module, _ in _commands()})
    program = (
        "import argparse, importlib, sys\n"
        f"for word in {words!r}:\n"
        "    importlib.import_module(f'dragoman.cli.{word}').arguments(argparse.ArgumentParser())\n"
        f"    print(word, *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == words


def _codes(module: object) -> Iterator[str]:
    for value in vars(module).values():
        code = getattr(value, "code", "") if isinstance(value, type) else ""
        if code:
            yield code


def test_every_refusal_code_is_documented_and_no_other() -> None:
    page = (ROOT / "docs/reference/refusals.md").read_text()
    documented = set(re.findall(r"^\| `([A-Za-z]+)` \|", page, flags=re.MULTILINE))
    real = {*_codes(allocate_refusal), *_codes(schedule_refusal)}
    assert real, "refusals have codes"
    assert not real - documented


def _missing(page: Path, targets: Iterable[str], base: Path) -> list[str]:
    return [f"{page.relative_to(ROOT)}: {target}" for target in targets if not (base / target).exists()]


def test_links_of_the_docs_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        text = page.read_text()
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
        broken += _missing(page, [link for link in links if "://" not in link], page.parent)
        broken += _missing(page, re.findall(r"(?<![\w./(\[])(docs/[\w/.-]+\.md)", text), ROOT)
    assert not broken


def test_docs_named_in_the_source_exist() -> None:
    broken = []
    for file in SOURCE.rglob("*.py"):
        broken += _missing(file, re.findall(r"docs/[\w/.-]+\.md", file.read_text()), ROOT)
    assert not broken


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [file.name[:4] for file in (ROOT / "docs/decisions").glob("*.md")]
    assert len(numbers) == len(set(numbers))


VENDORS = re.compile(r"nvidia|dra\.net|\b(?:mig|mps|xid|imex)\b", re.IGNORECASE)


def test_daemons_commands_and_lint_name_no_vendor() -> None:
    """What is a driver's own stands in its package; the rest asks `drivers.registry`."""
    found = [
        f"{file.relative_to(SOURCE)}: {match[0]}"
        for folder in ("daemon", "cli", "lint")
        for file in sorted((SOURCE / folder).rglob("*.py"))
        for match in VENDORS.finditer(file.read_text())
    ]
    assert not found


def test_every_driver_is_registered() -> None:
    from dragoman.drivers.registry import DRIVERS

    packages = {file.parent.name for file in (SOURCE / "drivers").glob("*/__init__.py")}
    assert packages == {entry.standalone.__module__.split(".")[2] for entry in DRIVERS}
    for field in ("command", "name"):
        names = [getattr(entry, field) for entry in DRIVERS]
        assert len(set(names)) == len(names)


# ---- modules


def _modules() -> Iterator[str]:
    for found in pkgutil.walk_packages([str(SOURCE)], "dragoman."):
        if ".proto" not in found.name:
            yield found.name


def _imports(file: Path, package: str) -> Iterator[str]:
    """Names of modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package.split(".")[: -node.level], *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _imported(folder: Path) -> set[str]:
    names: set[str] = set()
    for file in folder.rglob("*.py"):
        own = ".".join(["dragoman", *file.relative_to(SOURCE).with_suffix("").parts]) if folder == SOURCE else ""
        names |= set(_imports(file, own)) - {own, own.removesuffix(".__init__")}
    return names


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def test_no_module_is_dead() -> None:
    used = _imported(SOURCE)
    used |= {f"dragoman.cli.{module}" for module, _ in _commands()}
    used |= _imported(ROOT / "examples")  # what others build upon
    used |= set(_project()["entry-points"]["pytest11"].values())
    outside = _imported(ROOT / "tests") | _imported(ROOT / "bench")
    packages = {name for name in _modules() if (SOURCE / Path(*name.split(".")[1:])).is_dir()}
    dead = [
        name
        for name in _modules()
        if name not in used
        and name not in packages
        and not name.endswith(".__main__")
        and not (name.startswith("dragoman.testing.") and name in outside)
    ]
    assert not dead


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    """Distributions of requirements.in and pyproject.toml, and the modules that the source imports."""
    of_module = packages_distributions()
    imported = {
        name.lower().replace("_", "-")
        for module in {name.partition(".")[0] for name in _imported(SOURCE)} - {"dragoman", ""}
        for name in of_module.get(module, ())
    }
    lines = (ROOT / "requirements.in").read_text().splitlines()
    pinned = {line.lower() for line in lines if line and not line.startswith("#")} - BUILD
    project = _project()
    imported -= {"pytest"}  # who loads that module is pytest itself
    optional = {
        re.split(r"[><=;\[ ]", entry, maxsplit=1)[0].lower()
        for extra in project["optional-dependencies"].values()
        for entry in extra
    }
    assert optional <= imported, "an extra that nothing imports"
    imported -= optional
    declared = {re.split(r"[><=;\[ ]", entry, maxsplit=1)[0].lower() for entry in project["dependencies"]}
    assert pinned == declared
    assert imported - declared == set(), "imported, not declared"
    assert declared - imported - INDIRECT == set(), "declared, not imported"


BUILD = {"hatchling", "editables"}
INDIRECT = {"httptools", "nvidia-ml-py", "wsproto"}
"""Loaded by their names: uvicorn's parser, and the binding of NVML."""


def test_no_package_is_empty() -> None:
    empty = [
        str(folder.relative_to(ROOT))
        for folder in SOURCE.rglob("*")
        if folder.is_dir() and (folder / "__init__.py").exists() and not any(_content(folder))
    ]
    assert not empty


def _content(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if (
            file.is_file()
            and "__pycache__" not in file.parts
            and (file.name != "__init__.py" or file.read_text().strip())
        ):
            yield file


def _commands() -> list[tuple[str, str]]:
    from dragoman.cli.main import COMMANDS as TABLE

    return list(TABLE.values())


KUBERNETES_NAMES = {"pod_info"}
"""Names of modules that Kubernetes' own type has (PodInfo)."""


def test_modules_are_named_after_what_they_are() -> None:
    last = {name: name.rpartition(".")[2] for name in _modules()}
    assert not [name for name, word in last.items() if FORBIDDEN_WORDS.search(word) and word not in KUBERNETES_NAMES]


def test_every_module_opens_with_what_it_answers() -> None:
    silent = []
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        if "proto" in file.parts or not text.strip():
            continue
        if not ast.get_docstring(ast.parse(text)):
            silent.append(str(file.relative_to(ROOT)))
    assert not silent


def test_the_version_stands_in_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", dragoman.__version__)


WORDS = {
    "a path of somebody's machine": r"(?<![\w.])/(?:work|home/\w+|Users/\w+|root)/\w",
    "a mark of unfinished work": r"\b(?:TODO|FIXME|XXX)\b",
}


@pytest.mark.parametrize("pattern", WORDS.values(), ids=WORDS)
def test_the_tree_is_free_of(pattern: str) -> None:
    found = []
    for folder in ("src", "tests", "docs", "bench", "examples", "tools", "deploy"):
        for file in (ROOT / folder).rglob("*"):
            if (
                not file.is_file()
                or file == Path(__file__)
                or file.suffix not in {".py", ".md", ".yaml", ".toml", ".go"}
            ):
                continue
            found += [str(file.relative_to(ROOT)) for _ in re.finditer(pattern, file.read_text())]
    assert not found


def test_tests_stand_on_their_own() -> None:
    """They need nothing beside the checkout, change no import path, and wait as dragoman.testing.wait does."""
    waits = {
        "daemon/test_scheduler.py",
        "e2e/conftest.py",
        "real/process.py",
        "real/cluster.py",
        "reconcile/test_controllers_live.py",
    }  # on top of it
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name, text = path.relative_to(ROOT / "tests").as_posix(), path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "until" and name not in waits:
                found.append(f"{name}:{node.lineno} waits in its own way")
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path":
                found.append(f"{name}:{node.lineno} changes the import path: see pythonpath in pyproject.toml")
            if isinstance(node, ast.Attribute) and node.attr == "parents" and _above(node, tree, path):
                found.append(f"{name}:{node.lineno} looks beside the checkout")
    assert found == []


def _above(parents: ast.Attribute, tree: ast.Module, path: Path) -> bool:
    """Whether Path(__file__).parents[n] is above the project."""
    depth = len(path.relative_to(ROOT).parts) - 1
    return any(
        isinstance(node, ast.Subscript)
        and node.value is parents
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, int)
        and node.slice.value > depth
        for node in ast.walk(tree)
    )
