"""Interrupts at random moments: a wait can be repeated, a reset always works, nothing is left.

What is interrupted: waits, calls, what wrappers do with a result, restarts, and the start and the
end of workers. Ctrl-C in the command line is tested in tests/cli/test_interrupts.py.
"""

from __future__ import annotations

import _thread
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Gated, Ledger, ledgers
from tests.envs.faulty import arm, factories
from tests.interrupts import Counting, Interrupts, Struck, guarded
from tests.leaks import children
from tests.vector.bounds import kill, settled
from vecspaces import wrappers
from vecspaces.errors import (
    AlreadyPendingCallError,
    NoAsyncCallError,
    ResetNeededError,
    VecspacesError,
)
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, ThreadVectorEnv, VectorWrapper

pytestmark = [
    guarded(),
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timer signals"),
]

COUNT = 4
ACTIONS = np.arange(COUNT)
SOME = [3, 1]
MASK = np.array([True, False, True, False])
full = partial(pytest.param, marks=[pytest.mark.full, guarded(900)])


def counting(seconds: float = 0.0, large: int = 0) -> list[Any]:
    return [partial(Counting, number, seconds, large) for number in range(COUNT)]


def test_an_interrupt_that_python_drops_fails_no_test() -> None:
    thing = Counting(0)
    watched = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    assert watched() is None


# ---------------------------------------------------------------------- waits


def until_done(interrupts: Interrupts, wait: Callable[[], Any]) -> Any:
    """Wait, interrupted again and again; None if a reset is needed."""
    try:
        for _ in range(200):
            done, result = interrupts.during(wait)
            if done:
                return result
        return wait()
    except (ResetNeededError, NoAsyncCallError):  # a wrapper was interrupted after the wait
        return None


def receive_rows(envs: Any, interrupts: Interrupts) -> list[Any] | None:
    """Send to all, receive one by one under interrupts; return what came, or None."""
    with contextlib.suppress(NoAsyncCallError):
        while True:
            envs.recv(1)  # the first observations after a reset
    envs.send(ACTIONS)
    rows = []
    for _ in range(COUNT):
        got = until_done(interrupts, lambda: envs.recv(1))
        if got is None:
            return None
        rows.append((int(got.env_ids[0]), got.observations[0], got.rewards[0]))
    return rows


def wrapped(env_fns: Any) -> Any:
    """Workers in wrappers that change nothing in the end."""
    envs: Any = TransformObservation(AsyncVectorEnv(env_fns, num_workers=2), np.positive)
    return wrappers.TransformReward(VectorWrapper(envs), np.positive)


TransformObservation = wrappers.TransformObservation
WAITED_FOR: dict[str, Callable[..., Any]] = {
    "workers": partial(AsyncVectorEnv, num_workers=2),
    "wrappers": wrapped,
}


@pytest.mark.parametrize(
    ("what", "seconds", "large", "rounds"),
    [
        ("workers", 0.0, 0, 30),
        ("workers", 0.0002, 300_000, 15),
        ("wrappers", 0.0002, 0, 30),
        *(full("workers", seconds, 0, 500) for seconds in (0.0, 0.0002, 0.001, 0.005)),
        full("workers", 0.02, 0, 300),
        full("workers", 0.0, 300_000, 200),
        full("wrappers", 0.0002, 0, 400),
    ],
)
def test_an_interrupted_wait_gives_the_right_answer_or_needs_a_reset(
    what: str, seconds: float, large: int, rounds: int
) -> None:
    """Every answer is that of a run without interrupts; most waits can be repeated."""
    seed = 7 if rounds < 100 else int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    answers = 0
    with (
        SyncVectorEnv(counting(large=large)) as model,
        WAITED_FOR[what](counting(seconds, large)) as envs,
        Interrupts(seed, 4 * seconds + 4e-4) as interrupts,
    ):

        def compare(result: Any, expected: Any) -> None:
            nonlocal answers
            if result is None:
                assert_identical(envs.reset(seed=3), model.reset(seed=3))
            else:
                answers += 1
                assert_identical(result, expected)

        assert_identical(envs.reset(seed=1), model.reset(seed=1))
        while interrupts.count < rounds or not answers:  # a busy machine may interrupt all of some
            envs.step_async(ACTIONS)
            compare(until_done(interrupts, envs.step_wait), model.step(ACTIONS))
            if interrupts.count % 5 == 0:
                envs.reset_async(seed=3)
                compare(until_done(interrupts, envs.reset_wait), model.reset(seed=3))
            if interrupts.count % 3 == 0:
                rows = receive_rows(envs, interrupts)
                expected = model.step(ACTIONS)
                for row, observation, reward in rows or ():
                    assert_identical(observation, expected[0][row])
                    assert reward == expected[1][row]
                if rows is None:
                    compare(None, None)


# ---------------------------------------------------------------------- calls

