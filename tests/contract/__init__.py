"""Tests: the contract of every vector env of single environments, as suites to inherit.

A backend derives a class from `VectorEnvContract` whose `make` makes a vector env; what differs
between backends is not in here. The contract has a part per subject, which can be inherited alone.
"""

from __future__ import annotations

from tests.contract.caller import CallerContract
from tests.contract.calls import CallsContract
from tests.contract.comparing import (
    ALL_SPACES,
    assert_same_infos,
    assert_same_run,
    assert_same_step,
    samples,
)
from tests.contract.infos import InfosContract
from tests.contract.results import FailuresContract, ResultsContract
from tests.contract.ring import RingContract
from tests.contract.stepping import SteppingContract
from tests.contract.workers import WorkersContract

__all__ = [
    "ALL_SPACES",
    "RulesContract",
    "SteppingContract",
    "VectorEnvContract",
    "WorkersContract",
    "assert_same_infos",
    "assert_same_run",
    "assert_same_step",
    "samples",
]


class RulesContract(CallerContract, ResultsContract):
    """What is decided beside the environments or in the caller.

    `SyncVectorEnv` runs it, and in the full run one vector env with a worker: how environments are
    divided, what they share and how workers start cannot change it.
    """


class VectorEnvContract(
    SteppingContract, InfosContract, CallsContract, FailuresContract, RingContract
):
    """What every vector env does, with all arguments of `SyncVectorEnv`."""
