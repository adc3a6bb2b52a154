"""An interrupt at a random moment of every public call: the right answer, or a state that says so.

A timer signal whose handler sends SIGINT stands for Ctrl-C; the moments are drawn from a seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from vecspaces import Env, spaces
from vecspaces.errors import AlreadyPendingCallError, NoAsyncCallError, ResetNeededError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timer signals")


class Counting(Env[Any, Any]):
    """Counts its steps, each of which takes some time; the info grows large now and then.

    Args:
        number: Which one it is.
        seconds: The time of a step and of a reset.
        large: How many bytes every seventh info holds.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(100)

    def __init__(self, number: int, seconds: float = 0.0, large: int = 0) -> None:
        self.number, self.seconds, self.large = number, seconds, large
        self.time = 0

    def answer(self, action: int) -> tuple[Any, dict[str, Any]]:
        if self.seconds:
            time.sleep(self.seconds)
        observation = np.array([self.number, self.time, action], np.float64)
        large = self.large and self.time % 7 == 3
        return observation, {"text": "x" * self.large} if large else {}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        return self.answer(-1 if seed is None else seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        observation, info = self.answer(int(action))
        return observation, float(self.time), self.time % 11 == 0, False, info

    def echo(self, value: Any) -> Any:
        return self.number, value


class Interrupts:
    """Interrupts calls at moments drawn from a seed.

    Args:
        seed: Of the moments.
        longest: The latest moment after the beginning of a call, in seconds.
    """

    def __init__(self, seed: int, longest: float) -> None:
        self._random = random.Random(seed)
        self._longest = longest
        self.count = 0

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGALRM, self._raise)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _raise(self, number: int, frame: Any) -> None:
        signal.raise_signal(signal.SIGINT)  # which waits where Ctrl-C is blocked

    def during(self, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Make a call; return whether it ended before the interrupt, and its result."""
        result = None
        try:
            try:
                moment = self._longest * self._random.random() ** 2
                signal.setitimer(signal.ITIMER_REAL, max(1e-6, moment))
                result = (call(),)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            self.count += 1
        # What came between the end of the call and that of the timer is a whole result.
        return result is not None, result and result[0]


def until_done(interrupts: Interrupts, wait: Callable[[], Any]) -> Any:
    """Wait, interrupted again and again; at last undisturbed."""
    for _ in range(200):
        done, result = interrupts.during(wait)
        if done:
            return result
    return wait()


def check_run(
    kind: Callable[..., Any], rounds: int, seconds: float, seed: int, large: int = 0
) -> None:
    """Interrupt waits; every answer comes, and is that of a run without interrupts."""
    env_fns = [partial(Counting, i, 0.0, large) for i in range(4)]
    slow = [partial(Counting, i, seconds, large) for i in range(4)]
    actions = np.arange(4)
    longest = 4 * seconds + 4e-4
    with (
        SyncVectorEnv(env_fns) as model,
        kind(slow) as envs,
        Interrupts(seed, longest) as interrupts,
    ):
        assert_identical(envs.reset(seed=1), model.reset(seed=1))
        while interrupts.count < rounds:
            envs.step_async(actions)
            expected = model.step(actions)
            assert_identical(until_done(interrupts, envs.step_wait), expected)
            if interrupts.count % 5 == 0:
                envs.reset_async(seed=3)
                expected = model.reset(seed=3)
                assert_identical(until_done(interrupts, envs.reset_wait), expected)
            if interrupts.count % 3 == 0:
                rows = check_stream(envs, interrupts, actions)
                expected = model.step(actions)
                for row, observation, reward in rows:
                    assert_identical(observation, expected[0][row])
                    assert reward == expected[1][row]


def check_stream(envs: Any, interrupts: Interrupts, actions: Any) -> list[Any]:
    """Send to all, receive one by one under interrupts; return what came."""
    with contextlib.suppress(NoAsyncCallError):
        while True:
            envs.recv(1)  # the first observations after a reset
    envs.send(actions)
    rows = []
    for _ in range(4):
        # No partial: what C calls returns through C, where an interrupt drops the result.
        got = until_done(interrupts, lambda: envs.recv(1))
        rows.append((int(got.env_ids[0]), got.observations[0], got.rewards[0]))
    return rows


TIMES = [0.0, 0.0002, 0.001, 0.005, 0.02]


def test_an_interrupt_that_python_drops_fails_no_test() -> None:
    thing = Counting(0)
    watched = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    assert watched() is None


@pytest.mark.parametrize("large", [0, 300_000], ids=["small", "large"])
@pytest.mark.parametrize("seconds", [0.0, 0.0002, 0.001])
def test_an_interrupted_wait_gives_the_right_answer_when_repeated(
    seconds: float, large: int
) -> None:
    kind = partial(AsyncVectorEnv, num_workers=2)
    check_run(kind, 60, seconds, seed=7, large=large)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", TIMES)
def test_thousands_of_interrupted_waits_lose_no_answer(seconds: float) -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    check_run(partial(AsyncVectorEnv, num_workers=2), 5000, seconds, seed)


ACTIONS = np.arange(4)
CALLS: dict[str, Callable[[Any], Any]] = {
    "reset": lambda envs: envs.reset(seed=4),
    "partial reset": lambda envs: envs.reset(options={"reset_mask": np.array([0, 1, 0, 1], bool)}),
    "step": lambda envs: envs.step(ACTIONS),
    "step some": lambda envs: envs.step(ACTIONS[:2], env_ids=[3, 1]),
    "send and recv": lambda envs: (envs.send(ACTIONS), envs.recv(2), envs.recv(2)),
    "step_async": lambda envs: envs.step_async(ACTIONS),
    "reset_async": lambda envs: envs.reset_async(seed=4),
    "call": lambda envs: envs.call("echo", 5),
    "call_async": lambda envs: envs.call_async("echo", 5),
    "large call": lambda envs: envs.call("echo", "x" * 200_000),
    "get_attr": lambda envs: envs.get_attr("number"),
    "set_attr": lambda envs: envs.set_attr("mark", 1),
    "stats": lambda envs: envs.stats(),
    "rollout_view": lambda envs: envs.rollout_view(),
}


def settle(envs: Any) -> None:
    """Bring a vector env back to its beginning by what its errors and its state say."""
    for _ in range(4):  # what was sent can be received, or there is nothing to wait for
        with contextlib.suppress(NoAsyncCallError, ResetNeededError, AlreadyPendingCallError):
            envs.recv(1, timeout=20)
    for wait in (envs.step_wait, envs.reset_wait, envs.call_wait):
        with contextlib.suppress(NoAsyncCallError, ResetNeededError):
            wait(timeout=10)
    envs.reset(seed=4)


def check_calls(make: Callable[[], Any], rounds: int, seed: int) -> int:
    """Interrupt every call; afterwards the vector env goes on as one that never was disturbed."""
    draw = random.Random(seed)
    with (
        SyncVectorEnv([partial(Counting, i) for i in range(4)]) as model,
        make() as envs,
        Interrupts(seed, 1e-3) as interrupts,
    ):
        settle(envs)
        for _ in range(rounds):
            call = CALLS[draw.choice(list(CALLS))]
            with contextlib.suppress(ValueError):  # rollout_view after too few steps
                interrupts.during(lambda call=call: call(envs))
            settle(envs)
            model.reset(seed=4)
            for _ in range(2):
                assert_identical(envs.step(ACTIONS), model.step(ACTIONS))
            assert envs.call("echo", 3) == tuple((row, 3) for row in range(4))
    return interrupts.count


def make_async(**arguments: Any) -> Any:
    env_fns = [partial(Counting, i, 2e-4) for i in range(4)]
    return AsyncVectorEnv(env_fns, num_workers=2, stats=True, buffers=3, **arguments)


def make_sync() -> Any:
    env_fns = [partial(Counting, i, 2e-4) for i in range(4)]
    return SyncVectorEnv(env_fns, stats=True, buffers=3)


MAKE: dict[str, Callable[[], Any]] = {
    "sync": make_sync,
    "async": make_async,
    "restart": partial(make_async, on_worker_death="restart"),
    "pipes": partial(make_async, shared_memory=False),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_after_an_interrupted_call_a_vector_env_goes_on(make: Callable[[], Any]) -> None:
    assert check_calls(make, 60, seed=11) > 10


class Point:
    """Interrupts a call where Python runs signal handlers for the k-th time.

    That is at the entry of a function and after a call into C, which is where `sys.setprofile`
    calls too.
    """

    def __init__(self, k: int) -> None:
        self._left = k
        self.reached = False

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_return"):
            self._left -= 1
            if self._left == 0:
                sys.setprofile(None)
                self.reached = True
                signal.raise_signal(signal.SIGINT)


def interrupt_at(k: int, call: Callable[[], Any]) -> tuple[bool, bool, Any]:
    """Interrupt a call at its k-th point; return whether it has one, whether it ended, and how."""
    point = Point(k)
    result = None
    try:
        try:
            sys.setprofile(point)
            result = (call(),)
        finally:
            sys.setprofile(None)
    except KeyboardInterrupt:
        return point.reached, result is not None, result and result[0]
    return point.reached, True, result and result[0]


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("make", [make_sync, make_async], ids=["sync", "async"])
def test_an_interrupt_at_any_point_of_a_call(
    make: Callable[[], Any], name: str, stride: int
) -> None:
    with SyncVectorEnv([partial(Counting, i) for i in range(4)]) as model, make() as envs:
        k = 1
        reached = True
        while reached and k < 1000:
            settle(envs)
            for _ in range(2):
                envs.step(ACTIONS)  # as many as a rollout has
            reached, _, _ = interrupt_at(k, lambda: CALLS[name](envs))
            settle(envs)
            model.reset(seed=4)
            assert_identical(envs.step(ACTIONS), model.step(ACTIONS))
            k += stride


@pytest.mark.parametrize("wait", ["step", "reset", "recv"])
def test_an_interrupt_at_any_point_of_a_wait_loses_nothing(wait: str) -> None:
    with SyncVectorEnv([partial(Counting, i) for i in range(4)]) as model, make_async() as envs:
        reached, k = True, 1
        while reached:
            settle(envs)
            model.reset(seed=4)
            if wait == "reset":
                envs.reset_async(seed=9)
                expected = model.reset(seed=9)
            elif wait == "step":
                envs.step_async(ACTIONS)
                expected = model.step(ACTIONS)
            else:
                for _ in range(4):
                    envs.recv(1)
                envs.send(ACTIONS)
                expected = model.step(ACTIONS)
            end: Callable[[], Any] = {
                "step": lambda: envs.step_wait(),
                "reset": lambda: envs.reset_wait(),
                "recv": lambda: envs.recv(4),
            }[wait]
            reached, done, result = interrupt_at(k, end)
            if not done:
                result = end()
            k += 1
            if wait == "recv":
                order = np.argsort(result.env_ids)
                assert_identical(result.observations[order], expected[0])
                assert_identical(result.rewards[order], expected[1])
            else:
                assert_identical(result, expected)
        assert k > 20


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_after_thousands_of_interrupted_calls_a_vector_env_goes_on(
    make: Callable[[], Any],
) -> None:
    check_calls(make, 3000, seed=int.from_bytes(os.urandom(4), "little"))


def check_lives(rounds: int, seed: int, context: str) -> None:
    """Interrupt construction and `close`; nothing is left, as the leak check of every test sees."""
    env_fns = [partial(Counting, i) for i in range(4)]
    longest = {"fork": 0.03, "forkserver": 0.1, "spawn": 0.4}[context]
    with Interrupts(seed, longest) as interrupts, warnings.catch_warnings():
        # An interrupt between the constructor's end and `append` drops a vector env without close.
        warnings.filterwarnings("ignore", "an AsyncVectorEnv was dropped", ResourceWarning)
        for _ in range(rounds):
            made: list[Any] = []

            def live(made: list[Any] = made) -> None:
                made.append(AsyncVectorEnv(env_fns, num_workers=2, context=context))
                made[0].reset(seed=1)
                made[0].close()

            interrupts.during(live)
            for envs in made:
                envs.close()
                assert not envs.processes


def test_an_interrupted_construction_or_close_leaves_nothing() -> None:
    check_lives(30, seed=3, context="fork")


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_hundreds_of_interrupted_constructions_leave_nothing(context: str) -> None:
    check_lives(300, seed=int.from_bytes(os.urandom(4), "little"), context=context)
