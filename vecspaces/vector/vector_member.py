"""An environment that is a vector env itself: m rows of the batch, filled by one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vecspaces.foreign import is_foreign_vector_env
from vecspaces.vector import infos as infos_module
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.infos import Columns
from vecspaces.vector.storage import Storage

Wanted = Mapping[int, tuple["int | None", "Mapping[str, Any] | None"]]


class VectorMember:
    """A vector env, ours or Gymnasium's, among the members of a group.

    Its autoreset stays its own, so its mode must be that of the vector env that it joins.

    Args:
        env: The vector env.
        mode: The mode of the vector env that it joins.

    Raises:
        ValueError: The modes differ.
    """

    def __init__(self, env: Any, mode: AutoresetMode) -> None:
        # Gymnasium's own vector envs that say nothing reset in the next step.
        own = AutoresetMode.of((env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP))
        if own is not mode:
            env.close()
            raise ValueError(
                f"the env_fn returned {env!r} in autoreset mode {own.name}, which cannot join a "
                f"vector env in mode {mode.name}: use the same autoreset_mode for both"
            )
        self.env = env
        self.count: int = env.num_envs
        self.metadata: dict[str, Any] = dict(env.metadata or {})
        self.render_mode: str | None = env.render_mode
        self.low = 0
        self._mode = mode
        # What the reset after a lost episode returned, until the step that hands it out.
        self._held: tuple[Any, Columns] | None = None

    @property
    def high(self) -> int:
        """The row after the last."""
        return self.low + self.count

    @property
    def rows(self) -> range:
        """Its rows of the batch."""
        return range(self.low, self.high)

    def reset(self, storage: Storage, slot: int, rows: Sequence[int], wanted: Wanted) -> Columns:
        """Reset all of its environments, or some through `reset_mask`.

        Args:
            storage: Where the rows lie.
            slot: The slot of the ring.
            rows: Those of its rows that are to be reset.
            wanted: Seed and options by row.

        Returns:
            The infos.
        """
        self._held = None
        seeds = [wanted[row][0] if row in wanted else None for row in self.rows]
        options = self._options([wanted[row][1] for row in rows])
        if len(rows) < self.count:
            mask = np.zeros(self.count, dtype=np.bool_)
            mask[np.array(rows) - self.low] = True
            options = {**(options or {}), "reset_mask": mask}
        observations, infos = self.env.reset(seed=_one_seed(seeds), options=options)
        self._write(storage, slot, observations)
        return infos_module.shift(infos_module.columns_of(infos, self.count), self.low)

    def step(self, storage: Storage, slot: int) -> Columns:
        """Step all of its environments.

        Args:
            storage: Where the rows lie.
            slot: The slot of the ring.

        Returns:
            The infos.
        """
        at = slice(self.low, self.high)
        if self._held is not None:
            (observations, columns), self._held = self._held, None
            self._write(storage, slot, observations)
            self._put(storage, slot, 0.0, False, False)
            return columns
        actions = storage.actions.read(copy=True, at=np.arange(self.low, self.high))
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._write(storage, slot, observations)
        self._put(storage, slot, rewards, terminations, truncations)
        infos = dict(infos)
        if self._mode is AutoresetMode.SAME_STEP:
            ended = storage.terminations[slot, at] | storage.truncations[slot, at]
            finals = infos.pop("final_obs", None)
            infos.pop("_final_obs", None)
            if storage.finals is not None and ended.any():
                if finals is None:
                    raise ValueError(
                        f"{self.env!r} ended an episode in SAME_STEP without final_obs"
                    )
                for row in np.flatnonzero(ended):
                    storage.finals.write(self.low + int(row), finals[row])
        return infos_module.shift(infos_module.columns_of(infos, self.count), self.low)

    def report_lost(self, storage: Storage, slot: int, lost: Wanted) -> Columns:
        """Take the step after a restart: every episode was lost with the former worker.

        Args:
            storage: Where the rows lie.
            slot: The slot of the ring.
            lost: The new seed of each row, and the options of its autoresets.

        Returns:
            The infos, with `worker_restarted`.
        """
        seeds, options = zip(*(lost[row] for row in self.rows), strict=True)
        observations, infos = self.env.reset(seed=_one_seed(seeds), options=self._options(options))
        columns = infos_module.columns_of(infos, self.count)
        marks: list[tuple[int, dict[str, Any]]] = []
        for row in range(self.count):
            marks.append((row, {"worker_restarted": True}))
            if self._mode is AutoresetMode.SAME_STEP:
                marks[-1][1]["final_info"] = {}
        columns = infos_module.shift(columns, self.low)
        marked = infos_module.shift(infos_module.merge(marks), self.low)
        self._put(storage, slot, 0.0, False, True)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._held = observations, columns
            return marked
        if self._mode is AutoresetMode.SAME_STEP:
            self._write(storage, slot, observations)
            return infos_module.join([columns, marked])
        return marked

    def call(
        self, name: str | Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any]:
        """Call a method of its environments, or of itself where it holds none apart.

        Args:
            name: The method or attribute, or a function of an environment; of Gymnasium's vector
                envs, which call none with their environments, of the vector env itself.
            args: Positional arguments.
            kwargs: Keyword arguments.

        Returns:
            One result per row.
        """
        if name == "render":
            frames = self.env.render()
            return list(frames) if frames is not None else [None] * self.count
        if callable(name):
            if hasattr(self.env, "call") and not is_foreign_vector_env(self.env):
                return list(self.env.call(name, *args, **kwargs))
            return [name(self.env, *args, **kwargs)] * self.count
        if hasattr(self.env, "call"):
            return list(self.env.call(name, *args, **kwargs))
        attribute = getattr(self.env, name)
        result = attribute(*args, **kwargs) if callable(attribute) else attribute
        return [result] * self.count

    def set_attr(self, name: str, values: Sequence[Any], rows: Sequence[int]) -> None:
        """Set an attribute of its environments, or of itself where it holds none apart.

        Args:
            name: The attribute.
            values: One per row.
            rows: The rows concerned.
        """
        if not hasattr(self.env, "set_attr"):
            setattr(self.env.unwrapped, name, values[0])
        elif len(rows) == self.count:
            self.env.set_attr(name, list(values))
        else:
            self.env.set_attr(name, list(values), env_ids=[row - self.low for row in rows])

    def close(self) -> None:
        """Close the vector env."""
        self.env.close()

    def _options(self, options: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
        """One mapping for all, which is what vector envs take."""
        if any(given != options[0] for given in options):
            raise ValueError(
                f"{self.env!r} is a vector env: its environments take one mapping of options, "
                "and different ones were given"
            )
        return None if options[0] is None else dict(options[0])

    def _write(self, storage: Storage, slot: int, observations: Any) -> None:
        storage.observations[slot].write_batch(observations, at=slice(self.low, self.high))

    def _put(
        self, storage: Storage, slot: int, rewards: Any, terminations: Any, truncations: Any
    ) -> None:
        at = slice(self.low, self.high)
        storage.rewards[slot, at] = rewards
        storage.terminations[slot, at] = terminations
        storage.truncations[slot, at] = truncations


def _one_seed(seeds: Sequence[int | None]) -> int | list[int | None] | None:
    """Say seeds in the shortest way: every vector env takes an int, only some take a list."""
    if all(seed is None for seed in seeds):
        return None
    first = seeds[0]
    if first is not None and list(seeds) == list(range(first, first + len(seeds))):
        return first
    return list(seeds)
