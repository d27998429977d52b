"""A server that has the kind of the tests."""

from __future__ import annotations

import pytest

from dragoman.apiserver.registry import Registry
from tests.apiserver.custom.gears import CRDS, definition
from tests.apiserver.test_http import Api


@pytest.fixture
def api(registry: Registry) -> Api:
    made = Api(registry)
    assert made("POST", CRDS, definition()).status == 201
    return made