CALLS: dict[str, Callable[[Any], Any]] = {
    "reset": lambda envs: envs.reset(seed=4),
    "partial reset": lambda envs: envs.reset(options={"reset_mask": MASK}),
    "step": lambda envs: envs.step(ACTIONS),
    "step some": lambda envs: envs.step(ACTIONS[:2], env_ids=SOME),
    "send and recv": lambda envs: (envs.send(ACTIONS), envs.recv(2), envs.recv(2)),
    "call": lambda envs: envs.call("echo", "x" * 200_000),  # more than a pipe takes
    "set_attr": lambda envs: envs.set_attr("mark", 1),
    "stats": lambda envs: envs.stats(),
}


def settle(envs: Any) -> None:
    """Bring a vector env back to its beginning by what its errors and its state say."""
    for _ in range(COUNT):  # what was sent can be received, or there is nothing to wait for
        with contextlib.suppress(NoAsyncCallError, ResetNeededError, AlreadyPendingCallError):
            envs.recv(1, timeout=20)
    for wait in (envs.step_wait, envs.reset_wait, envs.call_wait):
        with contextlib.suppress(NoAsyncCallError, ResetNeededError):
            wait(timeout=10)
    envs.reset(seed=4)


@pytest.mark.parametrize("rounds", [4, full(80)])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)])
def test_after_an_interrupted_call_a_vector_env_goes_on(make: Any, name: str, rounds: int) -> None:
    """After a reset it goes on as one that never was disturbed."""
    call = CALLS[name]
    with (
        SyncVectorEnv(counting()) as model,
        make(counting(), stats=True, buffers=3) as envs,
        Interrupts(7, 1.0) as interrupts,
    ):
        settle(envs)
        began = time.perf_counter()
        call(envs)
        interrupts.longest = 1.5 * (time.perf_counter() - began)
        while interrupts.count < rounds:
            settle(envs)
            interrupts.during(partial(call, envs))
            settle(envs)
            model.reset(seed=4)
            for _ in range(2):
                assert_identical(envs.step(ACTIONS), model.step(ACTIONS))
            assert envs.call("echo", 3) == tuple((row, 3) for row in range(COUNT))


# ---------------------------------------------------------------------- inside of wrappers


class Torn:
    """Observations as they are; it may interrupt."""

    armed = False

    def __call__(self, observations: Any) -> Any:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        return observations


def stacked(torn: Callable[[Any], Any]) -> Any:
    """A vector env in wrappers with a state, with `torn` between them."""
    inner: Any = SyncVectorEnv(counting())
    envs: Any = VectorWrapper(wrappers.RecordEpisodeStatistics(inner))
    envs = TransformObservation(wrappers.ClipReward(envs, max_reward=8.5), torn)
    envs = wrappers.NormalizeReward(wrappers.NormalizeObservation(envs))
    envs.update_running_mean = envs.env.update_running_mean = False
    return envs


def compare_with_new(envs: Any) -> None:
    """After a reset, wrappers with a state go on as new ones do."""
    with stacked(np.positive) as model:
        for call in ("reset", "partial reset", "step", "step", "send and recv", "step some"):
            # The times of episodes differ.
            result, right = CALLS[call](envs), CALLS[call](model)
            last = 1 if "reset" in call else 4
            if "send" in call:
                assert_identical(result[2][:4], right[2][:4])
            else:
                assert_identical(result[:last], right[:last])
            for state in ("episode_lengths", "episode_returns", "accumulated_reward"):
                assert getattr(envs, state).tolist() == getattr(model, state).tolist()


@pytest.mark.parametrize("name", ["reset", "partial reset", "step", "step some", "send and recv"])
def test_a_reset_follows_a_call_that_is_interrupted_inside_a_wrapper(name: str) -> None:
    torn = Torn()
    with stacked(torn) as envs:
        envs.reset(seed=1)
        envs.step(ACTIONS)
        torn.armed = True
        with pytest.raises(KeyboardInterrupt):
            CALLS[name](envs)
        compare_with_new(envs)


# ---------------------------------------------------------------------- restarts


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
# The standard library reads source files for a stack: one that is interrupted is closed later.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("rounds", [4, full(80)])
def test_an_interrupted_restart_goes_on_with_the_next_wait(tmp_path: Path, rounds: int) -> None:
    """Whether it had begun to restart or not, it does then, and frees all of the old worker."""
    actions, longest = np.array([1, 1]), 0.02
    arguments: dict[str, Any] = {"on_worker_death": "restart", "max_restarts": 10_000}
    env_fns = factories(2, tmp_path, "os._exit", row=0)
    with (
        AsyncVectorEnv(env_fns, num_workers=2, **arguments) as envs,
        Interrupts(7, longest) as interrupts,
    ):
        envs.reset(seed=0)
        before = tuple(map(len, held()))
        while interrupts.count < rounds:
            envs.reset(seed=0)
            assert settled(lambda: tuple(map(len, held())), before) == before
            envs.step(actions)
            arm(tmp_path)
            done, result = interrupts.during(lambda: envs.step(actions))
            try:
                result = result if done else envs.step_wait(timeout=20)
            except (NoAsyncCallError, ResetNeededError):
                (tmp_path / "trigger").unlink(missing_ok=True)
                continue
            assert result[3].tolist() == [True, False]
            assert result[4]["worker_restarted"].tolist() == [True, False]


