"""How an environment's exception reaches the caller: as itself, its traceback as the cause."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import cloudpickle

from vecspaces.errors import (
    StepTimeoutError,
    VecspacesError,
    WorkerDiedError,
    WorkerError,
    describe_exit,
)


def name_rows(rows: Sequence[int]) -> str:
    """Name environments in a message.

    Example:
        >>> name_rows([3]), name_rows([1, 4]), name_rows(range(32, 64))
        ('environment 3', 'environments 1, 4', 'environments 32 to 63')
    """
    if len(rows) == 1:
        return f"environment {rows[0]}"
    if len(rows) > 2 and rows[-1] - rows[0] == len(rows) - 1:
        return f"environments {rows[0]} to {rows[-1]}"
    return f"environments {', '.join(map(str, rows))}"


_NAMED_ROWS = re.compile(r"\benvironments? (?:\d+(?:, | to )?)+|\benv_fns\[\d+\]")


def renumber(message: str, by: int) -> str:
    """Add a number to the environments that `name_rows` named in a message.

    Example:
        >>> renumber("worker 1 (environments 2, 3) died while environment 3 was running", 4)
        'worker 1 (environments 6, 7) died while environment 7 was running'
    """

    def shift(named: re.Match[str]) -> str:
        return re.sub(r"\d+", lambda number: str(int(number[0]) + by), named[0])

    return _NAMED_ROWS.sub(shift, message)


class Death(NamedTuple):
    """How a worker ended.

    Attributes:
        exitcode: As multiprocessing says it; None if nobody knows.
        node: The machine of a cluster that it ran on; None for this one.
        cause: What the cluster says of it.
    """

    exitcode: int | None
    node: str | None = None
    cause: Exception | None = None


def died(
    worker: int, rows: Sequence[int], command: str, death: Death, busy: int, advice: str
) -> WorkerDiedError:
    """Make the error for a dead worker.

    Args:
        worker: Its index.
        rows: Its environments.
        command: What it was doing.
        death: How it ended.
        busy: The environment that was running when it died; -1 if none was.
        advice: What to do next.

    Returns:
        The error, to be raised.
    """
    phrase, signal = describe_exit(death.exitcode)
    if death.cause is not None:
        phrase = "was lost"
    where = f" on node {death.node}" if death.node else ""
    running = f" while environment {busy} was running" if busy in rows else ""
    error = WorkerDiedError(
        f"worker {worker}{where} ({name_rows(rows)}) {phrase} during {command}{running}: {advice}",
        rows,
        worker,
        command,
        death.exitcode,
        signal,
        death.node,
    )
    error.__cause__ = death.cause
    return error


def died_within(worker: int, node: str, error: WorkerDiedError) -> WorkerDiedError:
    """Say of a process that died in an actor in which actor it was.

    Args:
        worker: The index of the actor.
        node: The machine that it runs on.
        error: What the vector env in the actor said of its own worker.

    Returns:
        The error, to be raised.

    Example:
        >>> inner = died(1, [5], "step", Death(3), -1, "reset")
        >>> str(died_within(0, "n7", inner))
        'worker 0 on node n7: process 1 (environment 5) exited with code 3 during step: reset'
    """
    told = re.sub(r"\bworker (?=\d)", "process ", str(error))
    return WorkerDiedError(
        f"worker {worker} on node {node}: {told}",
        error.env_ids,
        worker,
        error.command,
        error.exitcode,
        error.signal,
        node,
    )


def overdue(
    command: str, timeout: float, rows: Sequence[int], running: Sequence[int]
) -> StepTimeoutError:
    """Make the error for a wait that took too long.

    Args:
        command: What was waited for.
        timeout: The bound, in seconds.
        rows: The environments that have not finished.
        running: Those of them that are running now.

    Returns:
        The error, to be raised.
    """
    now = f" ({name_rows(running)} running now)" if running and len(running) < len(rows) else ""
    return StepTimeoutError(
        f"{command} did not end within {timeout:g} s: {name_rows(rows)} still busy{now}: "
        "wait again, call reset() (which kills and builds them again), or close()",
        rows,
    )


class EnvironmentTraceback(Exception):  # noqa: N818 - a cause to read, not an error to catch
    """The `__cause__` of an environment's exception: where it was raised, as text.

    Args:
        text: The environment's index, what it was doing, and the formatted traceback.
        failure: The same, for those who hand the exception on.
    """

    def __init__(self, text: str, failure: Failure) -> None:
        super().__init__(text)
        self.failure = failure

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True)
class Failure:
    """One failed command of one or more environments.

    Args:
        env_ids: The environments concerned.
        command: What they were asked to do: `"build"`, `"reset"`, `"step"`, `"call"`, `"close"`.
        exception: What was raised; None if it could not be carried over.
        text: The formatted traceback.
        worker: The index of the worker, if one is known.
    """

    env_ids: tuple[int, ...]
    command: str
    exception: Exception | None
    text: str
    worker: int = -1

    @classmethod
    def of(
        cls, error: BaseException, env_ids: Sequence[int], command: str, worker: int = -1
    ) -> Failure:
        """Record what was raised, while its traceback is at hand."""
        # SystemExit and its like must not end the caller's process: they arrive as text.
        exception = error if isinstance(error, Exception) else None
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(tuple(env_ids), command, exception, text, worker)

    @classmethod
    def unreadable(cls, env_ids: Sequence[int], command: str, worker: int) -> Failure:
        """Record that an answer could not be unpickled, while that exception is handled."""
        text = f"{traceback.format_exc()}\n(what the worker answered could not be unpickled)"
        return cls(tuple(env_ids), command, None, text, worker)

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickled = cloudpickle.dumps(self.exception)
        except Exception as error:  # the environment's own __reduce__ may raise anything
            pickled = cloudpickle.dumps(None)
            text = f"{self.text}\n(the exception could not be pickled: {error!r})"
        else:
            text = self.text
        return _rebuild, (self.env_ids, self.command, pickled, text, self.worker)

    def throw(self) -> NoReturn:
        """Raise what the environment raised.

        Raises:
            Exception: The environment's own exception, with an `EnvironmentTraceback` as its cause.
            WorkerError: In its place where it is no `Exception` or could not be carried over.
        """
        ids = ", ".join(map(str, self.env_ids))
        where = f"environment {ids}" if len(self.env_ids) == 1 else f"environments {ids}"
        if self.worker >= 0:
            where += f" (worker {self.worker})"
        headline = f"{where} failed in {self.command}:\n{self.text}"
        if self.exception is None:
            raise WorkerError(headline, self.env_ids, self.worker, self.command)
        if not self.text:
            raise self.exception  # the caller's own finding: no traceback of a worker to show
        raise self.exception from EnvironmentTraceback(headline, self)


class EnvironmentFailed(Exception):  # noqa: N818 - says what happened
    """Carries a `Failure` out of an `EnvGroup`; never reaches the user.

    Args:
        failure: What happened.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    @classmethod
    def of(cls, error: BaseException, env_ids: Sequence[int], command: str) -> EnvironmentFailed:
        """Take what was raised, unless it says itself where it comes from."""
        return error if isinstance(error, cls) else cls(Failure.of(error, env_ids, command))


