"""`dragoman clock`: what time is it in an embedded cluster? Move its clock on, or let it run faster."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

from dragoman.cli import connect, fault
from dragoman.errors import Invalid, NotFound
from dragoman.kubelet.faults import CLOCK, clock_request_of

EXAMPLES = """\
examples:
  dragoman clock                 show the time of the cluster
  dragoman clock advance 5m
  dragoman clock speed 60        one minute per second
"""
ANSWER_S = 10.0
SECONDS_PER_STEP = 0.2
"""Longest that a step of the clock takes in a large cluster."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """advance TIME, speed N, or nothing."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", nargs="?", choices=["advance", "speed"], help="what to do; default: show the time")
    parser.add_argument(
        "value", nargs="?", metavar="TIME|N", help="for advance: a duration such as 5m; for speed: a factor"
    )
    connect.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Ask for it, and say what time it is there afterwards."""
    if args.what and not args.value:
        raise Invalid(f"clock {args.what}", "needs a duration, as 5m" if args.what == "advance" else "needs a number")
    data = {args.what: args.value} if args.what else {"advance": "0s"}
    try:
        asked = clock_request_of(data)
    except Invalid as error:
        raise Invalid(f"clock {error.where.removeprefix('data.')}", error.what) from None
    patience_s = ANSWER_S + getattr(asked, "seconds", 0.0) * SECONDS_PER_STEP
    return asyncio.run(_turn(args, data, patience_s))


async def _turn(args: argparse.Namespace, data: dict[str, str], patience_s: float) -> int:
    namespace = connect.namespace(args)
    body = fault.config_map(fault.unique("clock"), CLOCK, data)
    async with connect.client(args) as client:
        await client.create(fault.CONFIG_MAP, body, namespace)
        try:
            return await fault.reported(client, body["metadata"]["name"], namespace, patience_s)
        finally:
            with suppress(NotFound):
                await client.delete(fault.CONFIG_MAP, body["metadata"]["name"], namespace)
