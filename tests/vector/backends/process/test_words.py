"""Steps without messages: what goes over words, and every way in which a worker may not answer."""

from __future__ import annotations

import errno
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Gated, Ledger
from tests.interrupts import Counting
from tests.vector.bounds import stretched, within
from tests.vector.over_words import backend_of, over_pipes, over_words
from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.backends.process.channel import CallerEnd

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="words need Linux on x86-64"
)

COUNT, WORKERS = 6, 3
ACTIONS = np.arange(COUNT) % 5
make = over_words(partial(AsyncVectorEnv, num_workers=WORKERS))
counting = [partial(Counting, number) for number in range(COUNT)]
quiet = [partial(Ledger, number, length=99, talks=False) for number in range(COUNT)]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The messages to workers."""
    found: list[bytes] = []
    send = CallerEnd.send

    def note(self: CallerEnd, data: bytes) -> None:
        found.append(data)
        send(self, data)

    monkeypatch.setattr(CallerEnd, "send", note)
    return found


def test_a_step_sends_no_message(sent: list[bytes]) -> None:
    with make(counting) as envs, SyncVectorEnv(counting) as model:
        assert_identical(envs.reset(seed=1), model.reset(seed=1))
        sent.clear()
        for _ in range(30):
            assert_identical(envs.step(ACTIONS), model.step(ACTIONS))
        assert sent == []
        envs.call("echo", 1)
        assert len(sent) == WORKERS


def test_few_workers_are_faster_over_pipes(sent: list[bytes]) -> None:
    with AsyncVectorEnv(counting, num_workers=1) as envs:
        envs.reset()
        sent.clear()
        envs.step(ACTIONS)
        assert len(sent) == 1


def unlike(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Make the system one of those without words."""

    def refuse(*_: Any) -> int:
        raise OSError(errno.EPERM, "a sandbox forbids it")

    if what == "no eventfd":
        monkeypatch.delattr(os, "eventfd")
    elif what == "sandbox":
        monkeypatch.setattr(os, "eventfd", refuse)
    else:
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")


@pytest.mark.parametrize("what", ["no eventfd", "sandbox", "another processor"])
def test_without_words_there_are_pipes(
    what: str, monkeypatch: pytest.MonkeyPatch, sent: list[bytes]
) -> None:
    with SyncVectorEnv(counting) as model:
        unlike(monkeypatch, what)
        with make(counting) as envs:
            assert_identical(envs.reset(seed=1), model.reset(seed=1))
            sent.clear()
            assert_identical(envs.step(ACTIONS), model.step(ACTIONS))
            assert len(sent) == WORKERS


@pytest.mark.parametrize("start", [over_words, over_pipes])
def test_infos_long_and_short_follow_by_pipe(start: Callable[..., Any]) -> None:
    """A frame of 300,000 bytes, which no pipe takes at once, does not keep others waiting."""
    env_fns = [partial(Counting, number, large=300_000) for number in range(COUNT)]
    envs = start(AsyncVectorEnv)(env_fns, num_workers=WORKERS)
    with envs, SyncVectorEnv(env_fns) as model:
        assert_identical(envs.reset(seed=1), model.reset(seed=1))
        for _ in range(24):
            assert_identical(envs.step(ACTIONS), model.step(ACTIONS))


# ---------------------------------------------------------------------- who does not answer


def stop(envs: Any, worker: int) -> Any:
    """Stop a worker's process; return the function that lets it go on."""
    pid = envs.processes[worker].pid
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def assert_same_since(found: Any, expected: Any, envs: Any, model: Any) -> None:
    """Compare the time, the last action and the noise of ledgers, of which some are new."""
    assert_identical(found[0][:, 2:], expected[0][:, 2:])
    for _ in range(3):
        actions = ACTIONS[: envs.num_envs]
        assert_identical(envs.step(actions)[0][:, 2:], model.step(actions)[0][:, 2:])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_worker_that_dies_in_a_step_is_found_at_once(restarts: bool) -> None:
    """Whichever it is, and although it leaves its token: no other wakes the caller then."""
    arguments = {"on_worker_death": "restart", "max_restarts": 9} if restarts else {}
    with make(quiet, **arguments) as envs:
        for victim in (*range(WORKERS), 0):
            envs.reset(seed=1)
            envs.step(ACTIONS)
            stop(envs, victim)
            envs.step_async(ACTIONS)
            time.sleep(0.02)  # the others answer
            os.kill(envs.processes[victim].pid, signal.SIGKILL)  # also a stopped process ends
            with within(2.0):
                if restarts:
                    rows = envs.step_wait()[4]["worker_restarted"].nonzero()[0].tolist()
                else:
                    with pytest.raises(WorkerDiedError, match="SIGKILL") as caught:
                        envs.step_wait()
                    rows = list(caught.value.env_ids)
            assert rows == [2 * victim, 2 * victim + 1]


