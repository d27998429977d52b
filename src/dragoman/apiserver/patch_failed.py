"""What is said when a patch cannot be applied? One exception for all kinds of patch."""

from __future__ import annotations

from dragoman.errors import Invalid


class PatchFailed(Invalid):
    """The patch does not fit the document (422), or is no patch at all (`malformed`, 400).

    tested: a `test` operation said no. too_large: a limit on its work or its outcome is passed (413).
    """

    def __init__(self, what: str, *, malformed: bool = False, tested: bool = False, too_large: bool = False) -> None:
        super().__init__("", what)
        self.malformed = malformed
        self.tested = tested
        self.too_large = too_large
