"""Busy-polling: what is ready is seen, waits end in time, and long waits sleep."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator

import pytest

from vecspaces.vector.backends.process import affinity
from vecspaces.vector.backends.process.affinity import CoreAffinity, SpinPoll
from vecspaces.vector.backends.process.cores import usable_cores

pytestmark = pytest.mark.skipif(not hasattr(select, "poll"), reason="a system without poll")


class Script:
    """A poll that finds nothing in a number of looks, and notes how it was asked.

    Args:
        empty: How many looks find nothing.
        asleep: How long a wait without bound sleeps before it finds something, in seconds.
    """

    def __init__(self, empty: int, asleep: float = 0.0) -> None:
        self.empty, self.asleep = empty, asleep
        self.asked: list[int | None] = []

    def poll(self, milliseconds: int | None = None) -> list[tuple[int, int]]:
        self.asked.append(milliseconds)
        if milliseconds == 0:
            self.empty -= 1
            return [(3, select.POLLIN)] if self.empty < 0 else []
        time.sleep(self.asleep)
        return [(3, select.POLLIN)]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def spinning(script: Script) -> SpinPoll:
    return SpinPoll(script)  # type: ignore[arg-type]  # it does what is asked of select.poll


def test_what_is_ready_is_found_without_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "_SPIN_SECONDS", 5.0)
    script = Script(empty=2)
    assert spinning(script).poll(None) == [(3, select.POLLIN)]
    assert script.asked == [0, 0, 0]


def test_what_takes_long_is_slept_for_and_the_next_wait_sleeps_at_once() -> None:
    script = Script(empty=10**9, asleep=0.01)
    poll = spinning(script)
    assert poll.poll(None)
    assert script.asked[-1] is None and len(script.asked) > 1
    script.asked.clear()
    assert poll.poll(50)
    assert script.asked == [50]


def test_after_a_short_sleep_it_busy_polls_again(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(empty=10**9, asleep=0.01)
    poll = spinning(script)
    poll.poll(None)
    monkeypatch.setattr(affinity, "_SPIN_SECONDS", 5.0)
    script.empty, script.asleep, script.asked = 0, 0.0, []
    poll.poll(None)
    poll.poll(None)
    assert script.asked == [None, 0]


def test_a_wait_of_no_time_looks_once() -> None:
    script = Script(empty=10**9)
    spinning(script).poll(0)
    assert script.asked == [0]


def test_a_real_pipe_is_heard_and_its_silence_ends_in_time(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    real = select.poll()
    real.register(reading, select.POLLIN)
    poll = SpinPoll(real)
    assert poll.poll(1) == []
    os.write(writing, b"x")
    assert poll.poll(None) == [(reading, select.POLLIN)]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen here")
def test_a_visit_home_binds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "_RETURN_SECONDS", 0.0)
    before = os.sched_getaffinity(0)
    home = CoreAffinity(usable_cores()[-1])
    for _ in range(40):
        home.visit()
    assert os.sched_getaffinity(0) == before
    CoreAffinity(None).visit()
    CoreAffinity(10**6).visit()  # not one of this machine
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen here")
def test_an_interrupted_visit_gives_the_cores_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "_RETURN_SECONDS", 0.0)
    before = os.sched_getaffinity(0)
    choose = os.sched_setaffinity

    def interrupted(pid: int, cores: set[int]) -> None:
        choose(pid, cores)
        if cores != before or len(before) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "sched_setaffinity", interrupted)
    with pytest.raises(KeyboardInterrupt):
        CoreAffinity(usable_cores()[-1]).visit()
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen here")
def test_a_core_that_the_system_takes_away_fails_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int, cores: set[int]) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    home = CoreAffinity(usable_cores()[-1])
    home.visit()
    monkeypatch.setattr(os, "sched_getaffinity", None)  # it is not tried again
    home.visit()
