"""Checks of environments; strategies, the contract and faulty environments for tests.

`check_env` and `faulty_envs` need only vecspaces; `strategies` needs Hypothesis and
`VectorEnvContract` needs pytest, which the extra `testing` installs.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from vecspaces.interop import require_extra
from vecspaces.testing import faulty_envs
from vecspaces.testing.check import check_env
from vecspaces.testing.report import Cost, Finding, Report

if TYPE_CHECKING:
    from vecspaces.testing import strategies
    from vecspaces.testing.contract import VectorEnvContract

__all__ = [
    "Cost",
    "Finding",
    "Report",
    "VectorEnvContract",
    "check_env",
    "faulty_envs",
    "strategies",
]


def __getattr__(name: str) -> Any:
    """Import a module that needs pytest or Hypothesis at its first use."""
    if name == "strategies":
        return importlib.import_module("vecspaces.testing.strategies")
    if name == "VectorEnvContract":
        # A failed assertion then shows its values, as in test files.
        rewritten = {f"{__name__}.contract", f"{__name__}.compare"} - sys.modules.keys()
        require_extra("pytest", "testing").register_assert_rewrite(*rewritten)
        return importlib.import_module("vecspaces.testing.contract").VectorEnvContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
