"""Tests: the contract of every vector env of single environments, as a suite to inherit.

A backend derives a class from `VectorEnvContract` whose `make` makes a vector env; what differs
between backends is not in here. The contract has a part per subject, which can be inherited alone.
"""

from __future__ import annotations

from vecspaces.interop import require_extra

require_extra("pytest", "testing")

# ruff: noqa: E402  # after the message that names the extra
from vecspaces.testing.contract.calls import CallsContract
from vecspaces.testing.contract.comparing import (
    ALL_SPACES,
    assert_same_infos,
    assert_same_run,
    assert_same_step,
    samples,
)
from vecspaces.testing.contract.episodes import EpisodesContract
from vecspaces.testing.contract.infos import InfosContract
from vecspaces.testing.contract.members import MembersContract
from vecspaces.testing.contract.refusals import RefusalContract
from vecspaces.testing.contract.results import ResultsContract
from vecspaces.testing.contract.ring import RingContract
from vecspaces.testing.contract.stepping import SteppingContract
from vecspaces.testing.contract.workers import WorkersContract

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

    Derive a class whose name begins with `Test`, in a file of tests. All arguments of
    `SyncVectorEnv` are used; a vector env that has none of `stats`, say, fails those tests. It is
    made of parts, `vecspaces.testing.contract.InfosContract` and others, which can be inherited
    alone.

    Example:
        >>> from vecspaces.testing import VectorEnvContract
        >>> from vecspaces.vector import SyncVectorEnv
        >>> class TestMine(VectorEnvContract):
        ...     def make(self, env_fns, **arguments):
        ...         return SyncVectorEnv(env_fns, **arguments)
        >>> TestMine().test_results_are_fresh_copies()
    """
