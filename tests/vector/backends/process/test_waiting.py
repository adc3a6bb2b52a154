"""How processes wait: the best way is found, kept and found again; long waits sleep."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from tests.interrupts import interrupt_at
from vecspaces.vector.backends.process.waiting import SpinPoll, WaitingPolicy, WaitMode

ALL = (WaitMode.RETURNS, WaitMode.FREE, WaitMode.BUSY_POLLS)
Cost = Callable[[WaitMode, float], float]


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


class Caller:
    """Makes commands that take as long as `cost` says of their way and of the time."""

    def __init__(self, ways: Sequence[WaitMode], cost: Cost, pause: float = 0.0) -> None:
        self.clock = Clock()
        self.cost = cost
        self.policy = WaitingPolicy(ways, self.clock)
        self.spent = dict.fromkeys(ways, 0.0)
        self.pause = pause

    def run(self, seconds: float) -> WaitMode:
        """Make commands for some seconds, and return the way that most of the last part took."""
        end = self.clock.now + seconds
        self.spent = dict.fromkeys(self.spent, 0.0)
        while self.clock.now < end:
            way = self.policy.begin()
            took = self.cost(way, self.clock.now)
            self.spent[way] += took
            self.clock.now += took
            self.policy.end()
            self.clock.now += self.pause
        return max(self.spent, key=self.spent.__getitem__)

    def share(self, way: WaitMode) -> float:
        """The part of the time of the last run that commands of one way took."""
        return self.spent[way] / sum(self.spent.values())


@pytest.mark.parametrize("pause", [0.0, 0.5])
@pytest.mark.parametrize("best", ALL)
@pytest.mark.parametrize("unit", [20e-6, 1e-3, 20e-3])
def test_the_cheapest_way_is_kept(best: WaitMode, unit: float, pause: float) -> None:
    caller = Caller(ALL, lambda way, now: unit * (1.0 if way is best else 1.5), pause * unit)
    caller.run(200 * unit + 0.5)
    assert caller.run(2000 * unit + 1.0) is best
    assert caller.share(best) > 0.9


@pytest.mark.parametrize(
    ("costs", "most"),
    [
        # What saves next to nothing is not worth the processor.
        ({"RETURNS": 100e-6, "FREE": 99e-6, "BUSY_POLLS": 98e-6}, 0.1),
        # A way that loses its core is tried for a moment and seldom.
        ({"RETURNS": 50e-6, "FREE": 60e-6, "BUSY_POLLS": 4e-3}, 0.01),
        # One way is no choice.
        ({"RETURNS": 1e-3}, 1.0),
    ],
)
def test_the_first_way_is_kept_where_no_other_is_worth_it(
    costs: dict[str, float], most: float
) -> None:
    ways = [WaitMode[name] for name in costs]
    caller = Caller(ways, lambda way, now: costs[way.name])
    caller.run(0.5)
    assert caller.run(5.0) is WaitMode.RETURNS
    assert caller.share(ways[-1]) <= most


def test_a_change_is_noticed_long_before_the_next_comparison_is_due() -> None:
    """Another program begins, and wants the core on which this one busy-polled."""
    begins, asleep = 8.0, 100e-6

    def cost(way: WaitMode, now: float) -> float:
        if way is WaitMode.BUSY_POLLS:
            return asleep / 2 if now < begins else 4e-3
        return asleep

    caller = Caller((WaitMode.FREE, WaitMode.BUSY_POLLS), cost)
    assert caller.run(begins - 1.0) is WaitMode.BUSY_POLLS
    assert caller.share(WaitMode.BUSY_POLLS) > 0.9
    caller.run(3.0)
    assert caller.run(1.0) is WaitMode.FREE


def test_what_the_caller_does_between_commands_defers_no_comparison() -> None:
    """A policy learns for a minute, or someone types, while the ways are compared."""
    costly = {WaitMode.FREE}
    caller = Caller(
        (WaitMode.FREE, WaitMode.RETURNS),
        lambda way, now: 2e-3 if way in costly else 1e-3,
        pause=60.0,
    )
    caller.run(100 * 60.0)
    assert caller.run(500 * 60.0) is WaitMode.RETURNS
    assert caller.share(WaitMode.RETURNS) > 0.9
    caller.pause, costly = 0.0, {WaitMode.RETURNS}
    caller.run(10.0)
    assert caller.run(1.0) is WaitMode.FREE


def test_a_command_without_an_end_defers_the_next_comparison_and_not_forever() -> None:
    costly = {WaitMode.FREE}
    caller = Caller(
        (WaitMode.FREE, WaitMode.RETURNS), lambda way, now: 0.2 if way in costly else 0.1
    )
    caller.policy.begin()  # interrupted
    caller.clock.now += 1e6
    assert caller.run(60.0) is WaitMode.RETURNS
    costly = {WaitMode.RETURNS}
    caller.run(2400.0)
    assert caller.run(10.0) is WaitMode.FREE


def test_one_slow_command_is_no_change() -> None:
    """Resets of environments and the caller's own pauses come now and then."""
    slow: set[int] = set()

    def cost(way: WaitMode, now: float) -> float:
        number = int(now / 0.3)
        took = {WaitMode.FREE: 100e-6, WaitMode.BUSY_POLLS: 60e-6}[way]
        if number not in slow:
            slow.add(number)
            return took + 10e-3
        return took

    caller = Caller((WaitMode.FREE, WaitMode.BUSY_POLLS), cost)
    caller.run(2.0)
    assert caller.run(3.0) is WaitMode.BUSY_POLLS
    assert caller.share(WaitMode.BUSY_POLLS) > 0.9


