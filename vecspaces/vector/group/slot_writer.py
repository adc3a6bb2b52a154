"""Writing of a step's results into a slot: rows, rewards, flags, infos of single environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vecspaces.layout.columns import FLOATS
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.infos import InfosByRow
from vecspaces.vector.group.form import as_reward, reward_writer
from vecspaces.vector.group.info_writer import InfoWriter

# The bytes of an observation that is written before the next environment steps. With 100 KB
# (Breakout), a step then takes 20 us less, since the environment gets the memory of the last array
# again; with 28 KB it takes 3 us more.
_LARGE = 1 << 16
#: Up to this number of rows, writing one row after the other is faster.
MOST_SINGLE_WRITES = 2


class SlotWriter:
    """Writes the results of a step into consecutive rows of one slot; bound once.

    `whole` is the writer of all rows of the group; None: this writer.

    Attributes:
        take_actions: Returns the actions of these rows.
        write_at_once: Writes the observation of a row, if rows are few, or observations large;
            `write` then gets none. Until all environments have stepped, large arrays would leave
            the core's cache.
    """

    def __init__(
        self, buffers: Buffers, slot: int, rows: range, whole: SlotWriter | None = None
    ) -> None:
        low, views = rows.start, buffers.slice(slot, rows.start, rows.stop)
        self._whole, self._infos = whole or self, None
        if buffers.infos:
            self._infos = InfoWriter(buffers.infos[slot], low, rows.stop)
        self._write_observations = views.write
        self.write_observation = buffers.observations[slot].write
        layout = buffers.plan.observations
        is_large = layout.fixed and layout.nbytes >= _LARGE
        is_at_once = is_large or len(rows) <= MOST_SINGLE_WRITES
        self.write_at_once = self.write_observation if is_at_once else None
        self._write_rewards = reward_writer(views.rewards, low)
        # Memoryviews store single values, and a few bytes, in half the time of arrays.
        self._rewards: Any = views.rewards.data
        self._terminations, self._truncations = views.terminations.data, views.truncations.data
        self._flags = [view.cast("B") for view in (self._terminations, self._truncations)]
        self.take_actions = buffers.actions.reader(low, rows.stop)
        self._low, self._nothing = low, bytes(len(rows))
        # Whether flags of earlier steps must be cleared; few steps end an episode. A writer of some
        # rows always clears them, since other writers may have set them.
        self._marked = True

    def write(
        self,
        rows: Sequence[int] | None,
        observations: list[Any],
        rewards: list[Any],
        ended: list[tuple[int, bool, bool]],
        infos: InfosByRow,
    ) -> InfosByRow:
        """Write the results of all of its rows (None), or of `rows`.

        `ended` has the row and the flags of each episode that ended. Undeclared infos are returned.
        """
        if self._infos is not None:
            infos = self._infos.write(infos, rows)
        low, terminations, truncations = self._low, self._terminations, self._truncations
        if rows is not None:
            write, out = self.write_observation, self._rewards
            # Without `strict`, which takes a tenth of this; the lengths are equal.
            for row, observation in zip(rows, observations):  # noqa: B905
                write(row, observation)
            for row, reward in zip(rows, rewards):  # noqa: B905
                out[row - low] = reward if reward.__class__ in FLOATS else as_reward(reward, row)
                terminations[row - low] = truncations[row - low] = False
        else:
            if observations:
                self._write_observations(observations)
            self._write_rewards(rewards)
            if self._marked:
                terminated_bytes, truncated_bytes = self._flags
                terminated_bytes[:] = truncated_bytes[:] = self._nothing
                self._marked = self._whole is not self
        if ended:
            self._whole._marked = True
            for row, terminated, truncated in ended:
                terminations[row - low], truncations[row - low] = terminated, truncated
        return infos

    def write_infos(self, rows: Sequence[int], infos: InfosByRow) -> InfosByRow:
        """Write the infos of a reset of some rows; return those that are not declared."""
        return infos if self._infos is None else self._infos.write(infos, rows)
