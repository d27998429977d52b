"""`dragoman fault`: break a machine of an embedded cluster, see what is broken, mend it.

Each fault is a ConfigMap that kubectl can make as well (docs/reference/faults.md); this writes it and waits for what
came of it.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cli import connect, output
from dragoman.cluster.client import Client
from dragoman.drivers.registry import fault_kinds
from dragoman.errors import Invalid, NotFound, Retry, Stale
from dragoman.kubelet.faults import ACTIVE, DONE, FAULT, INVALID, LABEL, MESSAGE, STATE, fault_of
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

if TYPE_CHECKING:
    from dragoman.daemon.fault_folder import FaultState

CONFIG_MAP = kind_of("ConfigMap")
ANSWER_S = 10.0
POLL_S = 0.05
PROGRESS_S = 3.0
"""Between two lines that say that the wait goes on."""
EXAMPLE_NODE = "gpu-0"


def _examples() -> str:
    made = [f"  dragoman fault {kind.name} --node {EXAMPLE_NODE} {kind.example}" for kind in fault_kinds().values()]
    return "\n".join(["examples:", *made, "  dragoman fault list", "  dragoman fault recover NAME", ""])


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags: which fault, then its own."""
    parser.epilog = _examples()
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="fault_name", required=True, metavar="FAULT", parser_class=type(parser))
    for kind in fault_kinds().values():
        one = commands.add_parser(kind.name, help=kind.summary)
        one.add_argument("--node", required=True, metavar="NAME")
        for field in kind.fields:
            one.add_argument(f"--{field.name}", metavar=field.placeholder, help=field.help)
        one.add_argument("--name", default="", help="name of the ConfigMap; default: from the fault and its target")
        _folder_argument(one)
        one.add_argument("--print", action="store_true", help="print the ConfigMap instead of applying it")
        connect.arguments(one)
    listing = commands.add_parser("list", help="list faults")
    _folder_argument(listing)
    connect.arguments(listing)
    recover = commands.add_parser("recover", help="remove faults")
    recover.add_argument("names", nargs="*", metavar="NAME")
    recover.add_argument("--all", action="store_true", help="remove all faults of the namespace")
    _folder_argument(recover)
    connect.arguments(recover)


def _folder_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", type=Path, metavar="DIR", help="faults of a driver that runs by itself with --faults DIR"
    )


def run(args: argparse.Namespace) -> int:
    """Break, list or mend."""
    if args.to is not None:
        return _in_folder(args)
    if args.fault_name == "list":
        return asyncio.run(_list(args))
    if args.fault_name == "recover":
        return asyncio.run(_recover(args))
    body = _object(args)
    if args.print:
        output.write_json(body)
        return 0
    return asyncio.run(_break(args, body))


def _object(args: argparse.Namespace) -> Object:
    """Raises Invalid for what cannot be."""
    fields = fault_kinds()[args.fault_name].fields
    given = {field.name: value for field in fields if (value := getattr(args, field.name))}
    data = {"fault": args.fault_name, "node": args.node, **given}
    try:
        fault_of(data, fault_kinds())
    except Invalid as error:
        raise Invalid(f"--{error.where.removeprefix('data.')}", error.what) from None
    places = [given[field.name] for field in fields if field.in_name and field.name in given]
    made = "-".join([args.fault_name, args.node, *places])
    name = args.name or "".join(sign if sign.isalnum() or sign in "-." else "-" for sign in made.lower())
    return config_map(name, FAULT, data)


