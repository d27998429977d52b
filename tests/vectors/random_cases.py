"""How many random calls has Kubernetes' own allocator answered as ours does? Goes on where the last run ended.

    PYTHONPATH=bench python -m tests.vectors.random_cases [--until 100000] [--seconds 600]

Each seed is one case (upstream_cases.py) over all features: lists, counters, shares, compatibility groups, derived
attributes, optional node operations and the rest. The state is `random-cases.json` in the cache folder of tests/real,
with every seed that differs; these are tried again first, and the exit status is 1 while there are some.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence

from peer import ask, peer

from dragoman.errors import Bug
from tests.real.build import cache
from tests.vectors.allocator_differences import difference
from tests.vectors.upstream_cases import random_case

BATCH = 200


def differing(seeds: Sequence[int], counts: Counter[str]) -> dict[str, str]:
    """Seed -> how our answer differs, for those whose difference is not documented; counts the documented ones."""
    cases = [random_case(seed) for seed in seeds]
    found = {}
    for seed, case, theirs in zip(seeds, cases, ask(cases, timeout_s=2), strict=True):
        try:
            line = difference(case, theirs, counts)
        except Bug as error:  # an invariant of ours is broken: the run goes on, the seed is kept
            line = f"defect: {error}"
        if line:
            found[str(seed)] = line
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vectors.random_cases")
    parser.add_argument("--until", type=int, default=100_000, metavar="CASES", help="end with so many in all")
    parser.add_argument("--seconds", type=float, default=600.0, help="end this run after so long")
    args = parser.parse_args(argv)
    if not peer():
        print("no peer: `make peers` builds it", file=sys.stderr)
        return 2
    file = cache() / "random-cases.json"
    state = json.loads(file.read_text()) if file.exists() else {"cases": 0, "counts": {}, "differ": {}}
    again = [int(seed) for seed in state["differ"]]
    state["differ"] = differing(again, Counter()) if again else {}
    end = time.monotonic() + args.seconds
    while state["cases"] < args.until and time.monotonic() < end:
        first = state["cases"]
        last = min(first + BATCH, args.until)
        counts: Counter[str] = Counter(state["counts"])
        state["differ"] |= differing(range(first, last), counts)
        state |= {"cases": last, "counts": dict(counts)}
        part = file.with_suffix(".part")
        part.write_text(json.dumps(state, indent=1))
        part.replace(file)
    print(f"{state['cases']} of {args.until} cases, {len(state['differ'])} differ; {state['counts']}")
    for seed, line in state["differ"].items():
        print(f"seed {seed}: {line}")
    return int(bool(state["differ"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
