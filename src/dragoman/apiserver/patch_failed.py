"""What is said when a patch cannot be applied? One exception for all kinds of patch."""

from __future__ import annotations

from dragoman.errors import Invalid


class PatchFailed(Invalid):
    """The patch does not fit the document (422), or is no patch at all (`malformed`, 400)."""

    def __init__(self, what: str, *, malformed: bool = False) -> None:
        super().__init__("", what)
        self.malformed = malformed
