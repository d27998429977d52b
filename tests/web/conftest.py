"""Files for the tests of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.page import CLUSTER


@pytest.fixture
def cluster_file(tmp_path: Path) -> str:
    """The cluster of these tests as a file."""
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    return str(file)