@contextlib.contextmanager
def counting_from(low: int, command: str) -> Iterator[None]:
    """Give errors of a vector env the numbers that its environments have in the one around it.

    Args:
        low: The number of its first environment there.
        command: What it is asked to do.

    Raises:
        EnvironmentFailed: It raised an error that names its environments.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error.__cause__, EnvironmentTraceback):
            failure = error.__cause__.failure
        elif isinstance(error, (WorkerError, StepTimeoutError)):
            failure = Failure(error.env_ids, command, error, "")
        else:
            raise
        ids = tuple(low + number for number in failure.env_ids)
        if isinstance(error, VecspacesError) or str(error).startswith("env_fns["):
            error.args = (renumber(str(error), low), *error.args[1:])
        if isinstance(error, (WorkerError, StepTimeoutError)):
            error.env_ids = ids
        raise EnvironmentFailed(replace(failure, env_ids=ids, worker=-1)) from None


def _rebuild(
    env_ids: tuple[int, ...], command: str, pickled: bytes, text: str, worker: int
) -> Failure:
    """Make a `Failure` from its parts; an exception that cannot be unpickled becomes text."""
    try:
        exception = cloudpickle.loads(pickled)
    except Exception as error:  # a constructor may raise anything
        exception = None
        text = f"{text}\n(the exception could not be unpickled: {error!r})"
    return Failure(env_ids, command, exception, text, worker)
