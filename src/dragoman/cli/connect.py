"""Which cluster is meant? The flags that say so, and a client for it.

Order: --kubeconfig, then $KUBECONFIG, then ./dragoman.kubeconfig (what `dragoman up` writes), then ~/.kube/config.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.api.kinds import KINDS, Kind
from dragoman.errors import Invalid
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

if TYPE_CHECKING:
    from dragoman.cluster.http import HttpClient
    from dragoman.cluster.kubeconfig import Access

EMBEDDED = "dragoman.kubeconfig"


def arguments(parser: argparse.ArgumentParser) -> None:
    """--kubeconfig, --context and --namespace."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help=f"kubeconfig to use; default: $KUBECONFIG, ./{EMBEDDED}, ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig; default: its current context")
    parser.add_argument("-n", "--namespace", metavar="NS", default="", help="namespace; default: that of the context")


def access(args: argparse.Namespace) -> Access:
    """How to reach the cluster. Raises NotFound or Invalid."""
    from dragoman.cluster import kubeconfig  # commands that read files only start faster without it

    path = args.kubeconfig
    if path is None and not os.environ.get("KUBECONFIG") and Path(EMBEDDED).is_file():
        path = EMBEDDED
    return kubeconfig.find(path, args.context)


@asynccontextmanager
async def client(args: argparse.Namespace) -> AsyncIterator[HttpClient]:
    """A client for the cluster that the flags name; closed at the end."""
    from dragoman.cluster.http import HttpClient  # aiohttp alone takes 0.1 s to import

    found = HttpClient(access(args), Clock(), Entropy(), manager="dragoman")
    try:
        yield found
    finally:
        await found.close()


def namespace(args: argparse.Namespace) -> str:
    """The namespace meant: the flag's, else the context's."""
    return args.namespace or access(args).namespace or "default"


def kind_named(word: str) -> Kind:
    """The Kind that a word of the command line names: plural, singular, short name, or with its group.

    Raises Invalid with the near names.
    """
    lowered = word.lower()
    plain, _, group = lowered.partition(".")
    for kind in KINDS:
        if plain in {kind.plural, kind.kind.lower(), *kind.short} and kind.group.startswith(group):
            return kind
    import difflib  # only on the way to an error

    near = difflib.get_close_matches(plain, [name for kind in KINDS for name in (kind.plural, *kind.short)], 3)
    raise Invalid(word, f"no such kind of object; near: {', '.join(near)}" if near else "no such kind of object")
