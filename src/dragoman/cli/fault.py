"""`dragoman fault`: break a machine of an embedded cluster, see what is broken, mend it.

Each fault is a ConfigMap that kubectl can make as well (docs/reference/faults.md); this writes it and waits for what
came of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import suppress

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cli import connect, output
from dragoman.cluster.client import Client
from dragoman.errors import Invalid, NotFound, Retry
from dragoman.kubelet.faults import DONE, FAULT, INVALID, KINDS, LABEL, MESSAGE, STATE, fault_of
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

CONFIG_MAP = kind_of("ConfigMap")
ANSWER_S = 10.0
POLL_S = 0.05
EXAMPLES = """\
examples:
  dragoman fault xid --node gpu-0 --gpu 3 --xid 79 --for 5m
  dragoman fault gpu-lost --node gpu-0 --gpu 3
  dragoman fault memory-overrun --node gpu-0 --gpu 3 --pod default/train
  dragoman fault nic-down --node gpu-0 --nic mlx5_0
  dragoman fault driver-stopped --node gpu-0 --driver gpu.nvidia.com
  dragoman fault node-rebooted --node gpu-0 --downtime 30s
  dragoman fault slow-prepare --node gpu-0 --delay 20s
  dragoman fault list
  dragoman fault recover NAME
"""
OPTIONS: dict[str, tuple[str, ...]] = {
    "xid": ("gpu", "xid", "instance", "pod", "for"),
    "gpu-lost": ("gpu", "for"),
    "memory-overrun": ("gpu", "pod"),
    "nic-down": ("nic", "for"),
    "driver-stopped": ("driver", "for"),
    "node-rebooted": ("downtime",),
    "slow-prepare": ("delay", "driver", "for"),
}
HELP: dict[str, tuple[str, str]] = {
    "gpu": ("GPU", "as 3, gpu-3, or a UUID"),
    "xid": ("N", "the XID"),
    "instance": ("GI", "a GPU instance of the GPU"),
    "pod": ("POD", "whose work it is, as NAMESPACE/NAME; a name alone is of the namespace default"),
    "nic": ("NIC", "RDMA device, interface, PCI address or device name"),
    "driver": ("NAME", "default: all drivers of the node"),
    "downtime": ("TIME", "default: 10s"),
    "delay": ("TIME", "how much longer a prepare takes"),
    "for": ("TIME", "recover by itself after that; default: until `fault recover`"),
}
SUMMARIES: dict[str, str] = {
    "xid": "a critical XID on a GPU",
    "gpu-lost": "a GPU falls off the bus",
    "memory-overrun": "a pod takes all the memory that it gets on a GPU",
    "nic-down": "a network adapter has no link",
    "driver-stopped": "a driver's process does not run",
    "node-rebooted": "a machine goes down and boots anew",
    "slow-prepare": "preparing claims takes longer",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags: which fault, then its own."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    sorts = parser.add_subparsers(dest="sort", required=True, metavar="FAULT", parser_class=type(parser))
    for kind in KINDS:
        one = sorts.add_parser(kind, help=SUMMARIES[kind])
        one.add_argument("--node", required=True, metavar="NAME")
        for option in OPTIONS[kind]:
            placeholder, text = HELP[option]
            one.add_argument(f"--{option}", metavar=placeholder, help=text)
        one.add_argument("--name", default="", help="of the ConfigMap; default: made of the fault and its place")
        one.add_argument("--print", action="store_true", help="print the ConfigMap instead of applying it")
        connect.arguments(one)
    connect.arguments(sorts.add_parser("list", help="the faults that are there"))
    recover = sorts.add_parser("recover", help="take faults away")
    recover.add_argument("names", nargs="*", metavar="NAME")
    recover.add_argument("--all", action="store_true", help="all faults of the namespace")
    connect.arguments(recover)


def run(args: argparse.Namespace) -> int:
    """Break, list or mend."""
    if args.sort == "list":
        return asyncio.run(_list(args))
    if args.sort == "recover":
        return asyncio.run(_recover(args))
    body = _object(args)
    if args.print:
        output.write(json.dumps(body, indent=2))
        return 0
    return asyncio.run(_break(args, body))


def _object(args: argparse.Namespace) -> Object:
    """Raises Invalid for what cannot be."""
    given = {option: getattr(args, option) for option in OPTIONS[args.sort] if getattr(args, option)}
    data = {"fault": args.sort, "node": args.node, **given}
    try:
        fault_of(data)
    except Invalid as error:
        raise Invalid(f"--{error.where.removeprefix('data.')}", error.what) from None
    place = given.get("gpu") or given.get("nic") or given.get("driver") or ""
    made = "-".join(part for part in (args.sort, args.node, place) if part)
    name = args.name or "".join(sign if sign.isalnum() or sign in "-." else "-" for sign in made.lower())
    return config_map(name, FAULT, data)


def config_map(name: str, sort: str, data: dict[str, str]) -> Object:
    """The ConfigMap of a fault, or of a wish for the clock."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {LABEL: sort}},
        "data": data,
    }


async def _break(args: argparse.Namespace, body: Object) -> int:
    fault, name, namespace = fault_of(body["data"]), body["metadata"]["name"], connect.namespace(args)
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
    """Wait for what came of it and say that; an invalid wish is taken back. Raises Invalid, Retry."""
    clock = Clock()
    deadline = clock.monotonic() + within_s
    while clock.monotonic() < deadline:
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
    raise Retry(f"configmap {name}: nobody acted on it within {within_s:g} s; is this a cluster of `dragoman up`?")


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
        output.say("nothing is broken on purpose")
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


def unique(prefix: str) -> str:
    """A name for an object that is used once."""
    return f"{prefix}-{Entropy().suffix()}"
