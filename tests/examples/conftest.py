"""The example that a file of tests names in `EXAMPLE`, as a module."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.programs import load_example


@pytest.fixture(scope="module")
def example(request: pytest.FixtureRequest) -> ModuleType:
    return load_example(request.module.EXAMPLE)
