"""PoolEnv: an environment of a pool while a conversation holds it; its calls are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vecspaces.checks import show_value
from vecspaces.errors import AlreadyPendingCallError, ClosedEnvironmentError, ResetNeededError
from vecspaces.spaces import Space
from vecspaces.vector.calls import check_called

if TYPE_CHECKING:
    from vecspaces.aio.pool import Pool

AGAIN = "acquire another environment"
_FAILED = "failed, and is built again by a reset"


class PoolEnv:
    """An environment of a `Pool`, from `Pool.acquire`, while a coroutine holds it.

    Its methods are awaited, and return single values, like those of `gymnasium.Env`. There is no
    autoreset: call `reset` after the end of an episode.

    Attributes:
        env_id: The number of the environment in the pool.
        episodes: How many episodes were begun.
        command: The last command: "reset", "step" or "call".
    """

    def __init__(self, pool: Pool, env_id: int, has_failed: bool = False) -> None:
        self.env_id, self.episodes = env_id, 0
        self._pool = pool
        self._is_over = False  # whether it was given back
        # The pending command and the future of its answer; the reason why steps are refused now;
        # and the error of every further call, if there is one.
        self.command = ""
        self._answer: asyncio.Future[Any] | None = None
        self._why_not = _FAILED if has_failed else "was not reset yet"
        self._fault: Callable[[], Exception] | None = None

    def __repr__(self) -> str:
        return f"<PoolEnv {self.env_id} of {self._pool!r}>"

    @property
    def observation_space(self) -> Space[Any]:
        """The space of its observations."""
        return self._pool.observation_space

    @property
    def action_space(self) -> Space[Any]:
        """The space of its actions."""
        return self._pool.action_space

    async def reset(
        self, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; an environment that raised an exception is built again first.

        Args:
            seed: The seed of the environment's random numbers, or None.
            options: The options of the environment's `reset`.

        Returns:
            The first observation, and the info.

        Raises:
            Exception: What the environment raised.
            StepTimeoutError: It took longer than `step_timeout`; acquire another environment.
            WorkerDiedError: Its worker died; acquire another environment.
        """
        self._check("reset")
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"options must be a mapping or None, found {show_value(options)}")
        self._pool.send(self.env_id, "reset", seed=seed, options=options)
        self.episodes += 1
        observation, _, _, _, info = await self._ask("reset")
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
            Exception: What the environment raised.
            InvalidActionError: The action does not fit; the environment was not stepped.
            ResetNeededError: There was no reset before, or the episode has ended.
            ClosedEnvironmentError: The block of its `acquire` has ended, or the pool was closed.
            StepTimeoutError: It took longer than `step_timeout`; acquire another environment.
            WorkerDiedError: Its worker died; acquire another environment.
        """
        self._check("step")
        if self._why_not:
            raise ResetNeededError(
                f"step: environment {self.env_id} {self._why_not}: await reset() first"
            )
        self._pool.send(self.env_id, "step", action)
        result: tuple[Any, float, bool, bool, dict[str, Any]] = await self._ask("step")
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
            StepTimeoutError: It took longer than `step_timeout`; acquire another environment.
            WorkerDiedError: Its worker died; acquire another environment.
        """
        self._check("call")
        check_called(name)
        if self.has_failed:
            raise ResetNeededError(f"call: environment {self.env_id} {self._why_not}: reset()")
        self._pool.send(self.env_id, "call", name, *args, **kwargs)
        return await self._ask("call")

    def _check(self, call: str) -> None:
        """Raise if the call is not allowed now."""
        self._pool.check(call)
        if self._is_over:
            raise ClosedEnvironmentError(
                f"{call} was called after the end of its `async with pool.acquire()`, which gave "
                f"environment {self.env_id} back: {AGAIN}"
            )
        if self._fault is not None:
            raise self._fault()
        if self.is_awaited:
            raise AlreadyPendingCallError(
                f"{call}: the {self.command} of environment {self.env_id} is not there yet: await "
                "it first, or acquire an environment for each task",
                self.command,
            )

    async def _ask(self, call: str) -> Any:
        """Wait for the answer, or raise the error."""
        self.command = call
        self._answer = answer = asyncio.get_running_loop().create_future()
        try:
            return await answer
        except asyncio.CancelledError:
            # The answer may come at any time, and is dropped.
            text = f"environment {self.env_id}: the await of its {call} was cancelled, so its state"
            self._fault = lambda: ResetNeededError(f"{text} is not known: {AGAIN}")
            raise

    # ------------------------------------------------------------------ for the pool

    @property
    def has_failed(self) -> bool:
        """Whether the environment must be built again."""
        return self._why_not == _FAILED

    @property
    def is_awaited(self) -> bool:
        """Whether a coroutine awaits an answer."""
        return self._answer is not None and not self._answer.done()

    def answer(self, result: Any) -> None:
        """Return a result to the coroutine that awaits it."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(result)

    def raise_own(self, error: Exception) -> None:
        """Raise what the environment raised, once; a step or reset breaks it."""
        if self.command != "call":
            self._why_not = _FAILED
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def fail(self, make: Callable[[], Exception]) -> None:
        """Let the running await, and all further ones, raise an error, always the first one.

        `make` makes it anew each time, because an exception that is raised again grows.
        """
        self._fault = self._fault or make
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._fault())

    def end(self) -> None:
        """End the conversation."""
        self._is_over = True
        if self.is_awaited:
            # Another task awaits the answer, which is dropped.
            text = f"{self.command}: the block of `async with pool.acquire()` ended before "
            text += f"environment {self.env_id} answered: await all that was begun in it"
            self.fail(lambda: ClosedEnvironmentError(text))
