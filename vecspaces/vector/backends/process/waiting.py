"""Busy-polling or sleeping: the best way to wait is measured, and the length of waits predicted.

Waking a process that sleeps takes 10 us on bare machines and up to 100 us on virtual machines,
which remove the core of an idle process. A process that busy-polls is awake, but uses a core that
the caller or another program may need.
"""

from __future__ import annotations

import math
import os
import select
from collections.abc import Callable, Generator, Sequence
from enum import IntEnum
from time import perf_counter

# The longest wait to busy-poll through: for longer waits the wake-up cost is negligible.
_LONGEST_SECONDS = 5e-3
# Predictions increase by one factor and decrease by the other. Within a dozen waits they reach the
# length that four of five waits do not exceed.
_UP, _DOWN = 1.25, 0.95
_LEAST_SECONDS = 20e-6
# The next poll comes after a microsecond, or later if another process needs the core.
_LOST_SECONDS = 100e-6

# The minimum size of a block, so that it contains typical disturbances.
_BLOCK_COMMANDS, _BLOCK_SECONDS = 8, 5e-3
# A trial ends early, and is lost, once it takes twice as long as usual plus this.
_PATIENCE_SECONDS = 3e-3
# Rounds of a comparison, and how many are enough if modes differ by a factor.
_ROUNDS, _CLEAR_ROUNDS, _CLEAR = 5, 2, 1.3
# The minimum gain of another mode, because busy-polling takes processor time.
_GAIN = 0.03
# The time between comparisons; only time within commands is counted. It doubles each time the
# result is the same, and is divided by four if commands become slower by a factor. It is at least a
# multiple of the length of the comparison, but bounded, because an interrupt leaves a command
# without an end, and the time until the next one then counts as its duration.
_SHORTEST_SECONDS, _GREATEST_SECONDS = 0.5, 8.0
_SLOWER = 1.3
_SELDOM = 20
_MOST_SECONDS = 1800.0


class WaitMode(IntEnum):
    """How the processes of a vector env wait for each other."""

    FREE = 0  # they sleep, on whatever core the system chooses
    RETURNS = 1  # they sleep, and return to their own core at intervals
    BUSY_POLLS = 2  # they return, and busy-poll


class WaitingPolicy:
    """Decides how the processes of a vector env wait, by the cost of each way.

    The cost is the mean time of a block of commands: it includes wake-ups, cores that other
    programs need, and processes that share a core. The modes alternate for a short time, and the
    best, `ways[0]` at first, is used until the next comparison. `way` is the current one.
    """

    def __init__(self, ways: Sequence[WaitMode], clock: Callable[[], float] = perf_counter) -> None:
        self._ways = ways
        self._clock = clock
        # The block: its commands, their time, and the start of the running one (0.0: none).
        self._count, self._elapsed, self._since = 0, 0.0, 0.0
        self._blocks = _choose(ways)
        self.way, self._usual = next(self._blocks)

    def begin(self) -> WaitMode:
        """Begin a command; return how to wait for its end and for the next command."""
        now = self._clock()
        if self._since:  # one of a stream, which has no separate end
            self._elapsed += now - self._since
        self._since = now
        count, elapsed = self._count, self._elapsed
        self._count = count + 1
        if count <= 0:
            self._elapsed = 0.0  # the first began while others still waited in the other way
        elif count >= _BLOCK_COMMANDS and elapsed >= _BLOCK_SECONDS:
            self._end_block(elapsed / count)
        elif elapsed > _PATIENCE_SECONDS + 2 * self._usual * count:
            self._end_block(elapsed / count, is_lost=True)
        return self.way

    def end(self) -> None:
        """End the running command; the caller's time until the next one is not counted."""
        if self._since:
            self._elapsed += self._clock() - self._since
            self._since = 0.0

    def _end_block(self, cost: float, is_lost: bool = False) -> None:
        block = cost, self._elapsed, is_lost
        self._count, self._elapsed = 0, 0.0
        try:
            self.way, self._usual = self._blocks.send(block)
        except StopIteration:  # an interrupt had ended it
            self._blocks = _choose(self._ways)
            self.way, self._usual = next(self._blocks)


