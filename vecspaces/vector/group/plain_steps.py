"""Steps of vector envs in which only observations and rewards change, written in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from time import perf_counter_ns
from typing import Any

from vecspaces.checks import RAISED
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.infos import Part
from vecspaces.vector.group.form import failed, reward_writer
from vecspaces.vector.group.members import Member, Note
from vecspaces.vector.group.vector_member import VectorMember

# The infos of every step of agents; in a plain step, the first is True, and there are no others.
_GIVEN = ("alive", "episode_over")


class PlainSteps:
    """The step of a group whose members are all vector envs with a method `act_ahead`.

    These are the rows of parallel environments. The members are small, and nearly all of their
    steps are plain; writing each member separately may take longer than its environment.
    """

    def __init__(
        self, members: Sequence[VectorMember], buffers: Buffers, rows: range, progress: memoryview
    ) -> None:
        low, high = rows.start, rows.stop
        self._rows, self._progress = rows, progress
        self._parts = [(env, slice(env.rows.start - low, env.rows.stop - low)) for env in members]
        self._read_actions = buffers.actions.reader(low, high)
        slots = [buffers.slice(slot, low, high) for slot in range(buffers.plan.slots)]
        self._slots = [(views, reward_writer(views.rewards, low)) for views in slots]
        # Views of the infos in each slot, and their values after a plain step.
        self._infos: list[list[tuple[Any, Any]]] = []
        for infos in buffers.infos:
            views: list[tuple[Any, Any]] = []
            for name, _, _, array, mask in infos.keys:
                views.append((array[low:high], name == _GIVEN[0]))
                views.append((mask[low:high], name in _GIVEN))
            self._infos.append(views)

    @classmethod
    def of(
        cls, members: Sequence[Member], buffers: Buffers, rows: range, progress: memoryview
    ) -> PlainSteps | None:
        """Return the steps of these members; None if some have no plain steps."""
        able = [env for env in members if isinstance(env, VectorMember) and env.can_act]
        # Their infos must be declared, as they are if the argument `info_space` was not given.
        if len(able) < len(members) or not buffers.plan.infos.keys() >= set(_GIVEN):
            return None
        return cls(able, buffers, rows, progress)

    def step(self, slot: int, note: Note | None) -> list[Part]:
        """Step all members; return the undeclared infos."""
        acted: list[Any] = []
        actions, progress, member = self._read_actions(), self._progress, self._parts[0][0]
        try:
            for member, at in self._parts:
                progress[0] = member.rows.start
                acted.append(member.act_ahead(actions[at]) if member.takes_action else None)
                if note is not None:
                    note(perf_counter_ns())
        except RAISED as error:
            raise Failure.of_vector_env(error, member.rows, "step") from None
        if None in acted:
            return [columns for member, _ in self._parts if (columns := member.finish(slot))]
        views, write_rewards = self._slots[slot]
        try:
            views.write(list(chain.from_iterable([observations for observations, _ in acted])))
            write_rewards(list(chain.from_iterable([rewards for _, rewards in acted])))
        except RAISED as error:
            raise failed(error, self._rows, "step") from None
        views.terminations[:] = views.truncations[:] = False
        for array, value in self._infos[slot]:
            array[:] = value
        return []
