"""Which nodes does `--node NAME=PROFILE[@PATH][*N]` mean?"""

from __future__ import annotations

import argparse

from dragoman.values.names import dns_label

MOST_NODES = 20_000


def node_argument(text: str) -> tuple[tuple[str, str], ...]:
    """(name, profile) pairs of one flag: NAME=PROFILE is NAME, NAME=PROFILE*N is NAME-0 to NAME-(N-1).

    The profile keeps its suffix `@dra` or `@device-plugin`, which may stand before or after the number.
    """
    name, equals, rest = text.partition("=")
    profile, star, count = rest.partition("*")
    count, at, path = count.partition("@")
    profile += at + path
    if not (name and equals and profile):
        raise argparse.ArgumentTypeError(f"must be NAME=PROFILE or NAME=PROFILE*N, got {text!r}")
    if (wrong := dns_label(name)) is not None:
        raise argparse.ArgumentTypeError(f"{name!r} is not a valid node name: {wrong}")
    if not star:
        return ((name, profile),)
    if not count.isdecimal() or not 1 <= int(count) <= MOST_NODES:
        raise argparse.ArgumentTypeError(f"the number after * must be 1 to {MOST_NODES:,}, got {count!r} in {text!r}")
    return tuple((f"{name}-{index}", profile) for index in range(int(count)))
