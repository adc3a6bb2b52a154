"""Interrupts at any moment: a wait can be repeated, a call leaves a known state, nothing is left.

What is interrupted: waits, calls, what wrappers do with a result, restarts, and the start and the
end of workers. Ctrl-C in the command line is tested in tests/cli/test_interrupts.py.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Patient, ledgers
from tests.envs.faulty import arm, factories
from tests.interrupts import (
    Counting,
    Interrupts,
    Places,
    Struck,
    guarded,
    interrupt_at,
)
from tests.leaks import children
from tests.vector.bounds import kill, settled, stretched
from tests.vector.over_words import backend_of, over_pipes, over_words
from vecspaces import wrappers
from vecspaces.errors import (
    AlreadyPendingCallError,
    NoAsyncCallError,
    ResetNeededError,
    VecspacesError,
)
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timer signals")

COUNT = 4
ACTIONS = np.arange(COUNT)
SOME = [3, 1]
MASK = np.array([True, False, True, False])
pytestmark = guarded()
full = partial(pytest.param, marks=[pytest.mark.full, guarded(900)])


def counting(seconds: float = 0.0, large: int = 0) -> list[Any]:
    return [partial(Counting, number, seconds, large) for number in range(COUNT)]


def make_sync(**arguments: Any) -> Any:
    return SyncVectorEnv(counting(2e-4), stats=True, buffers=3, **arguments)


def make_async(**arguments: Any) -> Any:
    return AsyncVectorEnv(counting(2e-4), num_workers=2, stats=True, buffers=3, **arguments)


def test_an_interrupt_that_python_drops_fails_no_test() -> None:
    thing = Counting(0)
    watched = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    assert watched() is None


# ---------------------------------------------------------------------- waits


def until_done(interrupts: Interrupts, wait: Callable[[], Any]) -> Any:
    """Wait, interrupted again and again; at last undisturbed."""
    for _ in range(200):
        done, result = interrupts.during(wait)
        if done:
            return result
    return wait()


def receive_rows(envs: Any, interrupts: Interrupts) -> list[Any]:
    """Send to all, receive one by one under interrupts; return what came."""
    with contextlib.suppress(NoAsyncCallError):
        while True:
            envs.recv(1)  # the first observations after a reset
    envs.send(ACTIONS)
    rows = []
    for _ in range(COUNT):
        # No partial: what C calls returns through C, where an interrupt drops the result.
        got = until_done(interrupts, lambda: envs.recv(1))
        rows.append((int(got.env_ids[0]), got.observations[0], got.rewards[0]))
    return rows


class Silent(VectorWrapper[Any, Any, Any, Any, Any]):
    """Takes the statistics of episodes out of the infos again."""

    def _after_step(self, result: Any, env_ids: Any) -> Any:
        *arrays, infos = result
        return *arrays, {key: value for key, value in infos.items() if "episode" not in key}


def wrapped(env_fns: Any) -> Any:
    """Workers in wrappers that change nothing in the end."""
    envs: Any = wrappers.RecordEpisodeStatistics(AsyncVectorEnv(env_fns, num_workers=2))
    envs = wrappers.TransformObservation(Silent(envs), np.positive)
    return wrappers.TransformReward(VectorWrapper(envs), np.positive)


WAITED_FOR: dict[str, Callable[..., Any]] = {
    "workers": partial(AsyncVectorEnv, num_workers=2),
    "words": over_words(partial(AsyncVectorEnv, num_workers=2)),
    "wrappers": wrapped,
}


@pytest.mark.parametrize(
    ("what", "seconds", "large", "rounds"),
    [
        ("workers", 0.0, 0, 30),
        ("workers", 0.0002, 300_000, 30),
        ("words", 0.001, 0, 30),
        ("wrappers", 0.0002, 0, 30),
        *(full("workers", seconds, 0, 5000) for seconds in (0.0, 0.0002, 0.001, 0.005)),
        *(full("words", seconds, 0, 5000) for seconds in (0.0, 0.0002, 0.001)),
        full("workers", 0.02, 0, 1000),
        *(full(what, 0.0, 300_000, 500) for what in ("workers", "words")),
        full("wrappers", 0.0002, 0, 3000),
    ],
)
def test_an_interrupted_wait_gives_the_right_answer_when_repeated(
    what: str, seconds: float, large: int, rounds: int
) -> None:
    """Every answer comes, and is that of a run without interrupts."""
    seed = 7 if rounds < 100 else int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    with (
        SyncVectorEnv(counting(large=large)) as model,
        WAITED_FOR[what](counting(seconds, large)) as envs,
        Interrupts(seed, 4 * seconds + 4e-4) as interrupts,
    ):
        assert_identical(envs.reset(seed=1), model.reset(seed=1))
        while interrupts.count < rounds:
            envs.step_async(ACTIONS)
            expected = model.step(ACTIONS)
            assert_identical(until_done(interrupts, envs.step_wait), expected)
            if interrupts.count % 5 == 0:
                envs.reset_async(seed=3)
                expected = model.reset(seed=3)
                assert_identical(until_done(interrupts, envs.reset_wait), expected)
            if interrupts.count % 3 == 0:
                rows = receive_rows(envs, interrupts)
                expected = model.step(ACTIONS)
                for row, observation, reward in rows:
                    assert_identical(observation, expected[0][row])
                    assert reward == expected[1][row]


# How a call begins, what is interrupted, and how it is repeated.
WAITS: dict[str, tuple[Any, Any, Any]] = {
    "step_wait": (lambda envs: envs.step_async(ACTIONS), *[lambda envs: envs.step_wait()] * 2),
    "reset_wait": (
        lambda envs: envs.reset_async(options={"reset_mask": MASK}),
        *[lambda envs: envs.reset_wait()] * 2,
    ),
    "recv": (lambda envs: envs.send(ACTIONS), *[lambda envs: envs.recv()] * 2),
    "first recv": (lambda envs: envs.send_reset(SOME), *[lambda envs: envs.recv(2)] * 2),
    # A vector env that is not wrapped may not have begun these.
    "step": (None, lambda envs: envs.step(ACTIONS), lambda envs: envs.step_wait()),
    "reset": (None, lambda envs: envs.reset(seed=5), lambda envs: envs.reset_wait()),
    "step some": (
        None,
        lambda envs: envs.step(ACTIONS[:2], env_ids=SOME),
        lambda envs: envs.recv(2),
    ),
}


def _undisturbed(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        sys.setprofile(None)
        result = getattr(self.envs, name)(*args, **kwargs)
        sys.setprofile(self.point)
        return result

    return method


class Undisturbed(VectorEnv[Any, Any, Any]):
    """The vector env that is wrapped: points of interrupts begin after its calls."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.envs, self.point = envs, None
        self.num_envs, self.metadata, self.batch_size = envs.num_envs, envs.metadata, COUNT
        self.single_observation_space = envs.single_observation_space
        self.single_action_space = envs.single_action_space
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        self.spec = SimpleNamespace(max_episode_steps=100)

    step, step_async, step_wait = map(_undisturbed, ("step", "step_async", "step_wait"))
    reset, reset_async, reset_wait = map(_undisturbed, ("reset", "reset_async", "reset_wait"))
    send, send_reset, recv = map(_undisturbed, ("send", "send_reset", "recv"))

    def watch(self, point: Any) -> None:
        self.point = point

    def close_extras(self, **kwargs: Any) -> None:
        self.envs.close(**kwargs)


