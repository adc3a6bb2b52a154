"""Data that all processes read, once in memory."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.envs import Ledger
from vecspaces import SharedArray, make_vec
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

METHODS = multiprocessing.get_all_start_methods()


class Reading(Ledger):
    """Reads a shared table."""

    def __init__(self, table: SharedArray) -> None:
        super().__init__()
        self.table = table

    def total(self) -> float:
        return float(self.table.array.sum())

    def own_bytes(self) -> int:
        """Return how much more memory this process has for itself once it has read the table."""
        before = _private_bytes()
        self.total()
        return _private_bytes() - before


def _private_bytes() -> int:
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(1024 * int(line.split()[1]) for line in text.splitlines() if "Private" in line)


@pytest.mark.parametrize("dtype", ["f4", "i8", "?", "U3", "M8[s]", [("a", "i4"), ("b", "f8")]])
def test_the_copy_is_equal_and_read_only(dtype: Any) -> None:
    source = np.zeros((3, 4), dtype)[:, ::2]
    shared = SharedArray(source)
    np.testing.assert_array_equal(shared.array, source)
    assert shared.array.dtype == source.dtype and not shared.array.flags.writeable
    again = pickle.loads(pickle.dumps(shared))
    np.testing.assert_array_equal(again.array, source)
    assert repr(again) == repr(shared)


def test_views_outlive_the_handle_and_empty_arrays_are_arrays() -> None:
    view = SharedArray(np.arange(5)).array
    assert view.tolist() == [0, 1, 2, 3, 4]
    assert SharedArray(np.empty((0, 3))).array.shape == (0, 3)
    assert SharedArray(2.5).array.shape == ()
    with pytest.raises(TypeError, match="without Python objects, found object"):
        SharedArray(np.array([None]))


def test_a_pickle_of_memory_that_was_freed_is_an_error() -> None:
    data = pickle.dumps(SharedArray(np.zeros(3)))
    with pytest.raises(RuntimeError, match=f"pickled by process {os.getpid()}, which has ended"):
        pickle.loads(data)


@pytest.mark.parametrize("method", METHODS)
def test_workers_read_one_memory(method: str) -> None:
    table = SharedArray(np.ones(4_000_000))  # 32 MB
    options = {"context": method, "num_workers": 2, "on_worker_death": "restart"}
    with (
        AsyncVectorEnv([partial(Reading, table)] * 4, **options) as envs,
        make_vec(Reading, 2, env_kwargs={"table": table}, num_workers=1, context=method) as others,
    ):
        assert max(envs.call("own_bytes") + others.call("own_bytes")) < 4_000_000
        assert envs.call("total") + others.call("total") == (4e6,) * 6
        envs.reset(seed=0)
        envs.processes[0].kill()
        envs.step([0] * 4)
        assert envs.call("total") == (4e6,) * 4


def test_environments_of_this_process_share_the_handle() -> None:
    table = SharedArray(np.ones(3))
    with SyncVectorEnv([partial(Reading, table)] * 2) as envs:
        assert all(env.table is table for env in envs.envs)
