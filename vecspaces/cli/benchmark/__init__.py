"""Steps a second, side by side: vector envs of several libraries, in one interleaved run.

::

    Workload (what is stepped) ─┐
    Backend (who steps it) ─────┴─▶ measure(Plan) ─▶ Measurement ... ─▶ Report (JSON, plot)
"""

from __future__ import annotations

from vecspaces.cli.benchmark.backends import Backend, Runner, Stepper, Unsuitable
from vecspaces.cli.benchmark.environments import BUILT_IN, Workload, find_workload
from vecspaces.cli.benchmark.limit import LIMIT
from vecspaces.cli.benchmark.measure import Measurement, Plan, measure
from vecspaces.cli.benchmark.ours import OURS
from vecspaces.cli.benchmark.peers import PEERS
from vecspaces.cli.benchmark.report import BASELINE, Report

BACKENDS = (*OURS, *PEERS, LIMIT)

__all__ = [
    "BACKENDS",
    "BASELINE",
    "BUILT_IN",
    "LIMIT",
    "OURS",
    "PEERS",
    "Backend",
    "Measurement",
    "Plan",
    "Report",
    "Runner",
    "Stepper",
    "Unsuitable",
    "Workload",
    "find_workload",
    "measure",
]
