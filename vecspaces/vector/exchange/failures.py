"""What goes wrong in a worker, as an error of the caller: an exception, a death, a late reply."""

from __future__ import annotations

import copy
import pickle
import signal as signals
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn, TypeVar

from vecspaces.errors import StepTimeoutError, WorkerDiedError, WorkerError
from vecspaces.vector.exchange.messages import dumps

#: What gives each environment a process of its own, in advice; commands name their options instead.
ONE_WORKER_EACH = "AsyncVectorEnv with num_workers=len(env_fns)"


class EnvIds(tuple[int, ...]):
    """The environments that a message names.

    Example:
        >>> print(EnvIds([3]), EnvIds([1, 4]), EnvIds(range(32, 64)), sep="; ")
        environment 3; environments 1, 4; environments 32 to 63
    """

    __slots__ = ()

    def __str__(self) -> str:
        if len(self) == 1:
            return f"environment {self[0]}"
        if len(self) > 2 and self[-1] - self[0] == len(self) - 1:
            return f"environments {self[0]} to {self[-1]}"
        return f"environments {', '.join(map(str, self))}"

    def within(self, first: int) -> EnvIds:
        """Return the numbers of the same environments in a vector env that holds theirs."""
        return EnvIds(first + number for number in self)


@dataclass(frozen=True)
class EnvFn:
    """The factory that a message names."""

    number: int

    def __str__(self) -> str:
        return f"env_fns[{self.number}]"

    def within(self, first: int) -> EnvFn:
        """Return the same factory in the list of a vector env that holds its own."""
        return EnvFn(first + self.number)


@dataclass(frozen=True)
class WorkerName:
    """The worker that a message names."""

    number: int

    def __str__(self) -> str:
        return f"worker {self.number}"


class Message(str):
    """A text with fields, which can be written again with other environment numbers.

    Args:
        template: As `str.format` takes it, with `{}` for each field.
        *fields: What is written there. Numbers of environments, factories and workers stay fields,
            and so do messages; anything else becomes text at once.

    Example:
        >>> message = Message("{} returned {} as its reward", EnvIds([1]), None)
        >>> message
        'environment 1 returned None as its reward'
        >>> message.within(4)
        'environment 5 returned None as its reward'
    """

    template: str
    fields: tuple[Any, ...]

    def __new__(cls, template: str, *fields: Any) -> Message:
        """Write the text."""
        message = super().__new__(cls, template.format(*map(str, fields)))
        message.template = template
        message.fields = tuple(
            field if isinstance(field, _KEPT) else str(field) for field in fields
        )
        return message

    def map(self, change: Callable[[Any], Any]) -> Message:
        """Return the message with every field changed, those of messages within it too."""
        fields = (
            field.map(change) if isinstance(field, Message) else change(field)
            for field in self.fields
        )
        return Message(self.template, *fields)

    def within(self, first: int) -> Message:
        """Return the message of a vector env in which environment 0 has the number `first`."""
        return self.map(lambda field: field.within(first) if hasattr(field, "within") else field)

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, (self.template, *self.fields)


_KEPT = (EnvIds, EnvFn, WorkerName, Message)


class Death(NamedTuple):
    """How a worker ended.

    Attributes:
        exitcode: As of `multiprocessing.Process`; None if it is not known.
        node: The machine of a cluster that it ran on; None for this one.
        cause: The error of the cluster, or what was raised before it could start.
        stack: The frames of its environment, the innermost last, where a crash left them.
        error: Of a process in an actor, the error that the actor's vector env raised for it.
    """

    exitcode: int | None
    node: str | None = None
    cause: Exception | None = None
    stack: str | None = None
    error: WorkerDiedError | None = None


_USUAL_CAUSES = {
    "SIGKILL": "often the kernel's out-of-memory killer",
    "SIGSEGV": "a crash in native code, often the simulator's",
    "SIGBUS": "a bad memory access, often a full /dev/shm or a truncated file",
    "SIGABRT": "native code aborted itself, often a failed assertion",
    "SIGTERM": "another process, often a job scheduler, asked it to end",
}


def _describe_exit(exitcode: int | None) -> tuple[str, str | None]:
    """Return how a process ended, for a message, and the signal with its usual cause, or None.

    Example:
        >>> _describe_exit(-9)[1]
        "SIGKILL (often the kernel's out-of-memory killer)"
        >>> _describe_exit(3)
        ('exited with code 3', None)
    """
    if exitcode is None:
        return "ended in an unknown way", None
    if exitcode >= 0:
        return f"exited with code {exitcode}", None
    try:
        name = signals.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    cause = _USUAL_CAUSES.get(name)
    signal = f"{name} ({cause})" if cause else name
    return f"was ended by {signal}", signal