def _choose(
    ways: Sequence[WaitMode],
) -> Generator[tuple[WaitMode, float], tuple[float, float, bool], None]:
    """Yield the way of each block, and the usual cost of a command.

    The caller sends back the cost of one command of the block, the time of all of its commands, and
    whether the block was given up as too slow.
    """
    # The time of all blocks: only time within commands is counted.
    kept, usual, interval, spent = ways[0], math.inf, _SHORTEST_SECONDS, 0.0
    while True:
        # A comparison: the cost of each other way, divided by that of the current way.
        began, costs = spent, list[float]()
        ratios = {way: list[float]() for way in ways if way is not kept}
        while ratios and len(costs) < _ROUNDS:
            usual, elapsed, _ = yield kept, usual
            spent += elapsed
            costs.append(usual)
            for way, found in list(ratios.items()):
                cost, elapsed, is_lost = yield way, usual
                spent += elapsed
                found.append(cost / usual)
                if is_lost or (len(found) >= _CLEAR_ROUNDS and min(found) > _CLEAR):
                    del ratios[way]
            if len(costs) >= _CLEAR_ROUNDS and any(
                max(found) < 1 / _CLEAR for found in ratios.values()
            ):
                break
        usual = _median(costs) if costs else usual
        interval = min(2 * interval, _GREATEST_SECONDS)
        ratio, best = min(
            ((_median(found), way) for way, found in ratios.items()), default=(1, kept)
        )
        if ratio < 1 - _GAIN:
            kept, usual, interval = best, usual * ratio, _SHORTEST_SECONDS
        wait = min(max(interval, _SELDOM * (spent - began)), _MOST_SECONDS)
        soonest, due = spent + wait / 4, spent + wait
        # One slow block may be a reset of an environment; two are a change.
        is_slower = was_slower = False
        while len(ways) == 1 or spent < (soonest if is_slower and was_slower else due):
            cost, elapsed, _ = yield kept, usual
            spent += elapsed
            is_slower, was_slower = cost > _SLOWER * usual, is_slower


def _median(values: Sequence[float]) -> float:
    """Return the median of a few numbers; NumPy's takes 50 ms at its first call, to import."""
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) / 2


class SpinPoll:
    """A `select.poll` that can busy-poll before it sleeps, for as long as recent waits took.

    It sleeps at once if waits are long, or if another process got the core meanwhile. Between two
    polls it lets other threads and processes run.
    """

    def __init__(self, poll: select.poll, clock: Callable[[], float] = perf_counter) -> None:
        self._poll = poll.poll
        self._clock = clock
        # By command, the length that four of five waits did not exceed.
        self._predicted: dict[int, float] = {}

    def poll(self, milliseconds: int | None, command: int) -> list[tuple[int, int]]:
        """Wait as `select.poll` does, for the end of a command, or for the one after it."""
        look, clock = self._poll, self._clock
        if milliseconds == 0:
            return look(0)
        predicted = self._predicted.get(command, _LEAST_SECONDS)
        found: list[tuple[int, int]] = []
        began = now = clock()
        if predicted < _LONGEST_SECONDS:
            seconds = 2 * predicted + _LEAST_SECONDS
            if milliseconds is not None:
                seconds = min(seconds, milliseconds / 1000)
            until = began + seconds
            while True:
                found = look(0)
                if found:
                    break
                os.sched_yield()
                last, now = now, clock()
                if now > until or now - last > _LOST_SECONDS:
                    break
        if not found:
            if milliseconds is not None:
                milliseconds = max(0, milliseconds - int(1000 * (now - began)))
            found = look(milliseconds)
        waited = clock() - began
        self._predicted[command] = max(
            _LEAST_SECONDS, predicted * (_UP if waited > predicted else _DOWN)
        )
        return found
