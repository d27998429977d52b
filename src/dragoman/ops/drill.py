"""What is a drill? Steps that break a cluster on purpose, what must be seen then, and how it is mended; read from YAML.

    drill = parse(text, "gpu-lost.yaml")
    drill.provoke[0].fault

`given` comes first, then the state of the cluster is remembered; after `provoke`, `recover` and `finally` it must be as
it was. Never runs anything.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import yaml

from dragoman.errors import Invalid
from dragoman.ops.rules import ALERTS

API_VERSION, KIND = "dragoman.dev/v1alpha1", "Drill"
COMMANDS = ("kubectl", "dragoman")
_ALERTS = frozenset(alert.name for alert in ALERTS)


class FaultStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault as docs/reference/faults.md has it. name: of its ConfigMap, for `mend`. data: its entries."""

    name: str
    data: dict[str, str]


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must be seen. One of alert, object, explain; within: in the cluster's time.

    alert with state firing or silent. object: kind/name or kind/namespace/name, with path and one of equals, matches,
    or state present or absent. explain: an object for `dragoman explain`, with says.
    """

    alert: str = ""
    object: str = ""
    explain: str = ""
    state: Literal["firing", "silent", "present", "absent", ""] = ""
    path: str = ""
    equals: Any = msgspec.UNSET
    matches: str = ""
    says: tuple[str, ...] = ()
    within: str = "2m"


class DrillStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do or see. run: a kubectl or dragoman command that must end with `exit` and print all of `says`."""

    fault: FaultStep | None = None
    mend: str = ""
    advance: str = ""
    apply: tuple[dict[str, Any], ...] = ()
    delete: str = ""
    run: str = ""
    exit: int = 0
    says: tuple[str, ...] = ()
    expect: Expectation | None = None

    @property
    def what(self) -> str:
        """In a few words."""
        if self.fault is not None:
            return "fault " + " ".join(f"{key}={value}" for key, value in self.fault.data.items())
        if self.apply:
            names = (f"{body.get('kind')}/{(body.get('metadata') or {}).get('name')}" for body in self.apply)
            return f"apply {', '.join(names)}"
        if self.expect is not None:
            return f"expect {_expected(self.expect)}"
        for word in ("mend", "advance", "delete", "run"):
            if text := getattr(self, word):
                return text if word == "run" else f"{word} {text}"
        return "nothing"


def _expected(expectation: Expectation) -> str:
    if expectation.alert:
        return f"alert {expectation.alert} {expectation.state}"
    if expectation.explain:
        return f"explain {expectation.explain} to say {'; '.join(expectation.says)}"
    if expectation.state:
        return f"{expectation.object} {expectation.state}"
    wanted = f"matching {expectation.matches}" if expectation.matches else f"= {expectation.equals}"
    return f"{expectation.object} {expectation.path} {wanted}"


class Drill(msgspec.Struct, frozen=True):
    """One drill. up: flags of the cluster it runs in. fires: alerts that may fire beside those expected."""

    name: str
    summary: str
    up: tuple[str, ...] = ()
    runbook: str = ""
    fires: tuple[str, ...] = ()
    given: tuple[DrillStep, ...] = ()
    provoke: tuple[DrillStep, ...] = ()
    recover: tuple[DrillStep, ...] = ()
    end: tuple[DrillStep, ...] = ()

    @property
    def steps(self) -> tuple[DrillStep, ...]:
        """All, in order."""
        return (*self.given, *self.provoke, *self.recover, *self.end)

    @property
    def expected(self) -> frozenset[str]:
        """Alerts that must fire."""
        found = (step.expect for step in self.steps if step.expect is not None)
        return frozenset(expect.alert for expect in found if expect.alert and expect.state == "firing")


class _Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: str
    kind: str
    metadata: _Meta
    summary: str
    up: tuple[str, ...] = ()
    runbook: str = ""
    also_fires: tuple[str, ...] = ()
    given: tuple[DrillStep, ...] = ()
    provoke: tuple[DrillStep, ...] = ()
    recover: tuple[DrillStep, ...] = ()
    finally_: tuple[DrillStep, ...] = msgspec.field(default=(), name="finally")


def parse(text: str, file: str) -> Drill:
    """The drill of a file. Raises Invalid with file and field."""
    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}, line {mark.line + 1}" if mark is not None else file
        raise Invalid(where, f"is not YAML: {getattr(error, 'problem', None) or 'unreadable'}") from None
    if not isinstance(body, dict) or body.get("kind") != KIND or body.get("apiVersion") != API_VERSION:
        raise Invalid(file, f"must be one object of kind {KIND}, apiVersion {API_VERSION}")
    try:
        found = msgspec.convert(body, _File)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise Invalid(f"{file}: {where.rstrip('`').lstrip('.') or 'document'}", what) from None
    drill = Drill(
        found.metadata.name,
        found.summary,
        found.up,
        found.runbook,
        found.also_fires,
        found.given,
        found.provoke,
        found.recover,
        found.finally_,
    )
    for part, steps in (
        ("given", found.given),
        ("provoke", found.provoke),
        ("recover", found.recover),
        ("finally", found.finally_),
    ):
        for index, step in enumerate(steps):
            _check(step, f"{file}: {part}[{index}]")
    return drill


def _check(step: DrillStep, where: str) -> None:
    given = [word for word in ("fault", "mend", "advance", "apply", "delete", "run", "expect") if getattr(step, word)]
    if len(given) != 1:
        raise Invalid(
            where, f"must have one of fault, mend, advance, apply, delete, run, expect; got {given or 'none'}"
        )
    if step.run and step.run.split()[0] not in COMMANDS:
        raise Invalid(f"{where}.run", f"must begin with {' or '.join(COMMANDS)}, got {step.run.split()[0]!r}")
    expect = step.expect
    if expect is None:
        return
    if sum(map(bool, (expect.alert, expect.object, expect.explain))) != 1:
        raise Invalid(f"{where}.expect", "must have one of alert, object, explain")
    if expect.alert and expect.alert not in _ALERTS:
        raise Invalid(f"{where}.expect.alert", f"there is no alert {expect.alert!r}")
    if expect.alert and expect.state not in ("firing", "silent"):
        raise Invalid(f"{where}.expect.state", "must be firing or silent")
    if expect.explain and not expect.says:
        raise Invalid(f"{where}.expect.says", "must be set")
    if (
        expect.object
        and not expect.state
        and not (expect.path and (expect.matches or expect.equals is not msgspec.UNSET))
    ):
        raise Invalid(f"{where}.expect", "needs state, or path with equals or matches")
