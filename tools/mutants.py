"""Do the tests notice the mistakes that were made before, here and upstream? Each is put back in a copy, one at a time.

    python tools/mutants.py              # what has no result yet; ends with 1 if any survives
    python tools/mutants.py --again NAME ...
    python tools/mutants.py --table      # docs/reference/mutants.md again, from the results

A mutant is a replacement of one piece of text that must occur exactly once (tests/test_mutants.py checks that), and the
tests that should find it. A result holds as long as mutant, source file and tests are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".mutants" / "results.json"
DOCUMENT = ROOT / "docs" / "reference" / "mutants.md"
LIMIT_S = 900
KEPT = ("src", "tests", "tools", "bench", "examples", "docs", "deploy", "pyproject.toml", "README.md", "Makefile")


class Mutant(NamedTuple):
    """One mistake. mistake: what goes wrong with it. tests: arguments of pytest."""

    name: str
    mistake: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "lease-without-version",
        "a lease is written without resourceVersion: two candidates overwrite each other and both lead",
        "cluster/lease.py",
        'meta = old.get("metadata") or {"name"',
        'meta = {"name"',
        ("tests/cluster/test_lease.py",),
    ),
    Mutant(
        "lease-past-deadline",
        "a leader leads on past its deadline while the server cannot be reached",
        "cluster/lease.py",
        "while self._clock.monotonic() - self._renewed_s < self._settings.deadline_s:",
        "while True:",
        ("tests/cluster/test_lease.py",),
    ),
    Mutant(
        "binding-without-uid",
        "a binding names no uid: the decision for a pod that is gone binds the next one of its name",
        "cluster/commit.py",
        '"metadata": _named(pod.namespace, pod.name, pod.uid),',
        '"metadata": _named(pod.namespace, pod.name, ""),',
        ("tests/cluster/test_commit.py",),
    ),
    Mutant(
        "checkpoint-after-the-fact",
        "the checkpoint knows of a preparation only when it is over: a crash in between leaks the device",
        "node/checkpoint.py",
        "        self._write(Contents(SCHEMA, self.boot_id, {**self.claims, record.uid: record}, gone))",
        "        contents = Contents(SCHEMA, self.boot_id, {**self.claims, record.uid: record}, gone)\n"
        "        if record.state is PrepareState.STARTED:\n"
        "            self._contents = contents\n"
        "            return\n"
        "        self._write(contents)",
        ("tests/node/test_prepare.py", "tests/node/test_checkpoint.py"),
    ),
    Mutant(
        "stale-watch",
        "a watch goes on from a version that a restored server does not have yet: changes are missed",
        "cluster/http.py",
        "if path in self._watched:",
        "if path in ():",
        ("tests/cluster/test_watch.py", "tests/cluster/test_http.py"),
    ),
    Mutant(
        "assumption-lost",
        "any event of an object ends what was assumed of it: informer and assume cache race, a device goes out twice",
        "cluster/cache.py",
        "for overlay in [o for o in overlays if o.written and o.seen(change.object)]:",
        "for overlay in list(overlays):",
        ("tests/cluster/test_watch.py", "tests/daemon/test_scheduler.py"),
    ),
    Mutant(
        "relist-keeps-the-gone",
        "objects that vanished while no watch ran stay known after a new list",
        "cluster/watch.py",
        "for key in known if key not in found]",
        "for key in known if key not in found and False]",
        ("tests/cluster/test_watch.py",),
    ),
    Mutant(
        "pool-complete-too-early",
        "a pool counts as complete before all of its slices are there",
        "snapshot/pools.py",
        "complete = len(resource_slices) == expected",
        "complete = len(resource_slices) <= expected",
        ("tests/allocate/test_allocator.py", "tests/allocate/test_diagnosis.py", "tests/allocate/test_verify.py"),
    ),
    Mutant(
        "leaked-counter",
        "a rejected candidate leaves its counters drawn: rewinding restores what was set before, not what was new",
        "allocate/ledger.py",
        "                del book[key]",
        "                pass",
        ("tests/allocate/test_ledger.py", "tests/laws/test_ledger_laws.py"),
    ),
    Mutant(
        "undo-forgets-intersection",
        "an undo keeps the intersection that a rejected device had narrowed",
        "allocate/ledger.py",
        "        self._set(self.states, key, state)",
        "        self.states[key] = state",
        ("tests/allocate/test_ledger.py", "tests/laws/test_ledger_laws.py", "tests/allocate/test_search.py"),
    ),
    Mutant(
        "counters-not-drawn",
        "devices held since an earlier cycle draw nothing from the counters of their pool",
        "allocate/counters.py",
        "left.get((use.key, counter), 0) - amount",
        "left.get((use.key, counter), 0)",
        ("tests/allocate/test_counters.py",),
    ),
    Mutant(
        "shares-not-counted",
        "shares given in an earlier cycle take nothing from the capacity of their device",
        "allocate/device_state.py",
        "for name, amount in holder.consumed.items():",
        "for name, amount in ():",
        ("tests/allocate/test_device_state.py", "tests/allocate/test_shares.py", "tests/allocate/test_allocator.py"),
    ),
    Mutant(
        "share-rounding-wraps",
        "rounding a request up to a step wraps at 64 bits",
        "allocate/shares.py",
        "    return Quantity((start + steps * step) * unit, valid.step.format)",
        "    wrapped = (start + steps * step + 2**63) % 2**64 - 2**63\n"
        "    return Quantity(wrapped * unit, valid.step.format)",
        ("tests/allocate/test_shares.py",),
    ),
    Mutant(
        "share-over-maximum",
        "a share may be one unit over the maximum of its policy",
        "allocate/shares.py",
        "amount.nanos > valid.max.nanos:",
        "amount.nanos > valid.max.nanos + NANO:",
        ("tests/allocate/test_shares.py",),
    ),
    Mutant(
        "verify-over-maximum",
        "the check of an allocation accepts a share over the maximum of its policy",
        "allocate/verify.py",
        "policy.valid_range.max is None or amount.nanos <= policy.valid_range.max.nanos",
        "True",
        ("tests/allocate/test_verify.py",),
    ),
    Mutant(
        "rename-without-fsync",
        "a file is renamed into place before its content is on the disk: empty after a power loss",
        "node/files.py",
        "        if durable:\n            os.fsync(descriptor)\n    finally:",
        "    finally:",
        ("tests/node/test_files.py",),
    ),
    Mutant(
        "rename-not-synced",
        "the folder is not synced after a rename: the old file is back after a power loss",
        "node/files.py",
        "    if durable:\n        sync_folder(path.parent)",
        "    pass",
        ("tests/node/test_files.py",),
    ),
    Mutant(
        "two-cdi-devices-of-one-name",
        "devices of one name in two pools become two CDI devices of one name, which a runtime refuses",
        "node/prepare.py",
        "if any(spec.name == name for spec in specs):",
        "if name in ():",
        ("tests/node/test_prepare.py",),
    ),
    Mutant(
        "late-prepare",
        "a prepare call that comes after the unprepare prepares the claim for nobody",
        "node/prepare.py",
        "if before is not None and only_pods and (not consumers or before == consumers):",
        "if before == () and only_pods and consumers is None:",
        ("tests/node/test_prepare.py",),
    ),
    Mutant(
        "two-claims-prepared",
        "a device that is prepared for one claim is prepared for another",
        "node/prepare.py",
        "if any(held.collides(device) for device in wanted):",
        "if not wanted:",
        ("tests/node/test_prepare.py",),
    ),
    Mutant(
        "reboot-forgotten",
        "claims prepared before a reboot count as prepared after it",
        "node/checkpoint.py",
        "if self._contents.boot_id != self.boot_id:",
        "if not self.boot_id:",
        ("tests/node/test_checkpoint.py", "tests/node/test_prepare.py"),
    ),
    Mutant(
        "generation-kept",
        "a pool is published again under its old generation: half of each is taken for one pool",
        "node/slices.py",
        "    return newest + 1\n",
        "    return newest or 1\n",
        ("tests/node/test_slices.py", "tests/node/test_publish.py"),
    ),
    Mutant(
        "deleted-claim-given",
        "a claim that is being deleted is given to a new pod",
        "schedule/claims.py",
        "    if claim.metadata.deletion_timestamp is not None:\n        return ClaimDeleting(name)",
        "",
        ("tests/schedule/test_claims.py",),
    ),
    Mutant(
        "deleted-claim-reused",
        "the claim that a crash left behind is used although it is being deleted",
        "reconcile/claims.py",
        "            and not claim.metadata.deletion_timestamp\n        ):",
        "        ):",
        ("tests/reconcile/test_claims.py",),
    ),
    Mutant(
        "foreign-claim",
        "a claim of the recorded name is used whoever owns it",
        "reconcile/claims.py",
        "if claim is not None and is_owned(claim, consumer):",
        "if claim is not None:",
        ("tests/reconcile/test_claims.py",),
    ),
    Mutant(
        "reservation-of-the-next-pod",
        "a reservation of a pod that is gone stays, since another one has its name",
        "reconcile/claims.py",
        "return pod.metadata.uid == reserved.uid and not needs_no_claims(pod)",
        "return not needs_no_claims(pod)",
        ("tests/reconcile/test_claims.py",),
    ),
    Mutant(
        "status-without-version",
        "reservations are written without resourceVersion: another writer's are lost",
        "reconcile/claims.py",
        '        subresource="status",\n        resource_version=claim.metadata.resource_version,',
        '        subresource="status",',
        ("tests/reconcile/test_claims.py",),
    ),
    Mutant(
        "taint-without-effect-evicts",
        "a driver's own taint with effect None evicts",
        "reconcile/taints.py",
        "if taints := tuple(t for t in device.taints if t.effect == NO_EXECUTE):",
        "if taints := tuple(device.taints):",
        ("tests/reconcile/test_taints.py",),
    ),
    Mutant(
        "bound-pod-undone",
        "claims are taken back although their pod is bound: its devices go to the next one while it runs",
        "daemon/scheduler.py",
        "if not bound and not isinstance(outcome.error, Retry):",
        "if not isinstance(outcome.error, Retry):",
        ("tests/daemon/test_scheduler.py",),
    ),
)


# ---- running


def say(line: str) -> None:
    """A line of progress, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def source_of(mutant: Mutant) -> Path:
    """The file that it changes, from the root of the repository."""
    return Path("src/dragoman") / mutant.file


