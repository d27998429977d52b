"""Sets of completion indexes as the API writes them: `0-2,5`. Exact, no sets of strings."""

from __future__ import annotations

from collections.abc import Iterable


def parsed(text: str | None) -> set[int]:
    """The indexes of a text; parts that are no numbers are skipped."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), int(last or first) + 1))
    return found


def text_of(indexes: Iterable[int]) -> str:
    """Sorted, three and more in a row as `first-last`."""
    parts: list[list[int]] = []
    for index in sorted(set(indexes)):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a},{b}" for a, b in parts)
