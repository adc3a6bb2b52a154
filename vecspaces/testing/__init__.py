"""Checking of environments and vector envs; strategies, contract and faulty environments for tests.

`check_env` needs nothing more than vecspaces; `strategies` and `VectorEnvContract` need Hypothesis
and pytest, the extra `testing`.
"""

from __future__ import annotations

from vecspaces.testing.check import check_env
from vecspaces.testing.report import Cost, Finding, Report

__all__ = ["Cost", "Finding", "Report", "check_env"]