def mutated(mutant: Mutant, root: Path = ROOT) -> str:
    """The file's text with the mistake. Raises ValueError if its text is not there exactly once."""
    text = (root / source_of(mutant)).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: its text occurs {text.count(mutant.old)} times in {mutant.file}, not once")
    return text.replace(mutant.old, mutant.new)


def fingersay(mutant: Mutant) -> str:
    """What its result depends on: mutant, source file, tests."""
    seen = hashlib.sha256(repr(mutant).encode())
    for path in (ROOT / source_of(mutant), *(ROOT / test.partition("::")[0] for test in mutant.tests)):
        seen.update(path.read_bytes() if path.is_file() else b"")
    return seen.hexdigest()[:16]


def try_one(mutant: Mutant, copy: Path) -> dict[str, object]:
    """Run its tests on a copy that has the mistake, and mend the copy again."""
    file = copy / source_of(mutant)
    right = file.read_text()
    file.write_text(mutated(mutant, copy))
    began = time.monotonic()
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests]
        env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(  # noqa: S603 - our own tests
            command, cwd=copy, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        code, lines = done.returncode, done.stdout.splitlines()
    except subprocess.TimeoutExpired:
        code, lines = 1, ["FAILED: time limit"]
    finally:
        file.write_text(right)
    by = next((line.split(" - ")[0].removeprefix("FAILED ") for line in lines if line.startswith("FAILED")), "")
    found = code == 1 and bool(by)
    return {"found": found, "by": by, "code": code, "seconds": round(time.monotonic() - began, 1)}


def run(again: list[str]) -> int:
    """Try what has no result; 1 if any mutant survives."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        for name in KEPT:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (ROOT / name).exists():
                shutil.copy(ROOT / name, copy / name)
        for mutant in MUTANTS:
            mark = fingersay(mutant)
            known = results.get(mutant.name)
            if known is None or known["mark"] != mark or mutant.name in again:
                known = results[mutant.name] = {**try_one(mutant, copy), "mark": mark}
                RESULTS.write_text(json.dumps(results, indent=1))
            said = f"found by {known['by']}" if known["found"] else "NOT FOUND"
            say(f"{mutant.name}: {said} ({known['seconds']} s)")
    survivors = [mutant.name for mutant in MUTANTS if not results[mutant.name]["found"]]
    say(f"{len(MUTANTS) - len(survivors)} of {len(MUTANTS)} found; not found: {', '.join(survivors) or 'none'}")
    return 1 if survivors else 0


def table() -> str:
    """The document, from the results."""
    results = json.loads(RESULTS.read_text())
    found = sum(bool(results[mutant.name]["found"]) for mutant in MUTANTS)
    rows = [
        f"| `{m.name}` | {m.mistake} | `{m.file}` | "
        + (f"`{results[m.name]['by']}`" if results[m.name]["found"] else "**not found**")
        + f" | {results[m.name]['seconds']:g} |"
        for m in MUTANTS
    ]
    head = f"""# Mistakes that the tests must find

`make mutants` puts each of these mistakes back into a copy, one at a time, and runs the tests that should notice. They
are mistakes of this domain: kinds of bugs that Kubernetes' DRA code had, recreated here, and mistakes that an earlier
trial showed to survive. The list is `tools/mutants.py`; results are kept in `.mutants/` and hold until source or tests
change, so that an interrupted run goes on where it was. {found} of {len(MUTANTS)} are found, in the seconds shown (on 2
busy cores). The tests named are deterministic, or draw from fixed seeds of their own.

| mistake | what goes wrong | file | first test that fails | s |
|---|---|---|---|---|
"""
    return head + "\n".join(rows) + "\n"


def main() -> int:
    """Run, or write the table."""
    parser = argparse.ArgumentParser(description="Put known mistakes back and see whether the tests find them.")
    parser.add_argument("--again", nargs="*", default=[], metavar="NAME", help="try these although they have results")
    parser.add_argument("--table", action="store_true", help="write docs/reference/mutants.md from the results")
    args = parser.parse_args()
    if args.table:
        DOCUMENT.write_text(table())
        return 0
    return run(args.again)


if __name__ == "__main__":
    sys.exit(main())
