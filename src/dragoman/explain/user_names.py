"""What did the user write where the scheduler made a name? Container and resource instead of the special claim's names.

The special claim of extended resources (KEP-5004) and its requests, `container-0-request-0`, are the scheduler's own;
the user wrote `resources.requests` of a container. Texts name that. Never decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dragoman.api.core import PodSpec
from dragoman.schedule.extended import SPECIAL_NAME
from dragoman.schedule.needs import NANOS, container_requests

_REQUEST = re.compile(
    rf"(?:claim {re.escape(SPECIAL_NAME)}, )?requests? "
    r"(?P<names>container-\d+-request-\d+(?:, container-\d+-request-\d+)*)"
    rf"(?: of claim {re.escape(SPECIAL_NAME)})?"
)
_TEXTS = frozenset({"message", "summary"})


def user_names(spec: PodSpec) -> dict[str, str]:
    """`container-0-request-0` to `container main, nvidia.com/gpu: 4`, for every resource that containers ask for."""
    names = {}
    for number, container in enumerate((*spec.init_containers, *spec.containers)):
        for place, (resource, nanos) in enumerate(sorted(container_requests(container).items())):
            amount = f"{resource}: {-(-nanos // NANOS)}"
            names[f"container-{number}-request-{place}"] = f"container {container.name}, {amount}"
    return names


def in_user_words(text: str, names: Mapping[str, str]) -> str:
    """The text with containers and resources in the place of the special claim and its requests."""
    if SPECIAL_NAME not in text and "-request-" not in text:
        return text

    def replaced(found: re.Match[str]) -> str:
        return " and ".join(names.get(name, f"request {name}") for name in found["names"].split(", "))

    text = _REQUEST.sub(replaced, text)
    return text.replace(f"claim {SPECIAL_NAME}", "the claim for extended resources").replace(
        SPECIAL_NAME, "extended resources"
    )


def json_in_user_words(value: Any, names: Mapping[str, str]) -> Any:
    """The same for the sentences in JSON; facts keep the API's names."""
    if isinstance(value, dict):
        return {
            key: in_user_words(entry, names)
            if key in _TEXTS and isinstance(entry, str)
            else json_in_user_words(entry, names)
            for key, entry in value.items()
        }
    return [json_in_user_words(entry, names) for entry in value] if isinstance(value, list) else value
