"""Situations that people report: does Dragoman place, refuse, explain and lint them right?

Facts are compared, not sentences, and once more with all names changed by a seed (stems change, numbers behind them
stay).
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.api import files
from dragoman.cli.main import main
from dragoman.drivers.registry import known_drivers
from dragoman.lint.linter import LintTarget, lint

from .situations import SITUATIONS, Docs

SEEDS = (0, 1, 2)
"""0: as written."""


# ---- names changed by a seed

WORDS = re.compile(r"[A-Za-z][A-Za-z0-9.-]*")
KEPT = {"default", "cpu", "pods", "batch"}
NAMING = ("name", "driver", "string", "counterSet", "nodeName", "deviceClassName")
RENAMED_KEYS = {"attributes", "capacity", "counters", "limits", "allocatable"}


class Names:
    """Words that a file makes up, each with another word; the number at the end of a word stays."""

    def __init__(self, docs: Docs, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.stems: dict[str, str] = {}
        for word in _made_up(docs):
            self._learn(word)

    def _learn(self, word: str) -> None:
        stem, _ = _cut(word)
        if not self.seed or word in KEPT or stem in self.stems:
            return
        letters = "".join(self.rng.choice("bcdfghjkmnpqrstvwxz") for _ in range(5))
        tail = "-" if stem.endswith("-") else ""
        self.stems[stem] = f"{letters}.example.org" if "." in stem else f"{letters}{tail}"

    def word(self, word: str) -> str:
        stem, number = _cut(word)
        return self.stems.get(word) or (f"{self.stems[stem]}{number}" if stem in self.stems else word)

    def text(self, text: str) -> str:
        """Every made-up word of a text changed."""
        return WORDS.sub(lambda found: _dotted(found[0], self), text)

    def docs(self, value: Any, key: str = "", *, keys: bool = False) -> Any:
        if isinstance(value, dict):
            return {
                (self.text(k) if keys else k): self.docs(
                    v, k, keys=k in RENAMED_KEYS or (key in ("capacity", "resources") and k == "requests")
                )
                for k, v in value.items()
            }
        if isinstance(value, list):
            return [self.docs(item, key) for item in value]
        if isinstance(value, str) and key not in (
            "kind",
            "apiVersion",
            "image",
            "effect",
            "operator",
            "phase",
            "allocationMode",
            "reason",
        ):
            return self.text(value)
        return value


def _dotted(word: str, names: Names) -> str:
    """The word, or its head: `device.driver` is none of ours, `x-0.` ends with a full stop."""
    if names.word(word) != word:
        return names.word(word)
    parts = word.split(".")
    if parts[0] == "device":
        return ".".join([parts[0], *(names.word(part) for part in parts[1:])])
    return ".".join(names.word(part) for part in parts)


def _cut(word: str) -> tuple[str, str]:
    stem = word.rstrip("0123456789")
    return (stem, word[len(stem) :]) if stem else (word, "")


def _made_up(value: Any, key: str = "") -> Iterator[str]:
    """Names of objects, drivers, devices, requests, attributes and counters, values of attributes."""
    if isinstance(value, dict):
        for k, v in value.items():
            is_amount = key == "capacity" and isinstance(v, dict) and "value" in v
            if (key in ("attributes", "counters") or is_amount) and "/" not in k:
                yield k
            if k in NAMING and isinstance(v, str) and re.fullmatch(WORDS, v):
                yield v
            yield from _made_up(v, k)
    elif isinstance(value, list):
        for item in value:
            yield from _made_up(item, key)


# ---- the check


def written(name: str, seed: int) -> tuple[str, Names, dict[str, list[str]]]:
    """The manifests of a situation with other names, the names, and facts that its changes add."""
    situation = SITUATIONS[name]
    docs = copy.deepcopy(situation.docs)
    more = situation.change(docs, random.Random(seed)) if situation.change is not None else {}
    names = Names(docs, seed)
    return yaml.safe_dump_all(names.docs(docs)), names, more


def cases() -> list[Any]:
    return [
        pytest.param(
            name, id=name, marks=[pytest.mark.xfail(strict=True, reason=found.missing)] if found.missing else []
        )
        for name, found in SITUATIONS.items()
    ]


def ran(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    main(list(args))
    return capsys.readouterr().out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", cases())
def test_places_and_explanations(name: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = SITUATIONS[name]
    text, names, more = written(name, seed)
    file = tmp_path / "report.yaml"
    file.write_text(text)
    flags = [flag for flag in case.flags if flag not in ("-n", "batch")]
    found = json.loads(ran(capsys, "simulate", "-f", str(file), "-o", "json", *flags))
    rejected = "".join(error["object"] + error["message"] for error in found["errors"])
    assert bool(rejected) == bool(case.rejected)
    assert [fact for fact in case.rejected if names.text(fact) not in rejected] == []
    pods = {f"{pod['namespace']}/{pod['name']}": pod for pod in found["pods"]}
    for key, place in case.places.items():
        pod = pods[names.text(key)]
        assert (pod["node"], placed(pod)) == expected(place, names), key
    for key, facts in case.facts.items():
        wanted = [names.text(fact) for fact in (*facts, *more.get(key, []))]
        kind, _, word = key.partition("/")
        about = f"{kind}/{names.text(word)}"
        text = ran(capsys, "explain", about, "-f", str(file), *case.flags)
        reported = json.dumps(json.loads(ran(capsys, "explain", about, "-f", str(file), "-o", "json", *case.flags)))
        for fact in wanted:
            assert fact in text, f"{about}: {fact!r} is not in:\n{text}"
        for word in (word for fact in wanted for word in WORDS.findall(fact) if word in names.stems.values()):
            assert word in reported, f"{about}: {word!r} is not in the JSON"


def expected(place: tuple[str, list[str]] | None, names: Names) -> tuple[str | None, list[str]]:
    return (None, []) if place is None else (names.text(place[0]), [names.text(device) for device in place[1]])


def placed(pod: dict[str, Any]) -> list[str]:
    if pod["node"] is None:
        return []
    given = [claim["allocation"] for claim in pod["claims"] if claim["allocation"] is not None]
    return [result["device"] for allocation in given for result in allocation["devices"]["results"]]


TARGET = LintTarget(known=known_drivers())
QUIET = ("UnusedClaim", "OldVersion")
"""True of many situations, and not what they are about."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SITUATIONS)
def test_lint_finds_the_mistakes_with_their_facts_and_no_other(name: str, seed: int) -> None:
    text, names, _ = written(name, seed)
    findings = [f for f in lint(files.scan([("f.yaml", text)]), TARGET) if f.code not in QUIET]
    wanted = SITUATIONS[name].lint
    assert [(f.code, f.subject) for f in findings] == [(w.code, names.text(w.subject)) for w in wanted]
    for finding, expected in zip(findings, wanted, strict=True):
        assert finding.line > 0
        for fact in expected.facts:
            assert names.text(fact) in f"{finding.message}; {finding.fix}"
