"""The threads of native code in workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.envs import Ledger
from vecspaces.vector import AsyncVectorEnv


@pytest.mark.parametrize(
    ("context", "threads", "expected"),
    [("fork", 1, 1), ("fork", None, 3), pytest.param("spawn", 2, 2, marks=pytest.mark.full)],
)
def test_pytorch_runs_with_the_threads_of_a_worker(
    context: Any, threads: int | None, expected: int
) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with AsyncVectorEnv([Ledger], context=context, worker_threads=threads) as envs:
            assert envs.call(lambda env: torch.get_num_threads()) == (expected,)
    finally:
        torch.set_num_threads(before)
