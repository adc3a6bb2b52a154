"""Tests: the contract of every vector env of single environments, as a suite to inherit.

A backend derives a class from `VectorEnvContract` whose `make` makes a vector env; what differs
between backends is not in here. The contract has a part per subject, which can be inherited alone.
"""

from __future__ import annotations

from tests.contract.calls import CallsContract
from tests.contract.comparing import (
    ALL_SPACES,
    assert_same_infos,
    assert_same_run,
    assert_same_step,
    samples,
)
from tests.contract.episodes import EpisodesContract
from tests.contract.infos import InfosContract
from tests.contract.members import MembersContract
from tests.contract.refusals import RefusalContract
from tests.contract.results import ResultsContract
from tests.contract.ring import RingContract
from tests.contract.stepping import SteppingContract
from tests.contract.workers import WorkersContract

__all__ = [
    "ALL_SPACES",
    "CallsContract",
    "EpisodesContract",
    "InfosContract",
    "MembersContract",
    "RefusalContract",
    "ResultsContract",
    "RingContract",
    "SteppingContract",
    "VectorEnvContract",
    "WorkersContract",
    "assert_same_infos",
    "assert_same_run",
    "assert_same_step",
    "samples",
]


class VectorEnvContract(
    SteppingContract,
    EpisodesContract,
    InfosContract,
    ResultsContract,
    CallsContract,
    RingContract,
    MembersContract,
):
    """The behaviour of a vector env as a class of pytest tests; `make` is all that a subclass adds.

    All arguments of `SyncVectorEnv` are used.
    """
