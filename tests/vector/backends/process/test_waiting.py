"""Which processes poll for a short time before they sleep."""

from __future__ import annotations

import pytest

from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends import worker_setup
from vecspaces.vector.backends.process import backend


@pytest.mark.parametrize(
    ("workers", "spins", "most_working"),
    [(1, [True], 1), (2, [True, False], 1), (3, [False] * 3, 0)],
)
def test_processes_spin_where_no_other_one_needs_the_core(
    workers: int, spins: list[bool], most_working: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (worker_setup, backend):
        monkeypatch.setattr(module, "count_usable_cores", lambda: 2)
    with AsyncVectorEnv(ledgers(3), num_workers=workers) as envs:
        assert [setup.spins for setup in envs._backend._setups] == spins
        assert envs._backend._most_working == most_working
        envs.reset(seed=1)
        assert envs.step([1] * 3)[0][:, 2].tolist() == [1] * 3