def stacked(mode: str = "NextStep") -> Any:
    """A vector env in every kind of wrapper with a state, and in some without."""
    inner = Undisturbed(SyncVectorEnv(counting(), autoreset_mode=mode))
    envs: Any = VectorWrapper(wrappers.RecordEpisodeStatistics(inner))
    envs = wrappers.FrameStackObservation(wrappers.ClipReward(envs, max_reward=8.5), 3)
    envs = wrappers.DtypeObservation(wrappers.TimeAwareObservation(envs), np.float32)
    envs = wrappers.NormalizeObservation(wrappers.TransformAction(envs, np.flip))
    return wrappers.NormalizeReward(envs)


STATE = ("accumulated_reward", "timesteps", "prev_dones", "episode_returns", "episode_lengths")
STATE += ("episode_count", "return_queue", "length_queue")


def shown(envs: Any, result: Any) -> Any:
    """What a call returned and what wrappers know, but for durations; rows of workers in order."""
    known = {}
    sorts = not isinstance(envs, VectorWrapper) and hasattr(result, "env_ids")
    while isinstance(envs, VectorWrapper):
        for name in ("obs_rms", "return_rms"):
            if name in vars(envs):
                known[name] = [*map(np.asarray, vars(vars(envs)[name]).values())]
        for name in STATE:
            if name in vars(envs):
                known[f"{type(envs).__name__}.{name}"] = np.array(vars(envs)[name])
        envs = envs.env
    *arrays, infos = result[:5]
    order = np.argsort(result.env_ids) if sorts else slice(None)
    if "episode" in infos:
        infos = {**infos, "episode": {key: infos["episode"][key] for key in "rl"}}
    return [array[order] for array in arrays], infos, known


