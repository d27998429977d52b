"""How large may a body and an object be? The limits of kube-apiserver and etcd, in their words.

A body is bounded in bytes, depth and time; what is stored in bytes and depth, however it came about (patches, aliases
of YAML, webhooks).
Source: k8s.io/apiserver pkg/server (config.go, secure_serving.go), etcd's --max-request-bytes.
"""

from __future__ import annotations

import re
from typing import Final

from dragoman.apiserver.status import StatusError, bad_request

BODY_BYTES: Final = 3 * 1024 * 1024
OBJECT_BYTES: Final = 1536 * 1024
DEPTH: Final = 200
"""Levels of a body and of an object. No field that Kubernetes knows lies as deep; encoding/json of Go allows 10,000."""
BODY_S: Final = 60.0
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_OPEN_CLOSE: Final = bytes.maketrans(b"{}", b"[]")
_REST: Final = bytes(set(range(256)) - set(b"[]{}"))


def is_deeper(text: bytes, levels: int = DEPTH) -> bool:
    """Whether a JSON text nests deeper; costs next to nothing for one that does not."""
    if text.count(b"{") + text.count(b"[") <= levels:
        return False
    brackets = _STRING.sub(b"", text).translate(_OPEN_CLOSE, _REST)
    for _ in range(levels):
        inner = brackets.replace(b"[]", b"")
        if not inner:
            return False
        if len(inner) == len(brackets):
            break
        brackets = inner
    return True


def check_depth(text: bytes) -> None:
    """Refuse JSON that nests too deep. Raises 400."""
    if is_deeper(text):
        raise bad_request(f"the object provided is nested deeper than {DEPTH} levels")


def check_object(text: bytes) -> None:
    """Refuse an object that etcd would not take, or that nests too deep. Raises 500 as kube-apiserver does, 400."""
    if len(text) > OBJECT_BYTES:
        raise StatusError(500, "", "etcdserver: request is too large")
    check_depth(text)


def too_large_body() -> StatusError:
    """The refusal of a body beyond the limit."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_BYTES}")


def too_slow() -> StatusError:
    """The refusal of a body that does not come."""
    return StatusError(504, "Timeout", "Timeout: request did not complete within the allotted timeout")
