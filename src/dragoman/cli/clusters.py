"""`dragoman clusters`: the embedded clusters of this machine: list, stop, delete, export a kubeconfig."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from dragoman.cli import named, output
from dragoman.errors import Denied, Invalid


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, and with which."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=type(parser))
    verbs.add_parser("list", help="list running clusters, and stopped ones that have a name (default)")
    for verb, help_ in (
        ("stop", "stop a cluster, as Ctrl-C does"),
        ("delete", "stop a cluster and remove its record, log and kubeconfig; a --data folder stays"),
        ("kubeconfig", "print its kubeconfig"),
    ):
        made = verbs.add_parser(verb, help=help_)
        made.add_argument("name", metavar="NAME")
        if verb == "kubeconfig":
            made.add_argument(
                "--merge",
                action="store_true",
                help="add it as context dragoman-NAME to the first file of $KUBECONFIG, else ~/.kube/config; what was "
                "there is kept beside it with .bak behind its name",
            )


def run(args: argparse.Namespace) -> int:
    """Do it."""
    if args.verb in (None, "list"):
        return _list()
    record = named.record_of(args.name)
    if args.verb == "kubeconfig":
        return _kubeconfig(record, merge=args.merge)
    stopped = named.stop(record)
    if args.verb == "stop":
        output.say(f"cluster {record.name} {'has ended' if stopped else 'did not run'}")
        return 0
    if _is_own(record):
        Path(record.kubeconfig).unlink(missing_ok=True)
    named.forget(record.name)
    kept = f"; its state is kept in {record.data}" if record.data else ""
    output.say(f"cluster {record.name} is forgotten{kept}")
    return 0


def _is_own(record: named.ClusterRecord) -> bool:
    """Whether the kubeconfig is what `up` wrote: a file that its user has put more into stays."""
    try:
        read = yaml.safe_load(Path(record.kubeconfig).read_text())
        servers = [entry["cluster"]["server"] for entry in read["clusters"]]
    except (OSError, yaml.YAMLError, TypeError, KeyError):
        return False
    return bool(record.server) and servers == [record.server]


def _list() -> int:
    rows: list[tuple[str, ...]] = []
    for record in named.records():
        state = "running" if record.ready and record.is_running else "starting" if record.is_running else "stopped"
        rows.append((record.name, state, str(record.nodes), record.server or "-", record.kubeconfig))
    output.write(output.rows(("NAME", "STATE", "NODES", "API SERVER", "KUBECONFIG"), rows))
    return 0


def _kubeconfig(record: named.ClusterRecord, *, merge: bool) -> int:
    if not record.is_running:
        raise Denied(f"cluster {record.name} is not running")
    text = Path(record.kubeconfig).read_text()
    if not merge:
        print(text, end="")
        return 0
    first = next((part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part), "")
    target = Path(first) if first else Path.home() / ".kube" / "config"
    if target.absolute() == Path(record.kubeconfig):
        raise Invalid("--merge", f"{target} is the cluster's own kubeconfig; set KUBECONFIG to another file")
    name = f"dragoman-{record.name}"
    old: dict[str, Any] = {}
    if target.exists():
        try:
            read = yaml.safe_load(target.read_text()) or {}
        except yaml.YAMLError as error:
            raise Invalid(str(target), f"is no YAML: {error}") from None
        if not isinstance(read, dict):
            raise Invalid(str(target), "is no kubeconfig")
        old = read
        shutil.copy2(target, target.with_name(target.name + ".bak"))
    merged = merge_into(old, yaml.safe_load(text), name)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        yaml.safe_dump(merged, file, sort_keys=False)
    temporary.replace(target)
    output.say(f"context {name} is in {target}; use it: kubectl --context {name} get nodes")
    return 0


def merge_into(old: dict[str, Any], new: dict[str, Any], name: str) -> dict[str, Any]:
    """A kubeconfig with the one cluster of another added under a name; entries of that name are replaced."""
    made = {"apiVersion": "v1", "kind": "Config", **old}
    user, cluster = new["users"][0]["user"], new["clusters"][0]["cluster"]
    for field, entry in (
        ("clusters", {"name": name, "cluster": cluster}),
        ("users", {"name": name, "user": user}),
        ("contexts", {"name": name, "context": {"cluster": name, "user": name}}),
    ):
        kept = [other for other in made.get(field) or [] if other.get("name") != name]
        made[field] = [*kept, entry]
    made.setdefault("current-context", name)
    return made
