"""What is said of a migration: what changed, what is lost on the way, what cannot be moved and why. Values only."""

from __future__ import annotations

from typing import Any

import msgspec

LOSS = "loss"
REFUSED = "refused"
NOTE = "note"


class Remark(msgspec.Struct, frozen=True):
    """One thing to know about one object. kind: loss, refused or note. line: from 1, 0 if unknown.

    code: a name that stays. message: what; help: what to do about it, "" if there is nothing.
    """

    kind: str
    code: str
    file: str
    line: int
    object: str
    field: str
    message: str
    help: str = ""

    def as_json(self) -> dict[str, Any]:
        """The fields, as JSON has them."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Unmovable(Exception):
    """A workload that is left as it is. args: code, field, message, help."""

    def __init__(self, code: str, field: str, message: str, help_: str = "") -> None:
        super().__init__(code, field, message, help_)
        self.code = code
        self.field = field
        self.message = message
        self.help = help_
