"""ThreadVectorEnv: one thread per environment, threads that never return, and what they share."""

from __future__ import annotations

import select
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs.faulty import UnpicklableError
from tests.vector.bounds import settled, wait_until_running, within
from vecspaces.env import Env
from vecspaces.errors import ClosedEnvironmentError, SlowEnvironmentWarning, StepTimeoutError
from vecspaces.spaces import Box, Discrete
from vecspaces.vector import ThreadVectorEnv
from vecspaces.vector.backends.threads import Inbox
from vecspaces.vector.exchange.failures import Failure

HANG, RAISE = 1, 2


class Gate:
    """What environments wait for, until the end of a test."""

    def __init__(self) -> None:
        self.opens, self.is_reached = threading.Event(), threading.Event()
        self.events: list[tuple[str, int]] = []

    def wait_for_opening(self) -> None:
        self.is_reached.set()
        self.opens.wait()


class Told(Env[Any, Any]):
    """Does what its action says; notes the thread of each call in `threads`."""

    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Discrete(3)

    def __init__(self, number: int, gate: Gate, hangs: Callable[[int], bool] = lambda _: False):
        self.number, self.gate, self.steps = number, gate, 0
        self.threads = {threading.get_ident()}
        gate.events.append(("build", number))
        if hangs(number):
            gate.wait_for_opening()

    def _note(self) -> Any:
        self.threads.add(threading.get_ident())
        return np.array([self.number, self.steps], np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._note(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if action == HANG:
            self.gate.wait_for_opening()
        if action == RAISE:
            raise UnpicklableError("the gripper is locked")
        return self._note(), float(self.steps), False, False, {"env": self}

    def poke(self) -> Gate:
        self._note()
        return self.gate

    def render(self) -> Any:
        return self._note()

    def close(self) -> None:
        self._note()
        self.gate.events.append(("close", self.number))


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that opens at the end, after which all threads end."""
    gate, before = Gate(), set(threading.enumerate())
    yield gate
    gate.opens.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(30)


def make(gate: Gate, count: int = 3, **arguments: Any) -> ThreadVectorEnv[Any, Any]:
    return ThreadVectorEnv([partial(Told, number, gate) for number in range(count)], **arguments)


@pytest.mark.parametrize(("workers", "count"), [(None, 3), (2, 2), (1, 1)])
def test_all_calls_of_an_environment_are_in_its_thread(
    workers: int | None, count: int, gate: Gate
) -> None:
    with make(gate, num_workers=workers) as envs:
        envs.reset(seed=0)
        kept = envs.step(np.zeros(3, int))[4]["env"]
        assert envs.call("poke") == (gate,) * 3
        envs.render()
        threads = envs.get_attr("threads")
        assert all(len(idents) == 1 for idents in threads)
        assert len(set.union(*threads)) == envs.num_workers == count
        assert threading.get_ident() not in set.union(*threads)
    assert all(env.threads is idents for env, idents in zip(kept, threads, strict=True))
    assert all(len(idents) == 1 for idents in threads)
    assert sorted(gate.events) == [(what, row) for what in ("build", "close") for row in range(3)]


def test_restart_abandons_a_thread_which_writes_nothing_late(gate: Gate, hurry: Any) -> None:
    with make(gate, step_timeout=100.0, copy=False) as envs:
        envs.reset(seed=0)
        envs.recv(3)
        hurry(gate.is_reached.is_set, 1)
        envs.send([HANG], [1])
        with pytest.raises(StepTimeoutError, match="environment 1 ") as caught:
            envs.recv(1)
        assert caught.value.stack is not None and "wait_for_opening" in caught.value.stack
        assert envs.restart([1], terminate=True).tolist() == [1]
        envs.send_reset([1], seed=[5])
        assert envs.recv(1).observations.tolist() == [[1, 0]]
        envs.step(np.zeros(3, int))
        observations, *_ = envs.step(np.zeros(3, int))
        late = threading.active_count()
        gate.opens.set()
        assert settled(lambda: ("close", 1) in gate.events, True)
        assert settled(threading.active_count, late - 1) == late - 1
        assert observations.tolist() == [[0, 2], [1, 2], [2, 2]]
        assert envs.recv(timeout=0, at_least=0).env_ids.tolist() == []
        assert envs.step(np.zeros(3, int))[1].tolist() == [3, 3, 3]


def test_close_names_environments_whose_threads_never_return(gate: Gate) -> None:
    envs = make(gate, num_workers=2)
    envs.reset(seed=0)
    envs.step_async([0, 0, HANG])
    wait_until_running(envs, 2)
    with within(5.0), pytest.warns(RuntimeWarning, match="environments 1, 2 did not close"):
        envs.close(timeout=1.0)
    assert ("close", 0) in gate.events and ("close", 2) not in gate.events
    gate.opens.set()
    assert settled(lambda: ("close", 2) in gate.events, True)


def test_close_names_environments_of_abandoned_threads(gate: Gate) -> None:
    envs = make(gate)
    envs.reset(seed=0)
    envs.send([HANG], [1])
    wait_until_running(envs, 1)
    envs.restart([1], terminate=True)
    envs.reset(seed=0)
    with within(5.0), pytest.warns(RuntimeWarning, match="environment 1 did not close"):
        envs.close()
    gate.opens.set()
    assert settled(lambda: ("close", 1) in gate.events, True)


def test_start_timeout_names_a_constructor_that_hangs(gate: Gate, hurry: Any) -> None:
    env_fns = [partial(Told, number, gate, (1).__eq__) for number in range(3)]
    hurry(gate.is_reached.is_set, 1)
    with (
        within(5.0),
        pytest.raises(StepTimeoutError, match=r"environment 1 .*being built") as error,
    ):
        ThreadVectorEnv(env_fns, start_timeout=100.0)
    assert error.value.env_ids == (1,)
    assert error.value.stack is not None and "wait_for_opening" in error.value.stack
    closed = [("close", 0), ("close", 2)]
    assert settled(lambda: sorted(gate.events)[3:], closed) == closed
    gate.opens.set()
    assert settled(lambda: ("close", 1) in gate.events, True)


def test_a_slow_warning_has_the_stack_of_the_thread(gate: Gate) -> None:
    with make(gate, slow_warning=0.1) as envs:
        envs.reset(seed=0)
        envs.step_async([0, HANG, 0])
        slow = pytest.warns(
            SlowEnvironmentWarning, match=r"(?s)step of environment 1 .*in wait_for"
        )
        with slow as caught:
            while not any("environment 1 " in str(warning.message) for warning in caught):
                with pytest.raises(StepTimeoutError):
                    envs.step_wait(timeout=0.5)
        gate.opens.set()
        assert envs.step_wait()[1].tolist() == [1, 1, 1]


def test_an_error_that_cannot_be_pickled_keeps_its_type(gate: Gate) -> None:
    with make(gate, num_workers=2) as envs:
        envs.reset(seed=0)
        with pytest.raises(UnpicklableError, match="locked") as caught:
            envs.step([0, RAISE, 0])
        assert isinstance(caught.value.__cause__, Failure)
        assert caught.value.__cause__.env_ids == (1,)


def test_close_from_another_thread_ends_a_wait(gate: Gate) -> None:
    envs = make(gate)
    envs.reset(seed=0)
    envs.recv(3)
    envs.send([HANG], [0])
    closer = threading.Timer(0.1, lambda: envs.close(timeout=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        closer.start()
        with within(5.0), pytest.raises(ClosedEnvironmentError):
            envs.recv(1)
        closer.join()
    envs.close()


def test_fileno_is_not_readable_for_an_answer_that_was_read_before_its_thread_went_on() -> None:
    class Caller:
        def release(self) -> None:
            list(inbox.take())
            inbox.settle()

    inbox = Inbox()
    inbox._signal = Caller()  # type: ignore[assignment]
    descriptor = inbox.fileno()
    inbox.put(None)
    assert select.select([descriptor], [], [], 0)[0] == []
    inbox.close()


def test_threads_of_a_vector_env_that_was_dropped_end(gate: Gate) -> None:
    before = threading.active_count()
    envs = make(gate)
    with pytest.warns(ResourceWarning, match="a ThreadVectorEnv was dropped without close"):
        del envs
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"num_workers": 4}, "num_workers=4 is more than the 3"), ({"num_workers": 0}, "at least 1")],
)
def test_num_workers_is_checked(arguments: dict[str, Any], text: str, gate: Gate) -> None:
    with pytest.raises(ValueError, match=text):
        make(gate, **arguments)
    assert gate.events == []


def test_a_late_row_makes_no_row_late_whose_thread_is_still_built(gate: Gate) -> None:
    hangs = lambda number: number == 1 and gate.events.count(("build", 1)) > 1  # noqa: E731
    env_fns = [partial(Told, number, gate, hangs) for number in range(2)]
    with ThreadVectorEnv(env_fns, step_timeout=1.0) as envs:
        envs.reset(seed=0)
        envs.recv(2)
        envs.restart([1])
        envs.call(lambda env: setattr(env, "reset", lambda **_: gate.opens.wait()), env_ids=[0])
        envs.send_reset([0, 1])
        assert list(envs.recv(1, return_errors=True).errors) == [0]
        assert not envs.recv(1, timeout=0.0, at_least=0, return_errors=True).errors
        gate.opens.set()
        assert envs.recv(1, return_errors=True).env_ids.tolist() == [1]


def test_restart_starts_a_thread_before_it_handles_a_signal(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, []

    def interrupted_start(thread: threading.Thread) -> None:
        signal.raise_signal(signal.SIGINT)
        start(thread)
        started.append(thread)

    with make(gate) as envs:
        envs.reset(seed=0)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(threading.Thread, "start", interrupted_start)
            envs.restart([1])
        assert len(started) == 1
        envs.reset(seed=0)
        assert envs.step(np.zeros(3, np.int64))[1].shape == (3,)
