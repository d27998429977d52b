"""How is a long list cut into pages that belong together? Continue tokens on pinned, bounded snapshots.

A pin holds references to the records of one moment, so later pages show the same version. Pins are few and short
lived; a token whose pin is gone is answered 410 with a fresh token that goes on from the same key with the
objects of now (metav1.ListMeta.continue).
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict

import msgspec

from dragoman.apiserver.request import Page
from dragoman.apiserver.status import StatusError, bad_request
from dragoman.apiserver.store import StoredObject

PINS = 64
PIN_S = 300.0


class _Token(msgspec.Struct, array_like=True):
    version: int
    namespace: str
    name: str
    consistent: bool


class _Pin(msgspec.Struct):
    records: list[StoredObject]
    until: float


class Pages:
    """The pins of one registry; times are epoch seconds."""

    def __init__(self) -> None:
        self._pins: OrderedDict[tuple[int, str], _Pin] = OrderedDict()

    def first(self, records: list[StoredObject], version: int, limit: int, scope: str, now: float) -> Page:
        """The first page of a list. `scope` tells one list (path and selectors) from another."""
        if limit <= 0 or len(records) <= limit:
            return Page(records, version)
        self._pins[(version, scope)] = _Pin(records, now + PIN_S)
        while len(self._pins) > PINS:
            self._pins.popitem(last=False)
        return _cut(records, version, limit, consistent=True)

    def next(self, text: str, current: list[StoredObject], version: int, limit: int, scope: str, now: float) -> Page:
        """The page after a token; `current` and `version` are the list as it is now. Raises 410."""
        token = _parse(text)
        if not token.consistent:
            return _cut(_after(current, token), version, limit, consistent=False)
        pin = self._pins.get((token.version, scope))
        if pin is None or pin.until < now:
            self._pins.pop((token.version, scope), None)
            fresh = _text(_Token(version, token.namespace, token.name, False))
            refused = StatusError(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter, or use the continue token in this response to retrieve the "
                "remainder of the results, which may be inconsistent with the first part.",
            )
            refused.continue_token = fresh
            raise refused
        return _cut(_after(pin.records, token), token.version, limit, consistent=True)

    def sweep(self, now: float) -> None:
        """Let go of what is expired."""
        for key in [key for key, pin in self._pins.items() if pin.until < now]:
            del self._pins[key]

    def forget(self) -> None:
        """Drop all pins, so that every token is expired."""
        self._pins.clear()


def _after(records: list[StoredObject], token: _Token) -> list[StoredObject]:
    key = (token.namespace, token.name)
    return [record for record in records if (record.namespace, record.name) > key]


def _cut(records: list[StoredObject], version: int, limit: int, *, consistent: bool) -> Page:
    if limit <= 0 or len(records) <= limit:
        return Page(records, version)
    last = records[limit - 1]
    return Page(
        records[:limit],
        version,
        _text(_Token(version, last.namespace, last.name, consistent)),
        len(records) - limit,
    )


def _text(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _parse(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise bad_request("continue key is not valid: use the token of the previous page as it is") from None