def whereabouts(env_ids: Sequence[int], position: str, stack: str | None) -> Message | str:
    """Say where an environment is, or one of several, in lines of their own; nothing if unknown.

    Example:
        >>> print("late" + whereabouts([3], "last seed 7", '  File "e.py", line 2, in step'))
        late
        environment 3 (last seed 7):
          File "e.py", line 2, in step
    """
    if not position and stack is None:
        return ""
    within = f" ({position})" if position else ""
    return Message("\n{}{}{}", EnvIds(env_ids), within, f":\n{stack}" if stack else "")


def waited(command: str, since: float, env_ids: Sequence[int], where: Message | str) -> Message:
    """Say what was waited for, and how long: the second field, in seconds.

    Example:
        >>> print(waited("step", time.monotonic() - 2, [3], ""))
        step was waiting 2.0 s for environment 3
    """
    seconds = f"{time.monotonic() - since:.1f}"
    return Message("{} was waiting {} s for {}{}", command, seconds, EnvIds(env_ids), where)


def died(
    worker: int,
    rows: Sequence[int],
    command: str,
    death: Death,
    busy: int,
    advice: str,
    position: str = "",
) -> WorkerDiedError:
    """Make the error for a dead worker; `busy` is the environment that was running, or -1."""
    phrase, signal = _describe_exit(death.exitcode)
    if death.exitcode is None and death.cause is not None:
        phrase = "was lost"
    running = Message(" while {} was running", EnvIds([busy])) if busy in rows else ""
    what = Message(
        "{}{} ({}) {} during {}{}",
        WorkerName(worker),
        f" on node {death.node}" if death.node else "",
        EnvIds(rows),
        phrase,
        command,
        running,
    )
    running_env = busy if busy in rows else None
    where = whereabouts([busy] if running else rows, position, death.stack)
    error = WorkerDiedError(
        Message("{}: {}{}", what, advice, where),
        rows,
        worker,
        command,
        death.exitcode,
        signal,
        death.node,
        running_env,
        death.stack,
    )
    error.__cause__ = death.cause
    return error


Loss = TypeVar("Loss", bound=WorkerDiedError | StepTimeoutError)


def without_advice(error: WorkerDiedError | StepTimeoutError) -> Message:
    """Return the part of the message that says what happened, which is its first field."""
    what: Message = error.args[0].fields[0]
    return what


def reworded(error: Loss, what: Message, advice: Message | str, **attributes: Any) -> Loss:
    """Return the error for the same loss in other words; where the environment was stays."""
    changed = copy.copy(error)
    changed.args = (Message("{}: {}{}", what, advice, error.args[0].fields[2]),)
    vars(changed).update(attributes)
    return changed


def died_within(worker: int, node: str, error: WorkerDiedError) -> WorkerDiedError:
    """Make the error for a process that died in an actor from that of the actor's vector env.

    Example:
        >>> inner = died(1, [5], "step", Death(3), -1, "reset")
        >>> str(died_within(0, "n7", inner))
        'worker 0 on node n7: process 1 (environment 5) exited with code 3 during step: reset'
    """
    inner = error.args[0].map(
        lambda field: f"process {field.number}" if isinstance(field, WorkerName) else field
    )
    what, advice, _ = inner.fields
    what = Message("{} on node {}: {}", WorkerName(worker), node, what)
    return reworded(error, what, advice, worker=worker, node=node)


def overdue(
    command: str,
    timeout: float,
    rows: Sequence[int],
    running: Sequence[int],
    advice: str,
    where: Message | str = "",
    stack: str | None = None,
) -> StepTimeoutError:
    """Make the error for what took too long; `running` are those of `rows` running now."""
    now: str = ""
    if running and len(running) < len(rows):
        now = Message(" ({} running now)", EnvIds(running))
    what = Message(
        "{} did not end within {} s: {} still busy{}", command, f"{timeout:g}", EnvIds(rows), now
    )
    return StepTimeoutError(Message("{}: {}{}", what, advice, where), rows, running, stack)


