"""Tasks: an environment whose resets choose among several environments."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from vecspaces.envs.env_wrapper import EnvWrapper, spaces_of
from vecspaces.errors import ResetNeededError
from vecspaces.seeding import derive_seed
from vecspaces.spaces.equivalence import difference


class Tasks(EnvWrapper):
    """One of several environments with equal spaces; `reset(options={"task": name})` chooses it.

    A reset that names another task closes and collects the former environment before it builds the
    new environment, so memory is needed for one of them. Without a seed, the new environment gets a
    seed derived from the last. Other resets keep the environment. After an exception of a factory
    there is no environment, and the next reset calls the factory again.

    A new object has the first task, also in a worker that was restarted, until a reset names
    another; `evaluate` and `collect` give their `options` to every episode.

    Args:
        env_fns: Factories of environments by the names of their tasks; the first is called at once.

    Attributes:
        tasks: The names of all tasks.
        task: The name of the current task; None after a factory failed.

    Raises:
        ValueError: There is no factory. In `reset`: the task is unknown, or the environment has
            other spaces than the first environment.

    Example:
        >>> from functools import partial
        >>> import gymnasium
        >>> env = Tasks(
        ...     {n: partial(gymnasium.make, "CartPole-v1", max_episode_steps=n) for n in (5, 9)}
        ... )
        >>> observation, info = env.reset(seed=0, options={"task": 9})
        >>> env.task, env.tasks
        (9, (5, 9))
    """

    def __init__(self, env_fns: Mapping[Any, Callable[[], Any]]) -> None:
        if not isinstance(env_fns, Mapping) or not all(map(callable, env_fns.values())):
            raise TypeError(
                "Tasks: expected a dict of functions that make environments, by the names of their "
                f"tasks, found {env_fns!r}"
            )
        if not env_fns:
            raise ValueError("Tasks: expected at least one task, found none")
        self._env_fns = dict(env_fns)
        self.tasks = tuple(env_fns)
        # The task of the next reset that names none, and what seeds are derived from.
        self._wanted = self.task = self.tasks[0]
        self._sequence: np.random.SeedSequence | None = None
        super().__init__(self._env_fns[self.task]())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode, of the task that `options["task"]` names; others are passed on."""
        if options is not None and "task" in options:
            options = dict(options)
            task = options.pop("task")
            if task not in self.tasks:
                raise ValueError(
                    f"options['task']: expected one of {', '.join(map(repr, self.tasks))}, "
                    f"found {task!r}"
                )
            self._wanted = task
            options = options or None
        if self._wanted != self.task:
            self._build()
            if seed is None and self._sequence is not None:
                derived = derive_seed(self._sequence.spawn(1)[0])
                return super().reset(seed=derived, options=options)
        result = super().reset(seed=seed, options=options)
        if seed is not None:
            self._sequence = np.random.SeedSequence(seed)
        return result

    def close(self) -> None:
        """Close the environment, if there is an environment."""
        if "env" in vars(self):
            super().close()

    def __getattr__(self, name: str) -> Any:
        if name == "env" and "_wanted" in vars(self):
            raise ResetNeededError(f"the task {self._wanted!r} has no environment: reset it first")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _build(self) -> None:
        """Close the former environment, and build that of the wanted task."""
        try:
            self.close()
        finally:
            vars(self).pop("env", None)
            self.task = None
            gc.collect()
        env = self._env_fns[self._wanted]()
        for name, space in spaces_of(env).items():
            change = difference(self._spaces[name], space)
            if change is not None:
                with suppress(Exception):  # the error below is the one to report
                    env.close()
                raise ValueError(
                    f"all tasks must have equal spaces, but the {name} of {self._wanted!r} is not "
                    f"that of {self.tasks[0]!r}: {change}"
                )
        super().__init__(env)
        self.task = self._wanted
