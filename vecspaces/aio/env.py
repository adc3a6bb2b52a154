"""PoolEnv: an environment of a pool while a conversation holds it; its calls are awaited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from vecspaces.aio.rows import AGAIN, Command
from vecspaces.checks import show_value
from vecspaces.errors import AlreadyPendingCallError, ClosedEnvironmentError, ResetNeededError
from vecspaces.spaces import Space
from vecspaces.vector.calls import check_called
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Failure, Message
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.session.seeds import spread_seeds

if TYPE_CHECKING:
    from vecspaces.aio.pool import Pool


class PoolEnv:
    """An environment of a `Pool`, from `Pool.acquire`, while a coroutine holds it.

    Its methods are awaited, and return single values, like those of `gymnasium.Env`. There is no
    autoreset: call `reset` after the end of an episode.

    Attributes:
        env_id: The number of the environment in the pool.
    """

    def __init__(self, pool: Pool, env_id: int) -> None:
        self.env_id = env_id
        self._pool, self._rows, self._session = pool, pool._rows, pool._session
        self._is_over = False  # whether it was given back
        self._episodes = 0
        # The last command; the reason why steps are refused now, if they are; and the error of
        # every further call, if there is one.
        self._command: Command | None = None
        self._why_not = "was not reset yet"
        self._fault: Exception | None = None

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
        row = self.env_id
        starts = {row: (spread_seeds(seed, 1)[0], options)}
        send = partial(self._session.send_rows, [row], "reset", starts, 1)
        observation, _, _, _, info = self._rows.read(row, await self._ask("reset", send))
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
        rows, row = self._rows, self.env_id
        if self._why_not:
            raise ResetNeededError(
                Message("step: {:envs} {}: await reset() first", [row], self._why_not)
            )
        rows.write_action(row, action)
        send = partial(self._session.send_rows, [row], "step", {}, 1)
        result = rows.read(row, await self._ask("step", send))
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
        session, row = self._session, self.env_id
        if row in session.broken:
            raise ResetNeededError(Message("call: {:envs} {}", [row], f"{self._why_not}: reset()"))
        send = partial(session.send_call, row, Op.CALL, ((name, args, kwargs), [row]))
        await self._ask("call", send)
        result = session.returned.pop(row)
        if isinstance(result, Failure):
            result.throw()
        return result

    def _check(self, call: str) -> None:
        """Raise if the call is not allowed now."""
        self._pool._check(call)
        if self._is_over:
            text = "{} was called after the end of its `async with pool.acquire()`, which gave "
            text += "{:envs} back: {}"
            raise ClosedEnvironmentError(Message(text, call, [self.env_id], AGAIN))
        if self._fault is not None:
            raise self._fault
        if self._command is not None and self._command.is_awaited:
            under_way = self._command.call
            text = "{}: the {} of {:envs} is not there yet: await it first, or acquire an "
            text += "environment for each task"
            message = Message(text, call, under_way, [self.env_id])
            raise AlreadyPendingCallError(message, under_way)

    async def _ask(self, call: str, send: Callable[[Deadline], None]) -> dict[str, Any]:
        """Send a command, wait for the answer, and return the info, or raise the error."""
        row = self.env_id
        self._command = command = self._rows.send(row, call, send)
        self._episodes += call == "reset"
        assert command.future is not None
        try:
            info = await command.future
        except BaseException:
            # The answer may come at any time, and is dropped.
            text = "{:envs}: the await of its {} was cancelled, so its state is not known: {}"
            self._fault = ResetNeededError(Message(text, [row], call, AGAIN))
            raise
        if self._fault is not None:
            raise self._fault
        failure = self._session.broken.get(row)
        if failure is not None:
            self._why_not = "failed, and is built again by a reset"
            self._rows.counts["failure"] += 1
            if failure.command == "step":  # a reset is one in the stream
                failure.command = call
            failure.throw()
        return info

    # ------------------------------------------------------------------ for the pool

    def fail(self, error: Exception) -> None:
        """Let the running await, and all further ones, raise an error, always the first one."""
        self._fault = self._fault or error
        if self._command is not None:
            self._command.answer({})

    def end(self) -> int:
        """End the conversation; return how many episodes it has begun."""
        self._is_over = True
        if self._command is not None and self._command.is_awaited:
            # Another task awaits the answer, which is dropped.
            text = "{}: the block of `async with pool.acquire()` ended before {:envs} answered: "
            text += "await all that was begun in it"
            self.fail(ClosedEnvironmentError(Message(text, self._command.call, [self.env_id])))
        return self._episodes
