"""Which cluster is meant? The flags that say so, and a client for it.

Order: --kubeconfig, then $KUBECONFIG, then ./dragoman.kubeconfig (what `dragoman up` writes), then ~/.kube/config.
`kubectl dra` reads what kubectl reads, so not ./dragoman.kubeconfig.
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

if TYPE_CHECKING:
    from dragoman.cluster.http import HttpClient
    from dragoman.cluster.kubeconfig import Access

EMBEDDED = "dragoman.kubeconfig"
PLUGIN = "kubectl"
SHORT = {
    "claim": "ResourceClaim",
    "template": "ResourceClaimTemplate",
    "class": "DeviceClass",
    "slice": "ResourceSlice",
}
"""Words of ours for kinds (docs/glossary.md), beside those that the server knows."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which cluster, as whom, and how long to wait: kubectl's flags of these names."""
    plugin = parser.prog.startswith(PLUGIN)
    parser.set_defaults(embedded="" if plugin else EMBEDDED)
    order = "$KUBECONFIG, ~/.kube/config" if plugin else f"$KUBECONFIG, ./{EMBEDDED}, ~/.kube/config"
    parser.add_argument("--kubeconfig", metavar="FILE", help=f"kubeconfig to use; default: {order}")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig; default: its current context")
    parser.add_argument("-n", "--namespace", metavar="NS", default="", help="namespace; default: that of the context")
    parser.add_argument("--as", dest="impersonate", metavar="USER", default="", help="user to impersonate")
    parser.add_argument(
        "--as-group",
        dest="impersonate_groups",
        metavar="GROUP",
        action="append",
        default=[],
        help="group to impersonate; needs --as",
    )
    parser.add_argument(
        "--as-uid", dest="impersonate_uid", metavar="UID", default="", help="UID to impersonate; needs --as"
    )
    parser.add_argument(
        "--request-timeout",
        type=_timeout,
        metavar="TIME",
        help="time limit of one request, such as 5s or 1m; 0: no limit",
    )


def _timeout(text: str) -> float:
    """Seconds of a duration, as kubectl takes it: without a unit, seconds."""
    from dragoman.runtime.config import duration_s

    try:
        return duration_s(f"{text}s" if text.isdecimal() else text)
    except Invalid as error:
        raise argparse.ArgumentTypeError(error.what) from None


def access(args: argparse.Namespace) -> Access:
    """How to reach the cluster. Raises NotFound or Invalid."""
    from dragoman.cluster import kubeconfig  # commands that read files only start faster without it

    path = args.kubeconfig
    embedded = getattr(args, "embedded", EMBEDDED)
    if path is None and embedded and not os.environ.get("KUBECONFIG") and Path(embedded).is_file():
        path = embedded
    found = kubeconfig.find(path, args.context)
    return _acting(found, args)


def _acting(found: Access, args: argparse.Namespace) -> Access:
    from msgspec.structs import replace

    user, groups, uid = (getattr(args, name, None) for name in ("impersonate", "impersonate_groups", "impersonate_uid"))
    if (limit_s := getattr(args, "request_timeout", None)) is not None:
        found = replace(found, request_timeout_s=limit_s)
    if user:
        found = replace(found, impersonate=user)
    if groups:
        listed = groups.split(",") if isinstance(groups, str) else groups  # text: of the environment
        found = replace(found, impersonate_groups=tuple(listed))
    if uid:
        found = replace(found, impersonate_uid=uid)
    if (found.impersonate_groups or found.impersonate_uid or found.impersonate_extra) and not found.impersonate:
        raise Invalid("--as", "is missing: groups, uid and extra values are those of a user to act as")
    return found


@asynccontextmanager
async def client(args: argparse.Namespace) -> AsyncIterator[HttpClient]:
    """A client for the cluster that the flags name; closed at the end."""
    from dragoman.cluster.http import HttpClient  # aiohttp alone takes 0.1 s to import
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy

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
    plain = next((name.lower() for word, name in SHORT.items() if plain in (word, f"{word}s", f"{word}es")), plain)
    for kind in KINDS:
        if plain in {kind.plural, kind.kind.lower(), *kind.short} and kind.group.startswith(group):
            return kind
    import difflib  # only on the way to an error

    near = difflib.get_close_matches(plain, [name for kind in KINDS for name in (kind.plural, *kind.short)], 3)
    raise Invalid(word, f"no such kind of object; near: {', '.join(near)}" if near else "no such kind of object")
