"""PoolEnv: an environment of a pool while a conversation holds it; its calls are awaited."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from vecspaces.errors import AlreadyPendingCallError, ClosedEnvironmentError, ResetNeededError

if TYPE_CHECKING:
    from vecspaces.aio.pool import Pool

AGAIN = "acquire another environment"
_FAILED = "failed, and is built again by a reset"
E = TypeVar("E", bound=Exception)


def copied(error: E, text: str | None = None) -> E:
    """Copy an error, because an exception that is raised again grows; `text` replaces its text."""
    other = copy.copy(error)
    other.__cause__ = error.__cause__
    if text is not None:
        other.args = (text, *error.args[1:])
    return other


class PoolEnv:
    """An environment of a `Pool`, from `Pool.acquire`, while a coroutine holds it.

    Its methods are awaited, and return single values, like those of `gymnasium.Env`. There is no
    autoreset: call `reset` after the end of an episode.

    They raise what the environment raises. After a `StepTimeoutError`, a `WorkerDiedError`, or a
    cancelled await, the state of the environment is lost: acquire another environment. After the
    end of the block, or of the pool, they raise a `ClosedEnvironmentError`.

    Attributes:
        env_id: The number of the environment in the pool.
        observation_space: The space of its observations.
        action_space: The space of its actions.
        episodes: How many episodes were begun.
        command: The last command: "reset", "step" or "call".
    """

    def __init__(self, pool: Pool, env_id: int) -> None:
        self._pool = pool
        self.env_id, self.episodes, self.command = env_id, 0, ""
        self.observation_space, self.action_space = pool.observation_space, pool.action_space
        # The result and error of the pending command; the reason to refuse a step now; the error
        # of all further commands.
        self._answer: asyncio.Future[tuple[Any, Exception | None]] | None = None
        self._why_not = "was not reset yet"
        self._fault: Exception | None = None

    def __repr__(self) -> str:
        return f"<PoolEnv {self.env_id} of {self._pool!r}>"

    async def reset(
        self, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; an environment that raised an exception is built again first.

        Args:
            seed: The seed of the environment's random numbers, or None.
            options: The options of the environment's `reset`.

        Returns:
            The first observation, and the info.
        """
        observation, _, _, _, info = await self._ask("reset", seed=seed, options=options)
        self.episodes += 1
        self._why_not = ""
        return observation, info

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one action.

        Args:
            action: An action, as `action_space` describes it.

        Returns:
            The observation, the reward, whether the episode terminated, whether it was truncated,
            and the info.

        Raises:
            InvalidActionError: The action does not fit; the environment was not stepped.
            ResetNeededError: There was no reset before, or the episode has ended.
        """
        result: tuple[Any, float, bool, bool, dict[str, Any]] = await self._ask("step", action)
        if result[2] or result[3]:
            self._why_not = "has ended its episode"
        return result

    async def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment, or get an attribute that is not a method.

        Args:
            name: The method or attribute, which is searched in wrappers too; or a function, which
                is called in the worker with the environment as its first argument.
            *args: Positional arguments.
            **kwargs: Keyword arguments.

        Returns:
            The result.

        Raises:
            Exception: The exception of the method; the episode continues.
            ValueError: `name` is `reset`, `step` or `close`.
        """
        return await self._ask("call", name, *args, **kwargs)

    async def _ask(self, command: str, /, *args: Any, **kwargs: Any) -> Any:
        """Send a command, and wait for its result, or raise the error."""
        self._pool.check()
        if self._fault is not None:
            raise copied(self._fault)
        if self._answer is not None and not self._answer.done():
            raise AlreadyPendingCallError(
                f"{command}: the {self.command} of environment {self.env_id} is not there yet: "
                "await it first, or acquire an environment for each task",
                self.command,
            )
        if self._why_not and (
            command == "step" or (command == "call" and self._why_not == _FAILED)
        ):
            raise ResetNeededError(
                f"{command}: environment {self.env_id} {self._why_not}: await reset() first"
            )
        self._pool.send(self.env_id, command, *args, **kwargs)
        self.command, self._answer = command, asyncio.get_running_loop().create_future()
        try:
            result, error = await self._answer
        except asyncio.CancelledError:
            # The answer may come at any time, and is dropped.
            text = f"environment {self.env_id}: the await of its {command} was cancelled, so its "
            self.fail(ResetNeededError(f"{text}state is not known: {AGAIN}"))
            raise
        if error is not None:  # a future cannot raise StopIteration
            raise error
        return result

    def answer(self, result: Any, error: Exception | None = None) -> None:
        """Return a result to the coroutine that awaits it, or raise an error there."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((result, error))

    def raise_error(self, error: Exception) -> None:
        """Raise what the environment raised, once; a step or reset breaks it."""
        if self.command != "call":
            self._why_not = _FAILED
        self.answer(None, error)

    def fail(self, error: Exception) -> None:
        """Let the pending and later commands raise an error; of several errors, the first."""
        self._fault = self._fault or error
        self.answer(None, copied(self._fault))

    def end(self) -> None:
        """End the conversation; the answer that another task awaits is dropped."""
        block = "`async with pool.acquire()`"
        text = f"{self.command}: the block of {block} ended before environment {self.env_id} "
        self.answer(None, ClosedEnvironmentError(f"{text}answered: await all that was begun in it"))
        text = f"called after the end of its {block}, which gave environment {self.env_id} back"
        self._fault = ClosedEnvironmentError(f"{text}: {AGAIN}")
