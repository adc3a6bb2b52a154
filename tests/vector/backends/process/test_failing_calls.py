"""System calls that fail, each one that is reached: nothing is left, nothing foreign is touched."""

from __future__ import annotations

import _posixsubprocess
import errno
import mmap
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import pytest

from tests import leaks
from tests.crosses import ordinarily
from tests.envs import ledgers
from tests.vector.bounds import kill, settled
from vecspaces.errors import ResetNeededError, WorkerDiedError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

#: What is made to fail: where it is looked up, and its name.
CALLS: dict[str, tuple[Any, str]] = {
    "pipe": (os, "pipe"),
    "fork": (os, "fork"),
    "fork_exec": (_posixsubprocess, "fork_exec"),
    "start": (BaseProcess, "start"),
    "pidfd_open": (os, "pidfd_open"),
    "memfd_create": (os, "memfd_create"),
    "ftruncate": (os, "ftruncate"),
    "mmap": (mmap, "mmap"),
    "dup": (os, "dup"),
}
OF_METHOD = {
    # multiprocessing loses descriptors when its forks, or its client of the fork server, fail.
    "fork": [name for name in CALLS if name not in ("fork", "fork_exec", "pipe")],
    "spawn": [name for name in CALLS if name != "fork"],
    "forkserver": [name for name in CALLS if name not in ("fork", "fork_exec", "pipe", "dup")],
}
MEMORY = ("memfd_create", "ftruncate", "mmap", "dup")


CELLS = [
    (method, name)
    for method, names in OF_METHOD.items()
    if method in multiprocessing.get_all_start_methods()
    for name in names
]
WHAT = ("reset", "restart", "end")


class Failure:
    """Makes one call of a function fail, in this process alone.

    Args:
        function: The function.
        at: Which call, from 1 on.
    """

    def __init__(self, function: Callable[..., Any], number: int) -> None:
        self.function, self.left, self.pid = function, number, os.getpid()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if os.getpid() == self.pid:
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.EMFILE, "made to fail")
        return self.function(*arguments, **named)


def fails(name: str, number: int, act: Callable[[], Any]) -> bool:
    """Make the `at`-th use of a function during `act` fail; return whether there was one."""
    place, attribute = CALLS[name]
    failure = Failure(getattr(place, attribute), number)
    with pytest.MonkeyPatch.context() as patch:
        if place is BaseProcess:  # a method needs a function
            patch.setattr(place, attribute, lambda process: failure(process))
        else:
            patch.setattr(place, attribute, failure)
        try:
            act()
        except OSError as error:
            assert error.errno == errno.EMFILE
            return True
    assert failure.left > 0, "the failure was hidden"
    return False


def children() -> set[int]:
    multiprocessing.active_children()  # frees what a busy system took long to end
    return set(leaks.children(os.getpid()))


class Bystanders:
    """Files of the caller that take every number which was just given back."""

    def __init__(self) -> None:
        self.numbers = [os.memfd_create("bystander") for _ in range(24)]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        for number in self.numbers:
            assert "bystander" in os.readlink(f"/proc/self/fd/{number}"), (
                "a foreign file was closed"
            )
            assert os.fstat(number).st_size == 0, "something was written to a foreign file"
            os.close(number)


@pytest.fixture
def helpers(request: pytest.FixtureRequest) -> None:
    """Start multiprocessing's own helper processes, which stay."""
    method = request.node.callspec.params["method"]
    if method != "fork":
        with AsyncVectorEnv(ledgers(1), context=method):
            pass


def make(method: str, **arguments: Any) -> Any:
    return AsyncVectorEnv(ledgers(2), num_workers=2, context=method, **arguments)


def assert_it_works(envs: Any) -> None:
    """Compare a run with that of a vector env to which nothing happened."""
    with SyncVectorEnv(ledgers(2)) as reference:
        observations, expected = envs.reset(seed=3)[0], reference.reset(seed=3)[0]
        np.testing.assert_array_equal(observations[:, 2:4], expected[:, 2:4])
        for _ in range(2):
            observations, expected = envs.step([1, 2])[0], reference.step([1, 2])[0]
            np.testing.assert_array_equal(observations[:, 2:4], expected[:, 2:4])


@pytest.mark.usefixtures("helpers")
@pytest.mark.parametrize(
    ("method", "name"), ordinarily(lambda method, name: method == "fork", CELLS)
)
def test_a_constructor_in_which_a_call_fails_leaves_nothing(method: str, name: str) -> None:
    before, alive = leaks.descriptors(), children()
    for number in range(1, 50):
        made: list[Any] = []
        if not fails(name, number, lambda made=made: made.append(make(method))):
            made[0].close()
            break
        assert leaks.descriptors() == before, f"call {number} of {name}"
        assert settled(children, alive) == alive, f"call {number} of {name}"
    assert number > 1, f"{name} is never called"


@pytest.mark.usefixtures("helpers")
@pytest.mark.parametrize(
    ("method", "name", "what"),
    ordinarily(
        # Each with a reset or with a restart.
        lambda method, name, what: (
            method == "fork" and ["reset", "restart"][list(CALLS).index(name) % 2] == what
        ),
        [(*cell, what) for cell in CELLS if cell[1] not in MEMORY for what in WHAT],
    ),
)
def test_after_a_call_fails_in_a_reset_or_restart_a_reset_works_and_so_does_close(
    method: str, name: str, what: str
) -> None:
    before = leaks.descriptors()
    how = "restart" if what == "restart" else "raise"
    envs = make(method, on_worker_death=how, max_restarts=99)
    count = len(leaks.descriptors())
    for number in range(1, 50):
        envs.reset(seed=3)
        if what == "restart":
            kill(envs.processes[1:])
            act = partial(envs.step, [1, 2])
        else:
            kill(envs.processes)
            with pytest.raises(WorkerDiedError, match="SIGKILL"):
                envs.step([1, 2])
            act = envs.reset
        if not fails(name, number, act):
            break
        with Bystanders():
            if what == "end":
                envs.close()
                assert envs.processes == []
            else:
                with pytest.raises(ResetNeededError):
                    envs.step([1, 2])
                assert_it_works(envs)
        if what == "end":
            envs = make(method)
        assert len(leaks.descriptors()) == count, f"call {number} of {name}"
    assert number > 1, f"{name} is never called"
    envs.close()
    assert leaks.descriptors() == before


def test_a_worker_that_can_start_no_thread_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    with make("fork") as envs:
        envs.reset()
        with monkeypatch.context() as patch:  # what a forked worker inherits
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError, match=r"^can't start new thread$") as caught:
                make("fork")
            assert "failed in build" in str(caught.value.__cause__)
        assert_it_works(envs)
