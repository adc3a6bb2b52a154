"""An environment that is a vector env itself: m rows of the batch, filled by one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from vecspaces.interop import foreign_values, is_foreign_vector_env
from vecspaces.layout import Mismatch
from vecspaces.vector.exchange import infos as infos_module
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import EnvironmentFailed, Failure
from vecspaces.vector.exchange.infos import Columns
from vecspaces.vector.vector_env import AutoresetMode

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
        self._translate = foreign_values(env.single_action_space)
        # Where its last observations lie.
        self._slot = 0
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

    def spaces(self, name: str) -> list[Any]:
        """Give the space of each of its rows.

        Args:
            name: `"observation_space"` or `"action_space"`.
        """
        itself = self.env.unwrapped is self.env  # a wrapper may have other spaces
        if self._is_ours and itself and self.env.observation_mode != "same":
            return list(self.env.get_attr(name))
        return [getattr(self.env, f"single_{name}")] * self.count

    def reset(
        self,
        buffers: Buffers,
        slot: int,
        rows: Sequence[int],
        wanted: Wanted,
        keep_options: bool,
    ) -> Columns:
        """Reset all of its environments, or some through `reset_mask`.

        Args:
            buffers: Where the rows lie.
            slot: The slot of the ring.
            rows: Those of its rows that are to be reset.
            wanted: Seed and options by row.
            keep_options: Whether autoresets get a row's options too.

        Returns:
            The infos.
        """
        self._held = None
        seed = self._seed([wanted[row][0] if row in wanted else None for row in self.rows])
        options = self._options([wanted[row][1] for row in rows], keep_options)
        others = np.setdiff1d(np.arange(self.low, self.high), rows)
        if len(others) == 0:
            with self._named("reset"):
                observations, infos = self.env.reset(seed=seed, options=options)
            self._write(buffers, slot, observations)
        else:
            mask = np.zeros(self.count, dtype=np.bool_)
            mask[np.array(rows) - self.low] = True
            known = buffers.observations[self._slot].read(copy=True, at=others)
            options = {**(options or {}), "reset_mask": mask}
            with self._named("reset"):
                observations, infos = self.env.reset(seed=seed, options=options)
            self._write(buffers, slot, observations)
            if not _same(known, buffers.observations[slot].read(copy=True, at=others)):
                raise ValueError(
                    f"{self.env!r} does not know options['reset_mask']: it reset all of its "
                    "environments; reset them together"
                )
        return infos_module.shift(infos_module.columns_of(infos, self.count), self.low)

    def step(self, buffers: Buffers, slot: int) -> Columns:
        """Step all of its environments.

        Args:
            buffers: Where the rows lie.
            slot: The slot of the ring.

        Returns:
            The infos.
        """
        at = slice(self.low, self.high)
        if self._held is not None:
            (observations, columns), self._held = self._held, None
            self._write(buffers, slot, observations)
            self._put(buffers, slot, 0.0, False, False)
            return columns
        actions = buffers.actions.read(copy=True, at=at)
        if self._translate is not None:
            actions = self._translate(actions)
        with self._named("step"):
            observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._write(buffers, slot, observations)
        self._put(buffers, slot, rewards, terminations, truncations)
        infos = dict(infos)
        if self._mode is AutoresetMode.SAME_STEP:
            ended = buffers.terminations[slot, at] | buffers.truncations[slot, at]
            finals = infos.pop("final_obs", None)
            infos.pop("_final_obs", None)
            if buffers.finals is not None and ended.any():
                if finals is None:
                    raise ValueError(
                        f"{self.env!r} ended an episode in SAME_STEP without final_obs"
                    )
                for row in np.flatnonzero(ended):
                    buffers.finals.write(self.low + int(row), finals[row])
        return infos_module.shift(infos_module.columns_of(infos, self.count), self.low)

    def report_lost(self, buffers: Buffers, slot: int, lost: Wanted) -> Columns:
        """Take the step after a restart: every episode was lost with the former worker.

        Args:
            buffers: Where the rows lie.
            slot: The slot of the ring.
            lost: The new seed of each row, and the options of its autoresets.

        Returns:
            The infos, with `worker_restarted`.
        """
        seeds, options = zip(*(lost[row] for row in self.rows), strict=True)
        with self._named("reset"):
            observations, infos = self.env.reset(
                seed=self._seed(seeds), options=self._options(options, keep=True)
            )
        columns = infos_module.columns_of(infos, self.count)
        marks: list[tuple[int, dict[str, Any]]] = []
        for row in range(self.count):
            marks.append((row, {"worker_restarted": True}))
            if self._mode is AutoresetMode.SAME_STEP:
                marks[-1][1]["final_info"] = {}
        columns = infos_module.shift(columns, self.low)
        marked = infos_module.shift(infos_module.merge(marks), self.low)
        self._put(buffers, slot, 0.0, False, True)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._held = observations, columns
            return marked
        if self._mode is AutoresetMode.SAME_STEP:
            self._write(buffers, slot, observations)
            return infos_module.join([columns, marked])
        return marked

    def call(
        self,
        name: str | Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        rows: Sequence[int],
    ) -> list[Any]:
        """Call a method of its environments, or of itself where it holds none apart.

        Args:
            name: The method or attribute, or a function of an environment; of Gymnasium's vector
                envs, which call none with their environments, of the vector env itself.
            args: Positional arguments.
            kwargs: Keyword arguments.
            rows: Those of its rows that are concerned.

        Returns:
            One result per row of `rows`.
        """
        with self._named("call"):
            return self._call(name, args, kwargs, rows)

    def _call(
        self,
        name: str | Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        rows: Sequence[int],
    ) -> list[Any]:
        at = [row - self.low for row in rows]
        if name == "render":
            frames = self.env.render()
            return [None if frames is None else frames[position] for position in at]
        if not self._has_apart or (callable(name) and is_foreign_vector_env(self.env)):
            attribute = partial(name, self.env) if callable(name) else getattr(self.env, name)
            result = attribute(*args, **kwargs) if callable(attribute) else attribute
            return [result] * len(rows)
        if self._is_ours:
            return list(self.env.call(name, *args, env_ids=at, **kwargs))
        self._check_all(rows, f"call({name!r})")
        results = self.env.call(name, *args, **kwargs)
        return [results[position] for position in at]

    def set_attr(self, name: str, values: Sequence[Any], rows: Sequence[int]) -> None:
        """Set an attribute of its environments, or of itself where it holds none apart.

        Args:
            name: The attribute.
            values: One per row of `rows`.
            rows: Those of its rows that are concerned.
        """
        at = [row - self.low for row in rows]
        if self._is_ours:
            with self._named("set_attr"):
                self.env.set_attr(name, list(values), env_ids=at)
            return
        self._check_all(rows, f"set_attr({name!r})")
        if self._has_apart:
            self.env.set_attr(name, [values[at.index(number)] for number in range(self.count)])
        elif any(value is not values[0] for value in values):
            raise ValueError(
                f"set_attr({name!r}) got different values for the environments of {self.env!r}, "
                "which has one attribute for all of them"
            )
        else:
            setattr(self.env.unwrapped, name, values[0])

    @property
    def _has_apart(self) -> bool:
        """Whether its environments are objects of their own."""
        return hasattr(self.env, "call") and hasattr(self.env, "set_attr")

    @property
    def _is_ours(self) -> bool:
        """Whether its environments can be reached one by one."""
        return self._has_apart and not is_foreign_vector_env(self.env)

    def _check_all(self, rows: Sequence[int], what: str) -> None:
        if len(rows) < self.count:
            raise ValueError(
                f"{what} concerns some environments of {self.env!r}, which knows all of them or "
                f"none: name environments {self.low} to {self.high - 1} together"
            )

    def close(self) -> None:
        """Close the vector env."""
        self.env.close()

    @contextmanager
    def _named(self, command: str) -> Iterator[None]:
        """Give what the vector env raises the numbers that its environments have here."""
        try:
            yield
        except (Exception, SystemExit) as error:
            raise EnvironmentFailed(Failure.of_vector_env(error, self.rows, command)) from None

    def _seed(self, seeds: Sequence[int | None]) -> int | list[int | None] | None:
        """Say seeds in the way that the vector env takes: all take an int, only some a list."""
        known = [seed for seed in seeds if seed is not None]
        if not known:
            return None
        if list(seeds) == list(range(known[0], known[0] + self.count)):
            return known[0]
        if self._has_apart:
            return list(seeds)
        # One generator serves all of its environments, and depends on all of their seeds.
        return int(np.random.SeedSequence(known).generate_state(1)[0])

    def _options(self, options: Sequence[Mapping[str, Any] | None], keep: bool) -> Any:
        """Say options in the way that the vector env takes: all take one mapping, only ours more.

        Args:
            options: One mapping or None per row.
            keep: Whether autoresets get them too.
        """
        if keep and self._is_ours and any(given is not None for given in options):
            return list(options)
        if any(given != options[0] for given in options):
            raise ValueError(
                f"{self.env!r} is a vector env: its environments take one mapping of options, "
                "and different ones were given"
            )
        return None if options[0] is None else dict(options[0])

    def _write(self, buffers: Buffers, slot: int, observations: Any) -> None:
        try:
            buffers.observations[slot].write_batch(observations, at=slice(self.low, self.high))
        except Mismatch as error:
            raise error.at((), self.low + (error.row or 0)) from None
        self._slot = slot

    def _put(
        self, buffers: Buffers, slot: int, rewards: Any, terminations: Any, truncations: Any
    ) -> None:
        at = slice(self.low, self.high)
        buffers.rewards[slot, at] = rewards
        buffers.terminations[slot, at] = terminations
        buffers.truncations[slot, at] = truncations


def _same(one: Any, other: Any) -> bool:
    """Whether two batches of observations are equal to the last bit."""
    if isinstance(one, dict):
        return all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray):
        return bool(one.shape == other.shape and one.tobytes() == other.tobytes())
    return bool(one == other)