def test_after_a_death_others_that_answer_late_are_seen(hurry: Any) -> None:
    """The last one does not wake the caller, which has one token too many."""
    with make(quiet, on_worker_death="restart") as envs:
        envs.reset(seed=1)
        ways = [stop(envs, worker) for worker in range(WORKERS)]
        envs.step_async(ACTIONS)
        os.kill(envs.processes[0].pid, signal.SIGKILL)
        hurry(lambda: True, 1, 2)
        with pytest.raises(StepTimeoutError):
            envs.step_wait(timeout=100)
        for go_on in ways[1:]:
            go_on()
        with within(2.0):
            result = envs.step_wait(timeout=30)
        assert result[4]["worker_restarted"].tolist() == [True, True, False, False, False, False]
        for _ in range(3):
            assert (envs.step(ACTIONS)[0][:, 0] == range(COUNT)).all()


def test_a_worker_that_is_stopped_is_late(hurry: Any) -> None:
    """Its answer still counts, and a reset replaces it."""
    with make(quiet, step_timeout=100) as envs, SyncVectorEnv(quiet) as model:
        envs.reset(seed=1), model.reset(seed=1)
        for resets in (False, True):
            go_on = stop(envs, 1)
            hurry(lambda: True, 1)
            with pytest.raises(StepTimeoutError) as caught:
                envs.step(ACTIONS)
            assert caught.value.env_ids == (2, 3)
            expected = model.step(ACTIONS)
            if resets:
                found, expected = envs.reset(seed=2), model.reset(seed=2)
            else:
                go_on()
                found = envs.step_wait(timeout=30)
            assert_same_since(found, expected, envs, model)


class Jumping(Ledger):
    """Raises at action 4, and jumps in time on request."""

    def step(self, action: Any) -> Any:
        if action == 4:
            raise FloatingPointError("as it was told to")
        return super().step(action)

    def jump(self) -> None:
        self.time += 10
        if self.number == 0:
            raise KeyError("as it was told to")


jumping = [partial(Jumping, number, length=99, talks=False) for number in range(WORKERS)]


def test_a_message_after_a_step_waits_for_it() -> None:
    """A worker that slept through a failed step steps before the reset, as over pipes."""
    with make(jumping) as envs, SyncVectorEnv(jumping) as model:
        envs.reset(seed=1), model.reset(seed=1)
        go_on = stop(envs, 2)
        with pytest.raises(FloatingPointError):
            envs.step([4, 0, 3])
        envs.reset_async(seed=2)
        go_on()
        assert_same_since(envs.reset_wait(), model.reset(seed=2), envs, model)


def test_a_message_before_a_step_goes_first() -> None:
    """After a call that fails in one environment others may still be about to make it."""
    with make(jumping) as envs:
        envs.reset(seed=1)
        go_on = stop(envs, 2)
        with pytest.raises(KeyError):
            envs.call("jump")
        envs.step_async([1, 2, 3])
        go_on()
        assert envs.step_wait()[0][:, 2].tolist() == [11] * WORKERS


def test_a_late_step_is_waited_for_beside_a_gate(tmp_path: Path) -> None:
    """The caller sleeps until the last worker answers, and looks no more often than that."""
    gate = tmp_path / "gate"
    env_fns = [*quiet[:-1], partial(Gated, gate, COUNT - 1, length=99, talks=False)]
    with make(env_fns) as envs:
        envs.reset(seed=1)
        envs.step_async([0, 0, 0, 0, 0, 4])
        steps, looks = backend_of(envs)._steps, []
        read = steps.read
        steps.read = lambda: looks.append(1) or read()
        with pytest.raises(StepTimeoutError):
            envs.step_wait(timeout=0.3)
        assert len(looks) < 10
        gate.touch()
        assert envs.step_wait()[0][:, 2].tolist() == [1] * COUNT