def config_map(name: str, label: str, data: dict[str, str]) -> Object:
    """The ConfigMap of a fault, or of a setting of the clock."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {LABEL: label}},
        "data": data,
    }


async def _break(args: argparse.Namespace, body: Object) -> int:
    fault, name, namespace = fault_of(body["data"], fault_kinds()), body["metadata"]["name"], connect.namespace(args)
    patience_s = ANSWER_S + float(getattr(fault, "downtime_s", 0.0))
    async with connect.client(args) as client:
        await client.create(CONFIG_MAP, body, namespace)
        try:
            return await reported(client, name, namespace, patience_s)
        finally:
            if fault.once:  # it is over: the next one of that name has its place
                with suppress(NotFound):
                    await client.delete(CONFIG_MAP, name, namespace)


async def reported(client: Client, name: str, namespace: str, within_s: float) -> int:
    """Wait for what came of it and say that; an invalid one is removed again. Raises Invalid, Retry."""
    clock = Clock()
    began = clock.monotonic()
    deadline, next_s = began + within_s, began + PROGRESS_S
    while clock.monotonic() < deadline:
        if clock.monotonic() >= next_s:
            output.say(f"{name}: still waiting after {clock.monotonic() - began:.0f} s, at most {within_s:.0f} s")
            next_s += PROGRESS_S
        found = (await client.get(CONFIG_MAP, name, namespace))["metadata"].get("annotations") or {}
        if found.get(STATE) == INVALID:
            await client.delete(CONFIG_MAP, name, namespace)
            raise Invalid("", found.get(MESSAGE, ""))
        if STATE in found:
            output.write(found.get(MESSAGE, ""))
            if found[STATE] != DONE:
                output.hint(f"dragoman fault recover {name}")
            return 0
        await clock.sleep(POLL_S)
    raise Retry(f"configmap {name}: no response within {within_s:g} s; is this a cluster of `dragoman up`?")


async def _list(args: argparse.Namespace) -> int:
    async with connect.client(args) as client:
        listed = await client.list(CONFIG_MAP, connect.namespace(args), label_selector=f"{LABEL}={FAULT}")
    rows = []
    for body in listed.items:
        notes = body["metadata"].get("annotations") or {}
        rows.append([body["metadata"]["name"], notes.get(STATE, "new"), notes.get(MESSAGE, "")])
    if rows:
        output.write(output.rows(["NAME", "STATE", "WHAT"], sorted(rows)))
    else:
        output.say("no faults")
    return 0


async def _recover(args: argparse.Namespace) -> int:
    if bool(args.names) == bool(args.all):
        raise Invalid("fault recover", "give names, or --all")
    namespace = connect.namespace(args)
    async with connect.client(args) as client:
        listed = await client.list(CONFIG_MAP, namespace, label_selector=f"{LABEL}={FAULT}")
        there = sorted(body["metadata"]["name"] for body in listed.items)
        for name in args.names or there:
            if name not in there:
                raise NotFound(f"no fault {name} in namespace {namespace}; there are: {', '.join(there) or 'none'}")
        for name in args.names or there:
            await client.delete(CONFIG_MAP, name, namespace)
            output.write(f"{name} recovered")
    return 0


# ---- a driver that runs by itself


def _in_folder(args: argparse.Namespace) -> int:
    from dragoman.daemon.fault_folder import ANSWER, DATA, checked_folder

    folder = checked_folder(args.to)
    there = sorted(path.stem for path in folder.glob(f"*{DATA}"))
    if args.fault_name == "list":
        rows = [[name, found.state, found.message] for name in there if (found := _state(folder / f"{name}{ANSWER}"))]
        if rows:
            output.write(output.rows(["NAME", "STATE", "WHAT"], rows))
        else:
            output.say("no faults")
        return 0
    if args.fault_name == "recover":
        if bool(args.names) == bool(args.all):
            raise Invalid("fault recover", "give names, or --all")
        for name in args.names or there:
            if name not in there:
                raise NotFound(f"no fault {name} in {folder}; there are: {', '.join(there) or 'none'}")
        for name in args.names or there:
            (folder / f"{name}{DATA}").unlink(missing_ok=True)
            output.write(f"{name} recovered")
        return 0
    body = _object(args)
    return asyncio.run(_break_in(folder, body["metadata"]["name"], body["data"]))


async def _break_in(folder: Path, name: str, data: dict[str, str]) -> int:
    """Write the file and wait for what came of it; one that is invalid or over is removed. Raises Invalid, Retry."""
    from dragoman.daemon.fault_folder import ANSWER, DATA
    from dragoman.node.files import write_atomically

    file, answer, clock = folder / f"{name}{DATA}", folder / f"{name}{ANSWER}", Clock()
    if file.exists():
        raise Stale(f"fault {name} is there already: dragoman fault recover {name} --to {folder}")
    answer.unlink(missing_ok=True)
    write_atomically(file, msgspec.json.encode(data), durable=False)
    deadline = clock.monotonic() + ANSWER_S
    while clock.monotonic() < deadline:
        found = _state(answer)
        if found is not None:
            if found.state != ACTIVE:
                file.unlink(missing_ok=True)
            if found.state == INVALID:
                raise Invalid("", found.message)
            output.write(found.message)
            if found.state == ACTIVE:
                output.hint(f"dragoman fault recover {name} --to {folder}")
            return 0
        await clock.sleep(POLL_S)
    file.unlink(missing_ok=True)
    raise Retry(f"{folder}: no response within {ANSWER_S:g} s; is a driver running with --faults {folder}?")


def _state(path: Path) -> FaultState | None:
    from dragoman.daemon.fault_folder import FaultState

    try:
        return msgspec.json.decode(path.read_bytes(), type=FaultState)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def unique(prefix: str) -> str:
    """A name for an object that is used once."""
    return f"{prefix}-{Entropy().suffix()}"
