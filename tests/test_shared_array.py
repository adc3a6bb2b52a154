"""Data that all processes read, once in memory."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crosses import START_METHODS
from tests.envs import Ledger
from vecspaces import SharedArray, make_vec
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


class Reading(Ledger):
    """Reads a shared table."""

    def __init__(self, table: SharedArray) -> None:
        super().__init__()
        self.table = table

    def total(self) -> float:
        return float(self.table.array.sum())

    def share(self) -> int:
        """Return this process's share of the table's memory, in bytes (PSS)."""
        return share_of(self.table)

    def strike(self) -> None:
        self.table.array[:] = 0


def share_of(table: SharedArray) -> int:
    """Return this process's proportional share of the memory of an array, which it reads first."""
    table.array.max(initial=0)
    address, found = table.array.ctypes.data, 0
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        bounds = line.split(" ", 1)[0].split("-")
        if len(bounds) == 2:
            inside = int(bounds[0], 16) <= address < int(bounds[1], 16)
        elif inside and line.startswith("Pss:"):
            found += 1024 * int(line.split()[1])
    return found


DTYPES: list[Any] = ["f4", "i8", "?", "U3", "M8[s]", [("a", "i4"), ("b", "f8", (3,))]]
GRID = np.arange(24.0).reshape(4, 6)
ARRAYS = [
    *(np.zeros((3, 4), dtype)[:, ::2] for dtype in DTYPES),
    *(GRID, np.asfortranarray(GRID), GRID[::-1, ::-2]),
    *(np.array(7, "i2"), np.empty((2, 0, 3), "i4")),
]


def test_every_array_arrives_in_c_order_and_read_only() -> None:
    for source in ARRAYS:
        shared = SharedArray(source)
        again = pickle.loads(pickle.dumps(shared))
        assert repr(again) == repr(shared)
        for got in (shared.array, again.array):
            np.testing.assert_array_equal(got, source)
            assert (got.dtype, got.shape) == (source.dtype, source.shape)
            assert got.flags.c_contiguous and not got.flags.writeable


def test_views_outlive_the_handle_and_a_number_is_an_array() -> None:
    view = SharedArray(np.arange(5)).array
    assert view.tolist() == [0, 1, 2, 3, 4]
    assert SharedArray(2.5).array.shape == ()


def test_a_pickle_of_memory_that_was_freed_is_an_error() -> None:
    data = pickle.dumps(SharedArray(np.zeros(3)))
    with pytest.raises(RuntimeError, match=f"of process {os.getpid()} cannot be opened"):
        pickle.loads(data)


@pytest.mark.parametrize("method", START_METHODS)
def test_all_workers_together_hold_the_data_once(method: str) -> None:
    table = SharedArray(np.ones(4_000_000))  # 32 MB
    options = {"context": method, "num_workers": 3, "on_worker_death": "restart"}
    with (
        AsyncVectorEnv([partial(Reading, table)] * 6, **options) as envs,
        make_vec(Reading, 2, env_kwargs={"table": table}, num_workers=2, context=method) as others,
    ):
        assert envs.call("total") + others.call("total") == (4e6,) * 8
        # A page that few processes have read counts for these alone: so each reads everything
        # first, and a second time when the others have.
        workers = [(envs, 0), (envs, 2), (envs, 4), (others, 0), (others, 1)]
        for _ in range(2):
            shares = [share_of(table)]
            shares += [vector.call("share", env_ids=[row])[0] for vector, row in workers]
        assert 0.9 < sum(shares) / table.array.nbytes < 1.1, shares
        with pytest.raises(ValueError, match="read-only"):
            envs.call("strike", env_ids=[0])
        envs.reset(seed=0)
        envs.processes[0].kill()
        envs.step([0] * 6)
        assert envs.call("total") == (4e6,) * 6


def test_nothing_can_make_the_data_writable() -> None:
    shared = SharedArray(np.arange(5))
    with pytest.raises(AttributeError):
        shared.array = np.arange(2)  # type: ignore[misc]
    view = shared.array
    for target in (view, view.base, np.asarray(view.base)):
        if isinstance(target, np.ndarray):
            with pytest.raises(ValueError, match="WRITEABLE"):
                target.flags.writeable = True


def test_what_does_not_fit_into_memory_is_refused_before_it_is_copied() -> None:
    with pytest.raises(MemoryError, match=r"expected at most the .* GB .* found 8e\+03 GB"):
        SharedArray(np.broadcast_to(0.0, (10**12,)))


def memory_files() -> int:
    """Return how many mappings of anonymous files this process has."""
    return Path("/proc/self/maps").read_text().count("memfd:vecspaces")


def count_from_now() -> int:
    """Return the same, without mappings that earlier tests left in cycles: they may go any time."""
    gc.collect()
    return memory_files()


def test_the_memory_is_freed_with_the_last_handle_and_the_last_view() -> None:
    before, descriptors = count_from_now(), len(os.listdir("/proc/self/fd"))
    table = SharedArray(np.ones(1000))
    again, view = pickle.loads(pickle.dumps(table)), table.array[::2]
    assert memory_files() == before + 2
    del table, again
    assert memory_files() == before + 1 and view.sum() == 500
    del view
    assert memory_files() == before and len(os.listdir("/proc/self/fd")) == descriptors


def test_environments_of_this_process_share_the_handle() -> None:
    table = SharedArray(np.ones(3))
    with SyncVectorEnv([partial(Reading, table)] * 2) as envs:
        assert all(env.table is table for env in envs.envs)


def count_mappings(env: Any) -> int:
    return memory_files()


def test_nothing_is_left_where_a_vector_env_cannot_be_made() -> None:
    before = count_from_now()

    def fails(table: SharedArray) -> Any:
        raise OSError("no licence")

    with pytest.raises(OSError, match="no licence"):
        make_vec(fails, 2, num_workers=2, env_kwargs={"table": SharedArray(np.ones(9))})
    gc.collect()
    assert memory_files() == before


def test_a_copy_and_processes_of_a_pool_read_the_same_memory() -> None:
    table = SharedArray(np.arange(4))
    assert copy.deepcopy(table).array.tolist() == [0, 1, 2, 3]
    with multiprocessing.Pool(1) as pool:
        assert pool.apply(sum_of, (table,)) == 6


def sum_of(table: SharedArray) -> int:
    return int(table.array.sum())
