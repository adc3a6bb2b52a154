"""Threads that open, step and close vector envs at the same time do not disturb each other."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import traceback
from typing import Any

import numpy as np
import pytest

from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.backends.process import descriptors
from vecspaces.vector.backends.process.channel import Poller
from vecspaces.vector.backends.process.line import Line
from vecspaces.vector.backends.process.stacks import StackFile


def cycle(method: str, draw: random.Random) -> None:
    """Open a vector env, compare some steps with those of a plain one, and close it."""
    count, seed = draw.randint(1, 4), draw.randint(0, 99)
    options = {"num_workers": draw.randint(1, min(2, count)), "shared_memory": draw.random() < 0.8}
    with (
        AsyncVectorEnv(ledgers(count), context=method, **options) as envs,
        SyncVectorEnv(ledgers(count)) as reference,
    ):
        observations, expected = envs.reset(seed=seed)[0], reference.reset(seed=seed)[0]
        np.testing.assert_array_equal(observations, expected)
        for _ in range(draw.randint(0, 5)):
            actions = [draw.randint(0, 4) for _ in range(count)]
            observations, expected = envs.step(actions)[0], reference.step(actions)[0]
            np.testing.assert_array_equal(observations, expected)
        if draw.random() < 0.2:
            envs.close(terminate=True)


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # forks in threads
@pytest.mark.parametrize(
    ("method", "threads", "cycles"),
    [
        ("fork", 3, 2),
        *(
            pytest.param(method, threads, cycles, marks=pytest.mark.full)
            for method, cycles in (("fork", 60), ("spawn", 6), ("forkserver", 30))
            for threads in (2, 4)
        ),
    ],
)
def test_threads_open_step_and_close_workers(method: str, threads: int, cycles: int) -> None:
    """Run cycles in several threads at once."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"the platform has no {method}")
    errors: list[str] = []
    variables = dict(os.environ)

    def work(seed: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(cycles):
                cycle(method, draw)
        except BaseException:
            errors.append(traceback.format_exc())

    started = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not errors, errors[0]
    assert dict(os.environ) == variables


@pytest.mark.parametrize("kind", [Line, StackFile])
def test_descriptors_that_two_threads_close_are_closed_once(kind: Any) -> None:
    class Closing(kind):
        """Another thread closes it, whenever an attribute has been read."""

        is_read = False

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name in ("fd", "out_fd", "bell", "_file", "_ring") and type(self).is_read:
                type(self).is_read = False
                thread = threading.Thread(target=self.close)
                thread.start()
                thread.join()
            return value

    ends = descriptors.acquire(os.pipe)
    owner = Closing(*ends)
    Closing.is_read = True
    owner.close()
    for descriptor in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


@pytest.mark.parametrize("epoll", [True, False])
def test_poller_takes_changes_after_another_thread_has_closed_it(epoll: bool) -> None:
    poller = Poller(epoll)
    reader, writer = descriptors.acquire(os.pipe)
    poller.add(reader)
    thread = threading.Thread(target=poller.close)
    thread.start()
    thread.join()
    poller.remove(reader)
    poller.add(writer)
    assert poller.wait(0.0)  # at once, although nothing can be read
    descriptors.close(reader, writer)
