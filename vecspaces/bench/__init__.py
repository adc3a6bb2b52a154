"""Steps a second, side by side: vector envs of several libraries, in one interleaved run.

::

    Workload (what is stepped) ─┐
    Backend (who steps it) ─────┴─▶ measure(Plan) ─▶ Measurement ... ─▶ Report (JSON, plot)
"""

from __future__ import annotations

from vecspaces.bench.backends import Backend, Runner, Stepper, Unsuitable
from vecspaces.bench.environments import BUILT_IN, Workload, find_workload
from vecspaces.bench.limit import LIMIT
from vecspaces.bench.measure import Measurement, Plan, measure
from vecspaces.bench.ours import OURS
from vecspaces.bench.peers import PEERS
from vecspaces.bench.report import BASELINE, Report

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