class EnvironmentTraceback(Exception):  # noqa: N818 - a cause to read, not an error to catch
    """The `__cause__` of an environment's exception: where it was raised, as text and as fields."""

    def __init__(self, text: str, failure: Failure) -> None:
        super().__init__(text, failure)
        self.failure = failure

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True)
class Failure:
    """One failed command of one or more environments.

    Args:
        env_ids: The environments concerned.
        command: What they were doing: `"build"`, `"reset"`, `"step"`, `"call"`, `"close"`.
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
        return cls(tuple(env_ids), command, exception, _format(error), worker)

    def adding(self, advice: str) -> Failure:
        """Return the failure with advice as a note, which Python shows below all tracebacks."""
        if not advice:
            return self
        if self.exception is None:
            return replace(self, text=f"{self.text}{advice}\n")
        self.exception.add_note(advice)
        return self

    @classmethod
    def of_vector_env(cls, error: BaseException, rows: range, command: str) -> Failure:
        """Record what a vector env of several rows raised, with the numbers that they have here."""
        if isinstance(error, EnvironmentFailed):
            return error.failure
        if isinstance(error.__cause__, EnvironmentTraceback):
            failure = replace(error.__cause__.failure, worker=-1)
        else:
            failure = cls.of(error, range(len(rows)), command)
        if error.args and isinstance(error.args[0], Message):
            error.args = (error.args[0].within(rows.start), *error.args[1:])
            if isinstance(error, (WorkerError, StepTimeoutError)):
                failure = replace(failure, env_ids=error.env_ids)
                error.env_ids = tuple(EnvIds(error.env_ids).within(rows.start))
            if isinstance(error, StepTimeoutError):
                error.running = tuple(EnvIds(error.running).within(rows.start))
            if isinstance(error, WorkerDiedError) and error.running is not None:
                error.running += rows.start
        return replace(failure, env_ids=tuple(EnvIds(failure.env_ids).within(rows.start)))

    @classmethod
    def unreadable(cls, env_ids: Sequence[int], command: str, worker: int) -> Failure:
        """Record that an answer could not be unpickled, while that exception is handled."""
        text = f"{traceback.format_exc()}\n(what the worker answered could not be unpickled)"
        return cls(tuple(env_ids), command, None, text, worker)

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickled = dumps(self.exception)
        except BaseException as error:  # the environment's own __reduce__ may raise anything
            pickled = dumps(None)
            text = f"{self.text}\n(the exception could not be pickled: {_show(error)})"
        else:
            text = self.text
        return _rebuild, (self.env_ids, self.command, pickled, text, self.worker)

    def throw(self) -> NoReturn:
        """Raise what the environment raised, its traceback as the cause.

        What is no `Exception`, or could not be carried over, is raised as a `WorkerError`.
        """
        worker = f" (worker {self.worker})" if self.worker >= 0 else ""
        headline = Message(
            "{}{} failed in {}:\n{}", EnvIds(self.env_ids), worker, self.command, self.text
        )
        if self.exception is None:
            raise WorkerError(headline, self.env_ids, self.worker, self.command)
        if not self.text:
            raise self.exception  # the caller's own finding: no traceback of a worker to show
        raise self.exception from EnvironmentTraceback(headline, self)


class EnvironmentFailed(Exception):  # noqa: N818 - carries an error
    """Carries a `Failure` out of an `EnvGroup`; never reaches the user."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    @classmethod
    def of(cls, error: BaseException, env_ids: Sequence[int], command: str) -> EnvironmentFailed:
        """Record what was raised, unless it is recorded already."""
        # isinstance would read the exception's __class__, which may raise.
        if issubclass(type(error), cls):
            return error  # type: ignore[return-value]
        return cls(Failure.of(error, env_ids, command))


def _format(error: BaseException) -> str:
    """Return the traceback as text, also of an exception whose own attributes raise."""
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except (Exception, SystemExit) as raised:
        frames = traceback.format_tb(BaseException.__dict__["__traceback__"].__get__(error))
        return (
            f"Traceback (most recent call last):\n{''.join(frames)}"
            f"{_show(error)} (the rest cannot be shown: {_show(raised)})\n"
        )


def _show(error: BaseException) -> str:
    """Return the `repr` of an exception, or its type where that raises."""
    try:
        return repr(error)
    except (Exception, SystemExit):
        return object.__repr__(error)


def _rebuild(
    env_ids: tuple[int, ...], command: str, pickled: bytes, text: str, worker: int
) -> Failure:
    """Make a `Failure` from its parts; an exception that cannot be unpickled becomes text."""
    try:
        exception = pickle.loads(pickled)
    except (Exception, SystemExit) as error:  # a constructor may raise anything
        exception = None
        text = f"{text}\n(the exception could not be unpickled: {_show(error)})"
    if exception is not None and not isinstance(exception, Exception):  # its __reduce__ says so
        text = (
            f"{text}\n(the exception was unpickled as another object, {type(exception).__name__})"
        )
        exception = None
    return Failure(env_ids, command, exception, text, worker)