def test_an_answer_to_a_former_stream_is_none_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that outlives a stream answers it as the reset's interrupted wait goes on."""
    with over_words(AsyncVectorEnv)(jumping, num_workers=WORKERS) as envs:
        envs.reset(seed=1)
        envs.recv(WORKERS)
        go_on = stop(envs, 2)
        envs.send([0] * WORKERS)
        os.kill(envs.processes[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError):
            envs.recv(WORKERS)
        envs.reset_async(seed=2)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(CallerEnd, "receive", interrupt)
            envs.reset_wait()
        steps = backend_of(envs)._steps
        read = steps.read

        def read_before_it_goes_on() -> Any:
            found = read()
            steps.read = read
            go_on()
            time.sleep(0.3)
            return found

        steps.read = read_before_it_goes_on
        envs.reset_wait()
        envs.recv(WORKERS)
        go_on = stop(envs, 2)
        envs.send([0] * WORKERS)
        with pytest.raises(StepTimeoutError):
            envs.recv(WORKERS, timeout=0.3)
        go_on()
        assert envs.recv(WORKERS).observations[:, 2].tolist() == [1] * WORKERS


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


class Slow(Ledger):
    """Takes a while to step, but not to reset."""

    def step(self, action: Any) -> Any:
        time.sleep(0.3)
        return super().step(action)


def test_a_row_that_answers_by_pipe_counts_among_those_that_recv_waits_for() -> None:
    """A reset answers first; else all others would leave it to one that is missing."""
    env_fns = [partial(Slow, row, length=99, talks=False) for row in range(3)]
    with over_words(AsyncVectorEnv)(env_fns, num_workers=3, slow_warning=None) as envs:
        envs.reset(seed=1)
        for _ in range(3):
            envs.send_reset([0])
            envs.send([0] * 2, [1, 2])
            with within(3.0):
                assert len(envs.recv(3, timeout=stretched(3.0)).env_ids) == 3


def test_workers_that_are_replaced_between_episodes_take_commands_by_words() -> None:
    env_fns = [partial(Ledger, row, length=2 + row, talks=False) for row in range(3)]
    runs = []
    for kind in (AsyncVectorEnv, over_words(AsyncVectorEnv)):
        with kind(env_fns, num_workers=3, recycle_after=1) as envs:
            run: list[Any] = [envs.reset(seed=1)[0]]
            for turn in range(10):
                if turn % 2:
                    run.append(envs.step([0] * 3)[:4])
                    continue
                envs.send([0] * 3, [0, 1, 2])
                got = envs.recv(3)
                order = np.argsort(got.env_ids)
                run.append([part[order] for part in got[:4]])
            runs.append(run)
    np.testing.assert_equal(runs[0], runs[1])


def test_words_are_closed_with_the_vector_env() -> None:
    envs = make(counting)
    descriptors = backend_of(envs)._shared[1:]
    assert len(descriptors) == 3
    assert not any(map(os.get_inheritable, descriptors))
    envs.close()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.eventfd_read(descriptor)


class Struck:
    """Words whose n-th change is interrupted."""

    def __init__(self, words: Any, left: int) -> None:
        self._words, self._left = words, left

    def __setitem__(self, at: Any, value: Any) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        self._words[at] = value

    def __getitem__(self, at: Any) -> Any:
        return self._words[at]


@pytest.mark.parametrize("change", [1, 2, 3])
def test_an_interrupt_while_a_command_is_written(change: int) -> None:
    """What is half written reaches no worker that takes the place of another."""
    with make(quiet) as envs, SyncVectorEnv(quiet) as model:
        envs.reset(seed=1)
        steps = backend_of(envs)._steps
        steps._words = Struck(steps._words, change)
        with pytest.raises(KeyboardInterrupt):
            envs.step(ACTIONS)
        assert_same_since(envs.reset(seed=2), model.reset(seed=2), envs, model)
