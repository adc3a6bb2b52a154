"""The benchmark of environments that wait measures each way that is installed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.waiting_envs import ideal, measure_restart, ways
from tests.crosses import FASTEST


def test_the_ideal_queue_begins_each_conversation_as_soon_as_one_has_ended() -> None:
    plan = np.array([[1.0, 2.0], [1.0, 0.0], [1.0, 1.0], [0.5, 0.0]])
    assert ideal(plan, 2) == 3.5
    assert ideal(plan, 4) == 3.0


@pytest.mark.parametrize("name", [name for name in ways() if "TorchRL" not in name])
def test_a_way_is_measured(name: str) -> None:
    plan = np.full((6, 3), 0.01)
    step, took, ran = ways()[name](plan, 4, 0.02)
    assert step is not None and 0.02 < step < 5.0
    assert (took is None) == (ran is None) == (name == "AsyncVectorEnv")
    if took is not None and ran is not None:
        assert took > ideal(plan, 4) and ran > 0.0


def test_a_restart_is_measured() -> None:
    assert 0.0 < measure_restart(2, FASTEST) < 10.0