# ---------------------------------------------------------------------- starts and ends


def held() -> tuple[list[str], set[int]]:
    """The descriptors and the children of this process."""
    multiprocessing.active_children()  # frees what a busy system took long to end
    return sorted(os.listdir("/proc/self/fd")), set(children(os.getpid()))


def suffer(envs: Any, number: int) -> None:
    """Kill workers and notice it, so that a reset replaces them."""
    envs.reset()
    kill(envs.processes[number % 2 :])
    with contextlib.suppress(VecspacesError):
        envs.step([0] * 3)


def go_on(envs: Any, number: int) -> None:
    """Reset and step, or go on to close at once."""
    for _ in range(number % 3):
        try:
            envs.reset(seed=1)
        except AlreadyPendingCallError:  # it was sent before the interrupt
            envs.reset_wait()
        assert envs.step([1] * 3)[0][:, 0].tolist() == [0, 1, 2]


def live(
    what: str, method: str, number: int, during: Callable[[Callable[[], Any]], tuple[Any, Any]]
) -> None:
    """Start, reset and close; `during` makes the call that is interrupted."""

    def start() -> Any:
        return AsyncVectorEnv(ledgers(3), num_workers=3, context=method)

    if what == "start":
        _, envs = during(start)
        if envs is None:
            return
    else:
        envs = start()
    if what == "reset":
        suffer(envs, number)
        during(envs.reset)
        go_on(envs, number)
    if what == "close":
        during(envs.close)
    envs.close()
    assert envs.processes == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
# What a handler interrupts in the standard library, such as a file that is read, is closed when
# it is collected. So is a vector env that nothing refers to yet.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore:an AsyncVectorEnv was dropped:ResourceWarning")
@pytest.mark.parametrize(
    ("method", "rounds"), [("fork", 2), full("fork", 60), full("spawn", 8), full("forkserver", 25)]
)
@pytest.mark.parametrize("what", ["start", "reset", "close"])
def test_a_start_reset_or_close_that_is_interrupted_leaves_nothing_and_can_be_repeated(
    what: str, method: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = call()
        lengths.append(time.perf_counter() - began)
        return True, result

    # An interrupt in a destructor is not raised: pytest would keep its frames and descriptors.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    lengths: list[float] = []
    for _ in range(2):
        live(what, method, 0, measured)
    with Interrupts(7, 1.5 * min(lengths)) as interrupts:
        before = held()
        for number in range(rounds):
            interrupts.error = Struck if number % 2 else None
            live(what, method, number, interrupts.during)
            assert settled(held, before) == before


@pytest.mark.parametrize("error", [SystemExit(3), Struck()])
@pytest.mark.parametrize("method", ["reset", "step", "close"])
def test_an_exception_of_a_signal_handler_in_an_environment_is_raised_as_it_is(
    method: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(*_: Any) -> None:
        raise error

    def fall(self: Any, *args: Any, **kwargs: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)

    calls: dict[str, list[Callable[[Any], Any]]] = {
        "reset": [lambda envs: envs.reset(), lambda envs: envs.send_reset()],
        "step": [lambda envs: envs.step([1, 1]), lambda envs: envs.send([1, 1])],
        "close": [lambda envs: envs.close()],
    }
    previous = signal.signal(signal.SIGUSR1, strike)
    try:
        with SyncVectorEnv(ledgers(2)) as envs:
            for call in calls[method]:
                envs.reset(seed=0)
                envs.recv()
                with monkeypatch.context() as patch:
                    patch.setattr(Ledger, method, fall)
                    with pytest.raises(type(error)) as caught:
                        call(envs)
                assert caught.value is error
                if method == "close":
                    assert envs.closed
                    return
                with pytest.raises(ResetNeededError):
                    envs.step([1, 1])
            assert envs.reset(seed=0)[0].shape[0] == len(envs.step([1, 1])[0])
    finally:
        signal.signal(signal.SIGUSR1, previous)


@pytest.mark.parametrize("kind", [ThreadVectorEnv, AsyncVectorEnv])
def test_a_signal_handler_runs_soon_in_a_wait_that_the_signal_does_not_end(
    kind: Any, tmp_path: Path
) -> None:
    """A signal comes just before the system call, or to another thread: this marks it alone."""
    sign = tmp_path / "sign"
    with kind([partial(Gated, sign, 0)], slow_warning=None) as envs:
        envs.reset()
        timer = threading.Timer(0.3, _thread.interrupt_main)
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt) as caught:
            envs.step([4])
        assert time.monotonic() - began < 15.0 and "environment 0" in caught.value.__notes__[0]
        timer.join()
        sign.touch()
        assert envs.step_wait()[0].shape[0] == 1
