"""The driver and the manifests of docs/guides/write-a-driver.md, as its reader copies them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "write-a-driver.md"


def blocks(language: str) -> list[str]:
    """The fenced blocks of that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def code() -> str:
    """The driver."""
    (found,) = blocks("python")
    return found


def manifests() -> dict[str, Any]:
    """The objects by kind."""
    bodies = [body for block in blocks("yaml") for body in yaml.safe_load_all(block)]
    return {body["kind"]: body for body in bodies}
