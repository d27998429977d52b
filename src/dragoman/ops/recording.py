"""What did a cluster show, moment by moment? Pages of metrics, as a test of promtool with the rules as they are.

    recording = Recording(); recording.add(page); recording.expect("DRAClaimPending", firing=True)
    recording.unit_test("rules.yaml")    # for `promtool test rules`

Pages are STEP_S of the cluster's time apart: rules run with their real durations, however fast that time passed.
"""

from __future__ import annotations

import re
from typing import Any

from dragoman.ops.rules import ALERTS

STEP_S = 15
_SERIES = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)")
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
USED = frozenset(name for alert in ALERTS for name in _NAME.findall(alert.expr))


class Recording:
    """Series that the rules use, and what alerts must be when."""

    def __init__(self) -> None:
        self.length = 0
        self._series: dict[str, list[str]] = {}
        self._expected: list[tuple[int, str, bool]] = []

    def add(self, page: str) -> None:
        """The next page, in the text format of Prometheus."""
        for line in page.splitlines():
            found = _SERIES.match(line)
            if found is None or found[1] not in USED:
                continue
            values = self._series.setdefault(found[1] + (found[2] or ""), [])
            self._pad(values)
            values.append(_number(found[3]))
        self.length += 1

    def _pad(self, values: list[str]) -> None:
        missing = self.length - len(values)
        if missing > 0:
            # A series that a scrape lacks ends at once, as Prometheus has it.
            values += ["stale" if values and values[-1] not in ("stale", "_") else "_", *["_"] * (missing - 1)]

    def expect(self, alert: str, *, firing: bool) -> None:
        """Of the newest page."""
        self._expected.append((self.length - 1, alert, firing))

    def unit_test(self, rule_file: str, expected: frozenset[str], allowed: frozenset[str]) -> dict[str, Any]:
        """The file for promtool: what was expected, each of `expected` once and over, and no others but `allowed`."""
        for values in self._series.values():
            self._pad(values)
        last = self.length - 1
        checks = [_check(at, _firing(alert), int(firing)) for at, alert, firing in self._expected]
        for alert in sorted(expected):
            now, before = _firing(alert), _firing(alert, f" offset {STEP_S}s")
            span = f"[{self.length * STEP_S}s:{STEP_S}s]"
            checks.append(_check(last, f"sum_over_time((({now}) > bool ({before})){span})", 1))
            checks.append(_check(last, now, 0))
        names = "|".join(sorted(expected | allowed)) or "none"
        others = f'count(count_over_time(ALERTS{{alertstate="firing",alertname!~"{names}"}}[{self.length * STEP_S}s]))'
        checks.append(_check(last, f"{others} or vector(0)", 0))
        series = [{"series": name, "values": " ".join(values)} for name, values in sorted(self._series.items())]
        test = {"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": checks}
        return {"rule_files": [rule_file], "evaluation_interval": f"{STEP_S}s", "tests": [test]}


def _firing(alert: str, offset: str = "") -> str:
    """1 or 0."""
    return f'clamp_max(count(ALERTS{{alertname="{alert}",alertstate="firing"}}{offset}) or vector(0), 1)'


def _check(at: int, expr: str, value: int) -> dict[str, Any]:
    return {"expr": expr, "eval_time": f"{at * STEP_S}s", "exp_samples": [{"labels": "{}", "value": value}]}


def _number(text: str) -> str:
    number = float(text)
    return (
        text if number != number or number in (float("inf"), float("-inf")) else f"{number:.9f}".rstrip("0").rstrip(".")
    )
