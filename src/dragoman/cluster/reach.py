"""What of the API server cannot be followed right now, and why? For readiness, and one line of log for an outage.

Filled by informers and by the client that they share; decides nothing, waits for nothing.
"""

from __future__ import annotations

from typing import Any

from dragoman.errors import DragomanError, Forbidden, Invalid
from dragoman.runtime.log import get


class Reach:
    """The lists and watches of one client that fail, by what they follow, with the newest error.

    An outage is logged once for each cause, not once for each watch and try, and once more when it is over.
    """

    def __init__(self) -> None:
        self.failing: dict[str, str] = {}
        self._logged: set[str] = set()
        self._log = get("api")

    def failed(self, followed: str, error: DragomanError, wait_s: float) -> None:
        """That list or watch failed and is tried again after wait_s."""
        self.failing[followed] = str(error)
        # Each missing right is a fact of its own; a server that is down or overloaded is one fact for all watches.
        cause = str(error) if isinstance(error, Forbidden | Invalid) else type(error).__name__
        if cause not in self._logged:
            self._logged.add(cause)
            self._log.warning(
                "cannot follow the API server, trying again",
                what=followed,
                error=str(error),
                wait_s=round(wait_s, 3),
            )

    def works(self, followed: str) -> None:
        """That list or watch is answered again."""
        if self.failing.pop(followed, None) is not None and not self.failing:
            self._logged.clear()
            self._log.info("the API server is followed again")

    def problems(self) -> list[str]:
        """One line for each cause, with how many watches it stops."""
        causes: dict[str, list[str]] = {}
        for followed, error in self.failing.items():
            causes.setdefault(error, []).append(followed)
        return [
            f"cannot follow {followed[0]}{f' and {len(followed) - 1} more' if len(followed) > 1 else ''}: {error}"
            for error, followed in causes.items()
        ]


def reach_of(client: Any) -> Reach:
    """The client's own, shared by all that use it, or one alone for a client without connections."""
    found = getattr(client, "reach", None)
    return found if isinstance(found, Reach) else Reach()


def followed(plural: str, namespace: str = "", *selectors: str) -> str:
    """How a list and watch is named: `pods`, or `pods of default (spec.nodeName=a)`."""
    chosen = ",".join(selector for selector in selectors if selector)
    return f"{plural}{f' of {namespace}' if namespace else ''}{f' ({chosen})' if chosen else ''}"
