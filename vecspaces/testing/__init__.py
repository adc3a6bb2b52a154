"""Checks of environments."""

from __future__ import annotations

from vecspaces.testing.check import check_env
from vecspaces.testing.report import Finding, Report

__all__ = ["Finding", "Report", "check_env"]


def __dir__() -> list[str]:
    return __all__
