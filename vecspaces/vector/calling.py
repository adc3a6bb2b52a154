"""Methods and attributes of the environments, reached through the vector env that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.conductor import Conductor
from vecspaces.vector.protocol import Event, Op, State
from vecspaces.vector.stats import Stats, summarise
from vecspaces.vector.vector_env import ActType, ObsType, VectorEnv


class CallingVectorEnv(VectorEnv[ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]):
    """The part of a vector env of single environments that looks into them.

    Args:
        backend: Where the groups run, opened.
        conductor: What drives it.
    """

    def __init__(self, backend: Backend, conductor: Conductor) -> None:
        self._backend = backend
        self._conductor = conductor
        self._call_ids: list[int] = []

    @property
    def np_random(self) -> Any:
        """The environments' own generators, one per environment; from workers, copies."""
        return self.get_attr("np_random")

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self.set_attr("np_random", value)

    @property
    def np_random_seed(self) -> Any:
        """The environments' own seeds, one per environment."""
        return self.get_attr("np_random_seed")

    def call(
        self,
        name: str | Callable[..., Any],
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Call a method of the environments, or get an attribute that is no method.

        Args:
            name: The method or attribute; wrappers are looked through. Or a function: it is called
                where the environment runs, with the environment as its first argument.
            *args: Positional arguments.
            env_ids: The environments concerned; None: all.
            **kwargs: Keyword arguments.

        Returns:
            One result per environment.

        Raises:
            ValueError: `name` is `reset`, `step` or `close`, which have methods of their own.
        """
        self.call_async(name, *args, env_ids=env_ids, **kwargs)
        return self.call_wait()

    def call_async(
        self,
        name: str | Callable[..., Any],
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Begin a `call`; `call_wait` ends it. The arguments are those of `call`."""
        if name in ("reset", "step", "close"):
            raise ValueError(
                f"call({name!r}) would go past the bookkeeping of episodes: use {name}() itself"
            )
        state = self._conductor.check(Event.CALL_ASYNC)
        self._call_ids = self._chosen(env_ids)
        payloads = {
            worker: (name, args, kwargs, rows) for worker, rows in self._by_worker(self._call_ids)
        }
        self._conductor.submit(state, Op.CALL, 0, payloads)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """End a `call` that `call_async` began.

        Args:
            timeout: The longest wait, in seconds; None: `step_timeout`.

        Returns:
            One result per environment.

        Raises:
            NoAsyncCallError: No call is pending.
            StepTimeoutError: It took too long; the call stays pending.
        """
        conductor = self._conductor
        conductor.wait(Event.CALL_WAIT, timeout)
        results: dict[int, Any] = {}
        for worker, values in conductor.results.items():
            rows = conductor.command.payloads[worker][3]
            results.update(zip(rows, values, strict=True))
        return tuple(results[row] for row in self._call_ids)

    def get_attr(self, name: str, *, env_ids: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Get an attribute of the environments.

        Args:
            name: The attribute.
            env_ids: The environments concerned; None: all.

        Returns:
            One value per environment.
        """
        return self.call(name, env_ids=env_ids)

    def set_attr(self, name: str, values: Any, *, env_ids: Sequence[int] | None = None) -> None:
        """Set an attribute of the environments themselves, not of their wrappers.

        Args:
            name: The attribute.
            values: A list or tuple of one value per environment concerned, or one value for all.
            env_ids: The environments concerned; None: all.

        Raises:
            ValueError: A wrong number of values.
        """
        state = self._conductor.check(Event.CALL_ASYNC)
        ids = self._chosen(env_ids)
        if not isinstance(values, (list, tuple)):
            values = [values] * len(ids)
        if len(values) != len(ids):
            raise ValueError(
                f"set_attr({name!r}) got {len(values)} values for {len(ids)} environments: "
                "give one per environment, or one that is no list or tuple for all"
            )
        chosen = dict(zip(ids, values, strict=True))
        payloads = {
            worker: (name, {row: chosen[row] for row in rows})
            for worker, rows in self._by_worker(ids)
        }
        self._conductor.submit(state, Op.SET_ATTR, 0, payloads)
        self._conductor.wait(Event.CALL_WAIT, None)

    def render(self, *, env_ids: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Render environments.

        Args:
            env_ids: The environments concerned; None: all.

        Returns:
            One frame per environment, as its `render` gives it.
        """
        return self.call("render", env_ids=env_ids)

    def stats(self) -> Stats:
        """Tell how long the steps and autoresets of each environment take.

        Returns:
            Counts, means, 99th percentiles and shares of waiting.

        Raises:
            ValueError: The vector env was not made with `stats=True`.
        """
        storage, conductor = self._backend.storage, self._conductor
        if storage.plan.stats is None:
            raise ValueError("stats() needs a vector env that was made with stats=True")
        if conductor.state in (State.IDLE, State.CLOSED):  # the law refuses the latter
            state = conductor.check(Event.CALL_ASYNC)
            everyone = dict.fromkeys(range(len(self._backend.slices)))
            conductor.submit(state, Op.FLUSH, 0, everyone)
            conductor.wait(Event.CALL_WAIT, None)
            for worker, found in conductor.results.items():
                if found is not None:
                    rows = self._backend.slices[worker]
                    storage.load_counters(worker, rows.start, rows.stop, found)
        counters = storage.counters()
        assert counters is not None
        return summarise(*counters, tuple(self._backend.slices))

    def _chosen(self, env_ids: Sequence[int] | None) -> list[int]:
        """Check a choice of environments."""
        if env_ids is None:
            return list(range(self.num_envs))
        numbers = list(env_ids) if isinstance(env_ids, Iterable) else [None]
        if {bool, np.bool_}.intersection(map(type, numbers)):
            raise TypeError(
                f"env_ids must be the numbers of environments, found booleans, {env_ids!r}: "
                "numpy.flatnonzero(mask) gives the numbers of a mask"
            )
        try:
            ids = [index(number) for number in numbers]
        except TypeError:
            raise TypeError(
                f"env_ids must be the numbers of environments, as integers, found {env_ids!r}"
            ) from None
        bad = [number for number in ids if not 0 <= number < self.num_envs]
        if bad:
            raise ValueError(f"env_ids must lie between 0 and {self.num_envs - 1}, found {bad[0]}")
        if len(set(ids)) < len(ids):
            raise ValueError(f"env_ids must name each environment once, found {ids}")
        return ids

    def _by_worker(self, ids: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Sort environments by the worker that holds them."""
        chosen = []
        for worker, within in enumerate(self._backend.slices):
            rows = [row for row in ids if row in within]
            if rows:
                chosen.append((worker, rows))
        return chosen
