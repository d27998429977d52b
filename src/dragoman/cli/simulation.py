"""What does `dragoman simulate` do? Reads, changes the state, decides pod by pod, explains, prints."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dragoman.cli import changes, output, source
from dragoman.cli.simulate import options_of
from dragoman.errors import Invalid
from dragoman.explain import report as say
from dragoman.explain.explanation import Explanation, explain_unit
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.schedule.units import SchedulingContext
from dragoman.schedule.whatif import DecidedUnit, expanded, settled, steps, units

EXPLAINED_MAX = 500
"""Pods with a place, and pods without, that are explained with all facts; of more only the decision is told."""
EXPLAIN_S = 0.7
"""What contradiction and hints may take together, over all refused pods."""


def run(args: argparse.Namespace) -> int:
    """Decide the unscheduled pods in file order; 1 if one of them has no place or would lose it."""
    if not args.filename:
        raise Invalid("-f", "name the files to simulate; - reads standard input")
    context = SchedulingContext(new_id=Entropy().uuid4, options=options_of(args))
    try:
        world = source.from_files(args.filename)
    except Invalid:
        if args.output == "json" and "-" not in args.filename:  # standard input cannot be read twice
            output.write(json.dumps({"pods": [], "errors": source.errors_in(args.filename)}, indent=2))
        raise
    changed = changes.changed(settled(expanded(world.snapshot)), args)
    clock = Clock()
    now, budget = clock.utc(), Budget(clock, EXPLAIN_S)
    order = (*world.order, *changed.order)
    answers: list[Explanation] = []
    explained: Counter[bool] = Counter()
    for step in steps(changed.snapshot, units(changed.snapshot, order), now, context):
        brief = is_brief(step, explained)
        with budget.spent(step) as over:
            answers += explain_unit(step, now, context, over, brief=brief)
    if args.output == "json":
        reported = {"pods": [say.as_json(answer) for answer in answers], **changed.as_json(), "errors": []}
        output.write(json.dumps(reported, indent=2))
    else:
        _print(answers, changed)
    return 0 if all(answer.verdict.node for answer in answers) and not changed.displaced else 1


def is_brief(step: DecidedUnit, explained: Counter[bool]) -> bool:
    """Whether enough pods of its kind (with a place or without) were explained before; counts it in told_of."""
    waits = _waits(step)
    explained[waits] += len(step.verdicts)
    return explained[waits] > EXPLAINED_MAX


def _waits(step: DecidedUnit) -> bool:
    return any(verdict.node is None for verdict in step.verdicts)


class Budget:
    """EXPLAIN_S for the explanations of many pods, deciding not counted; each_s: the most that one may take."""

    def __init__(self, clock: Clock, each_s: float) -> None:
        self.clock = clock
        self.each_s = each_s
        self.left_s = EXPLAIN_S

    @contextmanager
    def spent(self, step: DecidedUnit) -> Iterator[Callable[[], bool]]:
        """What is done within for pods without a place is paid for; gives what says that it has had its part."""
        start = self.clock.monotonic()
        yield deadline(self.clock, min(self.each_s, self.left_s))
        if _waits(step):
            self.left_s -= self.clock.monotonic() - start


def deadline(clock: Clock, seconds: float) -> Callable[[], bool]:
    """Says True once so many seconds are over."""
    end = clock.monotonic() + seconds
    return lambda: clock.monotonic() >= end


def _print(answers: list[Explanation], changed: changes.ChangedSnapshot) -> None:
    output.prose(changed.lines())
    if not answers:
        output.say("no unscheduled pods in these files")
        return
    output.write(table(answers))
    for answer in answers:
        verdict = answer.verdict
        if verdict.node is None:
            output.write("")
            decided = "is not decided" if verdict.refused and verdict.refused.undecided else "has no place"
            output.prose(
                [f"pod {'/'.join(verdict.pod)} {decided}:", *(f"  {line}" for line in say.reason_lines(answer))]
            )


def table(answers: list[Explanation]) -> str:
    """Where each pod goes and what it gets."""
    body: list[tuple[Any, ...]] = []
    for answer in answers:
        verdict = answer.verdict
        place = verdict.node or ("not decided" if verdict.refused and verdict.refused.undecided else "none")
        lines = say.devices(verdict) or [""]
        body.append((f"{verdict.pod[0]}/{verdict.pod[1]}", place, lines[0]))
        body += [("", "", line) for line in lines[1:]]
    return output.rows(("POD", "NODE", "DEVICES"), body)