# Who waits: how it is made, its equal that is not disturbed, how many points are left out.
WAITING: dict[str, tuple[Any, Any, int]] = {
    "workers": (make_async, make_sync, 13),
    "words": (over_words(make_async), make_sync, 13),
    "wrappers": (stacked, stacked, 31),
    "wrappers, SameStep": (partial(stacked, "SameStep"), partial(stacked, "SameStep"), 31),
}


@pytest.mark.parametrize("all_points", [False, full(True)])
@pytest.mark.parametrize(
    ("who", "name"),
    [(who, name) for who in WAITING for name in WAITS if "wr" in who or WAITS[name][0] is not None],
)
def test_an_interrupt_at_any_point_of_a_wait_loses_nothing(
    who: str, name: str, all_points: bool
) -> None:
    begin, call, repeat = WAITS[name]
    make, make_model, stride = WAITING[who]
    with make() as envs, make_model() as model:
        watch = getattr(envs.unwrapped, "watch", sys.setprofile)
        envs.reset(seed=1), model.reset(seed=1)
        reached, k = True, 1
        while reached:
            for one in (envs, model):
                one.step(ACTIONS)
                if begin is not None:
                    begin(one)
            expected = shown(model, call(model))
            reached, done, result = interrupt_at(k, lambda: call(envs), watch)
            if not done:
                result = repeat(envs)
            assert_identical(shown(envs, result), expected)
            k += 1 if all_points else stride
        assert k > 20


# ---------------------------------------------------------------------- calls

CALLS: dict[str, Callable[[Any], Any]] = {
    "reset": lambda envs: envs.reset(seed=4),
    "partial reset": lambda envs: envs.reset(options={"reset_mask": MASK}),
    "step": lambda envs: envs.step(ACTIONS),
    "step some": lambda envs: envs.step(ACTIONS[:2], env_ids=SOME),
    "send and recv": lambda envs: (envs.send(ACTIONS), envs.recv(2), envs.recv(2)),
    "step_async": lambda envs: envs.step_async(ACTIONS),
    "reset_async": lambda envs: envs.reset_async(seed=4),
    "call": lambda envs: envs.call("echo", 5),
    "call_async": lambda envs: envs.call_async("echo", 5),
    "large call": lambda envs: envs.call("echo", "x" * 200_000),  # more than a pipe takes
    "get_attr": lambda envs: envs.get_attr("number"),
    "set_attr": lambda envs: envs.set_attr("mark", 1),
    "stats": lambda envs: envs.stats(),
    "rollout_view": lambda envs: envs.rollout_view(),
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


CALLED: dict[str, Callable[[], Any]] = {
    "sync": make_sync,
    "async": make_async,
    "restart": partial(make_async, on_worker_death="restart"),
    "pipes": partial(make_async, shared_memory=False),
    "words": over_words(make_async),
}


@pytest.mark.parametrize(
    ("who", "stride"),
    [
        *((who, 199) for who in ("sync", "async", "words")),
        *(full(who, 7 if who in ("restart", "pipes") else 1) for who in CALLED),
    ],
)
def test_after_an_interrupt_at_any_point_of_a_call_a_vector_env_goes_on(
    who: str, stride: int
) -> None:
    """It goes on as one that never was disturbed."""
    with SyncVectorEnv(counting()) as model, CALLED[who]() as envs:
        places, count = Places(stride), 0
        for call in CALLS.values():
            reached = True
            while reached:
                settle(envs)
                for _ in range(2):
                    envs.step(ACTIONS)  # as many as a rollout has
                reached, _, _ = places.interrupt(partial(call, envs))
                settle(envs)
                if who != "sync":
                    # Nothing waits for room: each later wait would end at once, since there is
                    # always room in an empty pipe.
                    assert backend_of(envs)._steps.wait(0.0) == []
                model.reset(seed=4)
                for _ in range(2):
                    assert_identical(envs.step(ACTIONS), model.step(ACTIONS))
                assert envs.call("echo", 3) == tuple((row, 3) for row in range(COUNT))
                count += reached
        assert count > 600 / stride


# ---------------------------------------------------------------------- inside of wrappers


def _interrupt_inside(frame: Any, event: str, argument: Any) -> None:
    """Send SIGINT where a wrapper in the middle of the stack begins to change a result."""
    wrapper = wrappers.TimeAwareObservation
    if event == "call" and frame.f_code in (wrapper._begin.__code__, wrapper._follow.__code__):
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)