def test_a_stream_which_has_no_end_is_decided_too() -> None:
    clock = Clock()
    policy = WaitingPolicy((WaitMode.FREE, WaitMode.BUSY_POLLS), clock)
    way = policy.begin()
    for _ in range(40_000):
        clock.now += 50e-6 if way is WaitMode.BUSY_POLLS else 100e-6
        way = policy.begin()
    assert way is WaitMode.BUSY_POLLS


# ---------------------------------------------------------------------- one wait


class Script:
    """A poll that finds something at a point in time, and notes how it was asked.

    Args:
        clock: Each look takes a microsecond of it.
        ready: By wait, how long it takes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ready = 0.0
        self.asked: list[int | None] = []

    def poll(self, milliseconds: int | None = None) -> list[tuple[int, int]]:
        self.asked.append(milliseconds)
        if milliseconds == 0:
            self._clock.now += 1e-6
        else:
            self._clock.now = max(self._clock.now, self.ready)
        return [(3, select.POLLIN)] if self._clock.now >= self.ready else []


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    if not hasattr(select, "poll"):
        pytest.skip("a system without poll")
    monkeypatch.setattr(os, "sched_yield", lambda: None)  # other programs would take the core
    return Script(Clock())


def wait(poll: SpinPoll, script: Script, seconds: float, command: int = 3) -> bool:
    """Wait for what comes after some seconds; return whether the poll slept."""
    script.asked.clear()
    script.ready = script._clock.now + seconds
    assert poll.poll(None, command)
    return script.asked[-1] is None


@pytest.fixture
def poll(script: Script) -> SpinPoll:
    return SpinPoll(script, script._clock)  # type: ignore[arg-type]  # what is used of select.poll


def test_waits_are_busy_polled_through_once_their_length_is_known(
    poll: SpinPoll, script: Script
) -> None:
    for seconds in (10e-6, 100e-6, 1e-3, 4e-3):
        for _ in range(40):
            wait(poll, script, seconds)
        assert not wait(poll, script, seconds)


def test_long_waits_sleep_at_once_others_after_twice_the_usual_length_of_the_command(
    poll: SpinPoll, script: Script
) -> None:
    for _ in range(40):
        wait(poll, script, 20e-3)
        wait(poll, script, 100e-6, command=5)
    assert wait(poll, script, 20e-3)
    assert script.asked == [None]
    assert not wait(poll, script, 100e-6, command=5)
    assert wait(poll, script, 3e-3, command=5)
    assert 1 < len(script.asked) < 400
    script.ready = script._clock.now + 1.0
    script.asked.clear()
    assert poll.poll(0, 3) == []  # a wait of no time looks once
    assert script.asked == [0]


def test_who_was_given_the_core_meanwhile_lets_this_one_sleep(
    poll: SpinPoll, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(40):
        wait(poll, script, 1e-3)

    def yield_for_long() -> None:
        script._clock.now += 500e-6

    monkeypatch.setattr(os, "sched_yield", yield_for_long)
    assert wait(poll, script, 1e-3)
    assert script.asked == [0, None]


@pytest.mark.parametrize(
    "best, first",
    [(WaitMode.FREE, 1), *(pytest.param(way, 0, marks=pytest.mark.full) for way in ALL)],
)
def test_an_interrupt_at_any_point_leaves_a_policy_that_finds_the_best_way(
    best: WaitMode, first: int
) -> None:
    k, reached = first, True
    while reached:
        k += 1 + 6 * first
        caller = Caller(ALL, lambda way, now: 5e-3 if way is best else 9e-3)
        reached, _, _ = interrupt_at(k, partial(caller.run, 1.0))
        caller.run(2.0)
        assert caller.run(10.0) is best, k
    assert k > 100


@pytest.mark.skipif(not hasattr(select, "poll"), reason="a system without poll")
def test_a_real_pipe_is_heard_and_its_silence_ends_in_time() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "wb", buffering=0) as end:
        real = select.poll()
        real.register(reading, select.POLLIN)
        poll = SpinPoll(real)
        assert poll.poll(1, 3) == []
        end.write(b"x")
        assert poll.poll(None, 3) == [(reading, select.POLLIN)]
