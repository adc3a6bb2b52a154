"""Chunks of actions: an environment takes several steps, open loop, where a step takes one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np

from vecspaces.checks import RAISED
from vecspaces.layout import Mismatch
from vecspaces.memory import Arena
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.infos import Column, Columns, columns_of
from vecspaces.vector.group.attributes import get_attribute, set_attribute
from vecspaces.vector.group.form import InvalidResult, as_info, as_reward, failed
from vecspaces.vector.group.info_writer import InfoWriter
from vecspaces.vector.group.validation import Validated

#: The keys of the columns that a group returns beside the infos of a chunk.
REWARDS, STEPS, ALL_INFOS = "rewards", "steps", "infos"

#: The actions of a row, what takes its rewards, and what is called with each info.
Planned = tuple[Sequence[Any], Callable[[Any], object], Callable[[Any], object] | None]


class ChunkStepper:
    """Steps an environment with actions that are known beforehand, until its episode ends.

    `env` takes the steps; `base` is the environment that the factory returned.
    """

    def __init__(self, env: Any, base: Any) -> None:
        self._step = env.step_alone if isinstance(env, Validated) else env.step
        self._shown: Any = None  # the environment, if it asks whether anybody looks
        with suppress(*RAISED):  # whatever a foreign attribute raises
            get_attribute(base, "needs_observation")
            self._shown = base

    def step(self, planned: Planned) -> Any:
        """Take the steps in place of one; return what the last one returned."""
        actions, append, record = planned
        step = self._step
        result: Any = None
        for action in actions if self._shown is None else self._unseen(actions):
            result = step(action)
            try:
                _, reward, terminated, truncated, info = result
                append(reward)
                if record is not None:
                    record(info)
                if terminated or truncated:
                    break
            except (TypeError, ValueError):  # of a wrong form, which the loop around this names
                break
        return result

    def _unseen(self, actions: Sequence[Any]) -> Iterator[Any]:
        """Yield the actions; nobody looks at what any but the last returns in an episode."""
        set_attribute(self._shown, "needs_observation", len(actions) == 1)
        try:
            yield from actions[:-1]
        finally:  # also where the episode ends: somebody looks at what a reset returns
            set_attribute(self._shown, "needs_observation", True)
        yield actions[-1]


class GroupChunk:
    """The memory for chunks of the same rows of a group: actions, rewards, and declared infos.

    The k steps of a row follow each other in it. `keeps_infos`: whether what the info_space
    declares is kept of all steps; `validate`: whether it must lie in its space.
    """

    def __init__(
        self, buffers: Buffers, rows: Sequence[int], length: int, keeps_infos: bool, validate: bool
    ) -> None:
        self._rows, self._length, self._count = rows, length, len(rows) * length
        layout = buffers.plan.actions.of_rows(self._count)
        memory = np.zeros(layout.size, np.uint8)
        self._memory, self._offsets = memory.data, [leaf.offset for leaf in layout.leaves]
        self._read = layout.bind(memory)[0].reader(0, self._count)
        self._rewards: list[list[Any]] = []
        self._declared = None
        if keeps_infos and buffers.plan.infos is not None:
            infos = buffers.plan.infos.of_rows(self._count)
            (self._declared,) = infos.bind(Arena(infos.end))
            self._writer = InfoWriter(self._declared, 0, self._count, validate)

    def begin(self, exported: Sequence[bytes]) -> dict[int, Planned]:
        """Take in the bytes of the actions of all rows, by leaf; return the actions of each."""
        for offset, part in zip(self._offsets, exported, strict=True):
            self._memory[offset : offset + len(part)] = part
        actions, length = self._read(), self._length
        self._rewards = [[] for _ in self._rows]
        record: Any = None
        planned: dict[int, Planned] = {}
        low = 0
        for row, rewards in zip(self._rows, self._rewards, strict=True):
            if self._declared is not None:
                record = self._recorder(row, low, rewards)
            planned[row] = actions[low : low + length], rewards.append, record
            low += length
        if self._declared is not None:
            self._declared.presence[:] = False
        return planned

    def _recorder(self, row: int, low: int, rewards: list[Any]) -> Callable[[Any], object]:
        """Return what writes the infos of the steps of a row, whose number its rewards tell."""

        def record(info: Any) -> None:
            number = low + len(rewards) - 1
            try:
                self._writer.write({number: as_info(info)}, [number])
            except RAISED as error:
                if isinstance(error, (Mismatch, InvalidResult)):
                    error.row = None  # here the number of a step
                raise failed(error, (row,), "step") from None

        return record

    def end(self, first: int) -> Columns:
        """Return rewards and numbers of steps by row; declared infos by step, from `first` on."""
        taken, length = self._rewards, self._length
        steps = np.array(list(map(len, taken)), np.int64)
        if steps.sum() < self._count:
            taken = [[*rewards, *[0.0] * (length - len(rewards))] for rewards in taken]
        flat = list(chain.from_iterable(taken))
        try:
            numbers = array("d", flat)
        except TypeError:  # what is a number for NumPy alone, or none
            rows = np.repeat(self._rows, length).tolist()
            try:
                numbers = array("d", map(as_reward, flat, rows))
            except InvalidResult as error:
                raise failed(error, self._rows, "step") from None
        rewards_by_row = np.frombuffer(numbers).reshape(-1, length)
        columns = {REWARDS: Column(self._rows, rewards_by_row), STEPS: Column(self._rows, steps)}
        if self._declared is not None:
            found: dict[str, Any] = {}
            self._declared.read(found, copy=True)
            steps_of_all = range(first, first + self._count)
            columns[ALL_INFOS] = Column(steps_of_all, columns_of(found, self._count, first))
        return columns