def interrupted(name: str) -> Any:
    """A stack whose call was interrupted inside its wrappers."""
    begin, call, _ = WAITS[name]
    envs = stacked()
    envs.reset(seed=1)
    if begin is not None:
        begin(envs)
    envs.unwrapped.watch(_interrupt_inside)
    with pytest.raises(KeyboardInterrupt):
        call(envs)
    envs.unwrapped.watch(None)
    return envs


@pytest.mark.parametrize("name", WAITS)
def test_after_an_interrupt_other_calls_are_refused_and_a_reset_begins_anew(name: str) -> None:
    with interrupted(name) as envs:
        calls: list[Callable[[], Any]] = [
            lambda: envs.step(ACTIONS),
            lambda: envs.step(ACTIONS[:1], env_ids=[0]),
            lambda: envs.step_async(ACTIONS),
            lambda: envs.send(ACTIONS),
            lambda: envs.send_reset([0]),
            lambda: envs.reset(options={"reset_mask": MASK}),
        ]
        for call in calls:
            with pytest.raises(AlreadyPendingCallError, match=r"is still pending: .* or reset\(\)"):
                call()
        first, _ = envs.reset(seed=1)
        assert first.shape == envs.observation_space.shape
        assert envs.timesteps.tolist() == [0] * COUNT
        envs.step(ACTIONS)


@pytest.mark.parametrize("name", ["recv", "first recv", "step some"])
def test_recv_of_another_number_says_how_many_are_there(name: str) -> None:
    count = 4 if name == "recv" else 2
    with interrupted(name) as envs:
        with pytest.raises(AlreadyPendingCallError, match=rf"recv\({count}\) returns them"):
            envs.recv(3)
        assert len(envs.recv(count).env_ids) == count


@pytest.mark.parametrize("stride", [11, full(1)])
@pytest.mark.parametrize("who", ["threads", "pipes", "words"])
def test_a_row_that_was_interrupted_as_it_came_is_not_received_twice(who: str, stride: int) -> None:
    """Rows are received, sent again while another is under way, and not found once more."""
    env_fns = [partial(Patient, number, length=10**6, talks=False) for number in range(3)]
    starts: dict[str, Any] = {
        "threads": partial(SyncVectorEnv, concurrent_envs=3),
        "pipes": over_pipes(partial(AsyncVectorEnv, num_workers=3)),
        "words": over_words(partial(AsyncVectorEnv, num_workers=3)),
    }
    with starts[who](env_fns) as envs:
        envs.reset(seed=1)
        envs.recv(3)
        places, times, reached = Places(stride), np.zeros(3), True
        while reached:
            envs.send([1, 1, 30], [0, 1, 2])
            times += 1
            reached, ended, _ = places.interrupt(lambda: envs.recv(2))
            if not ended:
                with contextlib.suppress(NoAsyncCallError):  # it had ended, but for its result
                    envs.recv(2)
            queue = envs._session.queue
            again = [row for row in range(3) if row not in {**queue.under_way, **queue.ready}]
            envs.send([5] * len(again), again)
            times[again] += 1
            got = envs.recv(3)
            assert got.observations[got.env_ids.argsort(), 2].tolist() == times.tolist()


def test_another_wait_does_not_return_what_was_interrupted() -> None:
    with interrupted("step") as envs:
        with pytest.raises(NoAsyncCallError, match="call step_wait first"):
            envs.recv()
        assert len(envs.step_wait()) == 5
    with interrupted("reset") as envs:
        envs.reset_async(options={"reset_mask": np.ones(COUNT, bool)})
        envs.reset_wait()
        with pytest.raises(NoAsyncCallError):
            envs.reset_wait()


