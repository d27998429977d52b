"""Ask Kubernetes' own allocator and CEL about the project's cases and keep the answers in tests/vectors/recorded.

    make vectors

Needs Go and the modules of bench/upstream (`make peers`). The tests read what is recorded and need neither.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "vectors" / "recorded"
DEPTH = 3
RANDOM = range(10_000, 10_150)
"""Seeds of random calls that are recorded; the tests with the peer take others."""
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from peer import LIBRARY, ask, ask_selectors, version  # noqa: E402

from tests.vectors import allocator_scenarios, language_cases, selector_cases, upstream_cases  # noqa: E402
from tests.vectors.allocator_calls import SHARE, digest  # noqa: E402


def write(name: str, content: dict[str, Any]) -> None:
    """One JSON object, every answer on a line of its own, so that changes can be read."""
    text = _text(content, 0) + "\n"
    assert json.loads(text) == content
    (RECORDED / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{name}: {text.count(chr(10))} lines\n")


def _text(value: Any, depth: int) -> str:
    if isinstance(value, dict) and depth < DEPTH:
        inner = ",\n".join(f"{json.dumps(key, ensure_ascii=False)}: {_text(v, depth + 1)}" for key, v in value.items())
        return f"{{\n{inner}\n}}"
    if isinstance(value, list) and depth < DEPTH + 1:
        return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n]"
    return json.dumps(value, ensure_ascii=False)


def provenance(library: str) -> dict[str, str]:
    return {"answers of": f"{library} {version(library)}", "recorded by": "tools/record_vectors.py"}


def language() -> None:
    def short(text: str, answer: dict[str, Any]) -> list[Any]:
        if "compile" in answer:
            return [text, "no program" if "program instantiation" in answer["compile"] else "refused"]
        if "error" in answer:
            return [text, "fails", answer["type"]]
        return [text, answer["type"], answer["value"]]

    def section(texts: Iterable[str]) -> list[list[Any]]:
        all_texts = list(dict.fromkeys(texts))
        asked = [{"language": True, "expression": text} for text in all_texts]
        return [short(*pair) for pair in zip(all_texts, ask_selectors(asked), strict=True)]

    sections = {name: section(make()) for name, make in language_cases.SECTIONS.items()}
    write("language.json", {**provenance("k8s.io/apiserver"), "sections": sections})


def selectors() -> None:
    def entry(case: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if "compile" in answer:
            return {**case, "compile": answer["compile"].split("\n")[0]}
        return {**case, **{key: answer[key] for key in ("match", "error", "cost", "maxCost") if key in answer}}

    groups = {}
    for group, cases in selector_cases.requests().items():
        device = selector_cases.device_of(group)
        answers = ask_selectors({**device, **case} for case in cases)
        groups[group] = {"device": device, "cases": [entry(*pair) for pair in zip(cases, answers, strict=True)]}
    write("selectors.json", {**provenance(LIBRARY), "groups": groups})


def allocator() -> None:
    def entry(case: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        assert not answer["error"], answer
        (node,) = answer["nodes"]
        for result in node["results"] or ():
            for device in result["devices"].get("results") or ():
                if "shareID" in device:  # drawn at random
                    device["shareID"] = SHARE
        kept = {"results": node["results"], "error": node["error"], "timedOut": node["timedOut"]}
        return {"case": digest(case), "error": "", "nodes": [kept]}

    def answers(cases: list[dict[str, Any]], timeout_s: float) -> dict[str, Any]:
        return {
            case["name"]: entry(case, answer)
            for case, answer in zip(cases, ask(cases, timeout_s=timeout_s), strict=True)
        }

    calls = {
        "scenarios": answers(list(allocator_scenarios.SCENARIOS.values()), 10.0),
        "random": answers([upstream_cases.random_case(seed) for seed in RANDOM], 10.0),
    }
    write("allocator.json", {**provenance(LIBRARY), "calls": calls})


if __name__ == "__main__":
    allocator()
    language()
    selectors()
