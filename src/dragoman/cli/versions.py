"""Which versions of Kubernetes may be named on a command line?"""

from __future__ import annotations

import re

from dragoman.errors import Invalid

NEWEST = 37
"""The minor version whose rules and defaults are the default."""
_VERSION = re.compile(r"v?1\.(\d+)(\.\d+)?")


def minor_of(text: str, oldest: int) -> int:
    """The minor version of `1.NN`, given with --kubernetes. Raises Invalid for one older than oldest, or too new."""
    found = _VERSION.fullmatch(text)
    if found is None or not oldest <= int(found[1]) <= NEWEST:
        raise Invalid("--kubernetes", f"must be 1.{oldest} to 1.{NEWEST}, got {text!r}")
    return int(found[1])