# ---------------------------------------------------------------------- restarts


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
# The standard library reads source files for a stack: one that is interrupted is closed later.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize(
    ("deed", "stride"), [("os._exit", 389), ("hang", 997), full("os._exit", 1), full("hang", 3)]
)
def test_an_interrupt_at_any_point_of_a_restart(tmp_path: Path, deed: str, stride: int) -> None:
    """Whether it had begun to restart or not, it does then, and frees all of the old worker."""
    codes: list[Any] = []
    arguments: dict[str, Any] = {"max_restarts": 10_000}
    arguments["on_worker_death"] = lambda error: codes.append(error.exitcode)
    if deed == "hang":
        bound = stretched(0.2 if stride > 3 else 0.1)  # of the healthy environment's steps too
        arguments |= {"on_step_timeout": "restart", "step_timeout": bound}
    actions = np.array([1, 1])
    env_fns = factories(2, tmp_path, deed, at=0)
    with AsyncVectorEnv(env_fns, num_workers=2, **arguments) as envs:
        places, reached = Places(stride), True
        envs.reset(seed=0)
        before = tuple(map(len, held()))
        while reached:
            envs.reset(seed=0)
            assert settled(lambda: tuple(map(len, held())), before) == before
            envs.step(actions)
            arm(tmp_path)
            reached, done, result = places.interrupt(lambda: envs.step(actions))
            try:
                result = result if done else envs.step_wait(timeout=None if deed == "hang" else 20)
            except (NoAsyncCallError, ResetNeededError):
                (tmp_path / "trigger").unlink(missing_ok=True)
                continue
            assert result[3].tolist() == [True, False]
            assert result[4]["worker_restarted"].tolist() == [True, False]
    assert set(codes) == ({3} if deed == "os._exit" else set())


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
        if method == "words":
            return over_words(AsyncVectorEnv)(ledgers(3), num_workers=3, context="fork")
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


@pytest.fixture
def what_destructors_raise_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt in a destructor is not raised: pytest would keep its frames and descriptors."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


def leaves_nothing(test: Any) -> Any:
    """Mark tests of interrupts that come while vector envs start and end."""
    # What a handler interrupts in the standard library, such as a file that is read, is closed when
    # it is collected. So is a vector env that nothing refers to yet.
    for ignored in (
        "ignore:unclosed file:ResourceWarning",
        "ignore:an AsyncVectorEnv was dropped:ResourceWarning",
    ):
        test = pytest.mark.filterwarnings(ignored)(test)
    test = pytest.mark.usefixtures("what_destructors_raise_is_dropped")(test)
    return pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")(test)


def test_what_interrupts_the_sending_of_a_command_is_in_no_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cycle would keep frames, and in them views of the memory, until a collection."""

    def strike(*_: Any) -> Any:
        raise Struck

    envs = AsyncVectorEnv(ledgers(2), num_workers=1, context="fork")
    with envs, monkeypatch.context() as patch:
        patch.setattr(backend_of(envs), "submit", strike)
        with pytest.raises(Struck) as caught:
            envs.reset()
        struck = weakref.ref(caught.value)
        del caught
        assert struck() is None


LIVES = ("start", "reset", "close")
ROUNDS = {"fork": 200, "words": 200, "spawn": 20, "forkserver": 100}


@leaves_nothing
@pytest.mark.parametrize(
    ("what", "method", "rounds"),
    [
        *(("start", "words", 3), ("reset", "fork", 3), ("close", "words", 3)),
        *(full(what, *each) for what in LIVES for each in ROUNDS.items()),
    ],
)
def test_a_start_reset_or_close_that_is_interrupted_leaves_nothing_and_can_be_repeated(
    what: str, method: str, rounds: int
) -> None:
    def measured(call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = call()
        lengths.append(time.perf_counter() - began)
        return True, result

    lengths: list[float] = []
    for _ in range(2):
        live(what, method, 0, measured)
    with Interrupts(7, 1.5 * min(lengths)) as interrupts:
        before = held()
        for number in range(rounds):
            interrupts.error = Struck if number % 2 else None
            live(what, method, number, interrupts.during)
            assert settled(held, before) == before


@leaves_nothing
@pytest.mark.full
@guarded(900)
@pytest.mark.parametrize("what", LIVES)
@pytest.mark.parametrize(
    ("method", "stride"), [("fork", 4), ("words", 4), ("spawn", 120), ("forkserver", 40)]
)
def test_an_interrupt_at_any_point_of_a_start_reset_or_close(
    what: str, method: str, stride: int
) -> None:
    def during(call: Callable[[], Any]) -> tuple[bool, Any]:
        nonlocal reached
        reached, done, result = places.interrupt(call)
        return done, result

    live(what, method, 0, lambda call: (True, call()))
    before, places, reached, number = held(), Places(stride), True, 0
    while reached:
        live(what, method, number, during)
        assert settled(held, before) == before
        number += 1
    assert number > 2
