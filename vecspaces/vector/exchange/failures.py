"""The texts of errors about workers: an environment's exception, a death, a late reply."""

from __future__ import annotations

import copy
import pickle
import re
import signal as signals
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from vecspaces.errors import StepTimeoutError, WorkerDiedError, WorkerError
from vecspaces.pickling import dumps

#: The advice to use one process per environment; commands name their options instead.
WORKER_PER_ENV = "AsyncVectorEnv with num_workers=len(env_fns)"


def name_envs(env_ids: Sequence[int]) -> str:
    """Name environments by their numbers.

    Example:
        >>> print(name_envs([3]), name_envs([1, 4]), name_envs(range(32, 64)), sep="; ")
        environment 3; environments 1, 4; environments 32 to 63
    """
    if len(env_ids) == 1:
        return f"environment {env_ids[0]}"
    if len(env_ids) > 2 and env_ids[-1] - env_ids[0] == len(env_ids) - 1:
        return f"environments {env_ids[0]} to {env_ids[-1]}"
    return f"environments {', '.join(map(str, env_ids))}"


#: How numbers are written, by their kind in a template.
_NUMBERED: dict[str, Callable[[Any], str]] = {
    "envs": name_envs,
    "env_fn": "env_fns[{}]".format,
    "worker": "worker {}".format,
    "process": "process {}".format,
}
_FIELD = re.compile(r"(?<!\{)\{(?::(\w+))?\}")


class Message(str):
    """A text that stores its numbers, so that an outer vector env can replace the numbers.

    The template is one of `str.format`: `{:envs}` takes a sequence of environments, `{:env_fn}` a
    factory, `{:worker}` a worker, and `{}` anything else, such as another message.

    Example:
        >>> message = Message("{:envs} returned {} as its reward", [1], None)
        >>> message
        'environment 1 returned None as its reward'
        >>> message.within(4)
        'environment 5 returned None as its reward'
    """

    template: str
    fields: tuple[Any, ...]

    def __new__(cls, template: str, *fields: Any) -> Message:
        """Write the text."""
        kinds = _FIELD.findall(template)
        pairs = list(zip(kinds, fields, strict=True))
        texts = [_NUMBERED[kind](field) if kind else str(field) for kind, field in pairs]
        message = super().__new__(cls, _FIELD.sub("{}", template).format(*texts))
        message.template = template
        # Other fields are converted to text, because they may be large, or impossible to pickle.
        message.fields = tuple(
            field if kind or isinstance(field, Message) else text
            for (kind, field), text in zip(pairs, texts, strict=True)
        )
        return message

    def within(self, first: int, worker: str = "worker", width: int = 1) -> Message:
        """Return the message with the numbers of an outer vector env, and its word for workers.

        Environment 0 has number `first`, and each becomes `width` environments.
        """
        fields = []
        for kind, field in zip(_FIELD.findall(self.template), self.fields, strict=True):
            if isinstance(field, Message):
                field = field.within(first, worker, width)
            elif kind == "envs":
                field = _shifted(field, first, width)
            elif kind == "env_fn":
                field += first
            fields.append(field)
        return Message(self.template.replace("{:worker}", f"{{:{worker}}}"), *fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, (self.template, *self.fields)


#: The advice for messages of other libraries, by a part of the message.
_ADVICE = {
    "daemonic processes are not allowed to have children": (
        "workers are daemons: environments that start processes with multiprocessing need "
        "AsyncVectorEnv(..., daemon=False)"
    ),
    "Cannot re-initialize CUDA in forked subprocess": (
        "the caller had initialised CUDA before it forked this worker: use "
        'AsyncVectorEnv(..., context="forkserver")'
    ),
}


class Death(NamedTuple):
    """How a worker ended."""

    exitcode: int | None  # as of `multiprocessing.Process`; None if it is not known
    node: str | None = None  # the machine of a cluster that it ran on; None for this one
    cause: Exception | None = None  # the error of the cluster
    stack: str | None = None  # the frames that a crash left, the innermost last
    error: WorkerDiedError | None = None  # the error of an actor's vector env about its process


_USUAL_CAUSES = {
    "SIGKILL": "often the kernel's out-of-memory killer",
    "SIGSEGV": "a crash in native code, often the simulator's",
    "SIGBUS": "a bad memory access, often a full /dev/shm or a truncated file",
    "SIGABRT": "native code aborted itself, often a failed assertion",
    "SIGTERM": "another process, often a job scheduler, asked it to end",
}


def _describe_exit(exitcode: int | None) -> tuple[str, str | None]:
    """Return how a process ended, as text, and the signal with its usual cause, or None."""
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
    """Return lines about the place of an environment, or of one of several; empty if unknown."""
    if not position and stack is None:
        return ""
    within = f" ({position})" if position else ""
    return Message("\n{:envs}{}{}", env_ids, within, f":\n{stack}" if stack else "")


def waited(command: str, since: float, env_ids: Sequence[int], where: Message | str) -> Message:
    """Return the text about a wait: what was awaited, and how long, in seconds."""
    seconds = f"{time.monotonic() - since:.1f}"
    return Message("{} was waiting {} s for {:envs}{}", command, seconds, env_ids, where)


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
    running = Message(" while {:envs} was running", [busy]) if busy in rows else ""
    what = Message(
        "{:worker}{} ({:envs}) {} during {}{}",
        worker,
        f" on node {death.node}" if death.node else "",
        rows,
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
    """Return the first field of the message, which states what happened."""
    what: Message = error.args[0].fields[0]
    return what


def reworded(error: Loss, what: Message, advice: Message | str, **attributes: Any) -> Loss:
    """Return the error for the same loss with another text; the place of the environment stays."""
    changed = copy.copy(error)
    changed.__cause__ = error.__cause__  # `copy` drops the cause
    changed.args = (Message("{}: {}{}", what, advice, error.args[0].fields[2]),)
    vars(changed).update(attributes)
    return changed


def died_within(worker: int, node: str, error: WorkerDiedError) -> WorkerDiedError:
    """Make the error for a process that died in an actor, from that of the actor's vector env."""
    what, advice, _ = error.args[0].within(0, worker="process").fields
    what = Message("{:worker} on node {}: {}", worker, node, what)
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
    """Make the error for a timeout; `running` are those of `rows` that are running now."""
    now: str = ""
    if running and len(running) < len(rows):
        now = Message(" ({:envs} running now)", running)
    what = Message(
        "{} did not end within {} s: {:envs} still busy{}", command, f"{timeout:g}", rows, now
    )
    return StepTimeoutError(Message("{}: {}{}", what, advice, where), rows, running, stack)


def _is_of_handler(error: BaseException) -> bool:
    """Whether a signal handler of this process raised an exception."""
    handlers = filter(callable, map(signals.getsignal, signals.valid_signals()))
    functions: list[Any] = [getattr(handler, "func", handler) for handler in handlers]
    codes = [getattr(call, "__code__", None) for f in functions for call in (f, f.__call__)]
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


class Failure(Exception):  # noqa: N818 - the report of an error, which `throw` raises
    """The exception of environments in a command, which a group raises and a pipe transports.

    In the caller it is the `__cause__` of `exception`, which is None if it could not be pickled.
    `text` is the formatted traceback, empty for errors of the caller's checks; `worker` is -1 if it
    is unknown.
    """

    def __init__(
        self,
        env_ids: Sequence[int],
        command: str,
        exception: Exception | None,
        text: str,
        worker: int = -1,
    ) -> None:
        super().__init__()
        self.env_ids, self.command, self.worker = tuple(env_ids), command, worker
        self.exception, self.text = exception, text
        # Raised by a signal handler of this process, as by Ctrl-C; not pickled.
        self.interrupt: BaseException | None = None

    @property
    def last_line(self) -> str:
        """The last line of the traceback, which names the exception; empty without a text."""
        return (self.text.strip().splitlines() or [""])[-1]

    @classmethod
    def of(
        cls, error: BaseException, env_ids: Sequence[int], command: str, worker: int = -1
    ) -> Failure:
        """Record an exception, with its traceback, unless it is recorded already."""
        # isinstance would read the exception's __class__, which may raise.
        if issubclass(type(error), cls):
            return error  # type: ignore[return-value]
        # SystemExit and similar exceptions must not end the caller's process, so they are sent as
        # text.
        exception = error if isinstance(error, Exception) else None
        text = _format(error)
        advice = next((advice for sign, advice in _ADVICE.items() if sign in text), "")
        failure = cls(env_ids, command, exception, text, worker).adding(advice)
        if exception is None and _is_of_handler(error):
            failure.interrupt = error
        return failure

    def raise_interrupt(self) -> None:
        """Raise the exception of a signal handler, if a handler raised an exception."""
        if self.interrupt is not None:
            raise self.interrupt

    @classmethod
    def of_vector_env(cls, error: BaseException, rows: range, command: str) -> Failure:
        """Record an exception of a vector env of several rows, with their numbers here."""
        if isinstance(error, cls):
            return error
        cause = error.__cause__
        if isinstance(cause, cls):
            failure = cls(cause.env_ids, cause.command, cause.exception, cause.text)
        else:
            failure = cls.of(error, range(len(rows)), command)
        if error.args and isinstance(error.args[0], Message):
            if isinstance(error, (WorkerError, StepTimeoutError)):
                failure.env_ids = error.env_ids
            _renumber(error, rows.start)
        failure.env_ids = _shifted(failure.env_ids, rows.start)
        return failure

    @classmethod
    def unreadable(cls, env_ids: Sequence[int], command: str, worker: int) -> Failure:
        """Record that an answer could not be unpickled; called while that exception is handled."""
        text = f"{traceback.format_exc()}\n(what the worker answered could not be unpickled)"
        return cls(env_ids, command, None, text, worker)

    def adding(self, advice: str) -> Failure:
        """Add advice as a note, which Python shows below all tracebacks."""
        exception = self.exception
        if advice and exception is None:
            self.text += f"{advice}\n"
        elif advice and advice not in getattr(exception, "__notes__", ()):
            cast("Exception", exception).add_note(advice)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickled = dumps(self.exception)
        except Exception as error:  # of the environment's own __reduce__
            pickled = dumps(None)
            text = f"{self.text}\n(the exception could not be pickled: {_show(error)})"
        else:
            text = self.text
        return _rebuild, (self.env_ids, self.command, pickled, text, self.worker)

    @property
    def message(self) -> Message:
        """The place, and the traceback."""
        worker = f" (worker {self.worker})" if self.worker >= 0 else ""
        return Message("{:envs}{} failed in {}:\n{}", self.env_ids, worker, self.command, self.text)

    def __str__(self) -> str:
        return f"\n{self.message}"

    def caught(self) -> Exception:
        """Return the exception that `throw` raises."""
        try:
            self.throw()
        except Exception as error:
            return error

    def throw(self) -> NoReturn:
        """Raise the environment's exception, with this failure as its cause.

        A `WorkerError` is raised if it is not an `Exception`, or could not be pickled.
        """
        if self.exception is None:
            raise WorkerError(self.message, self.env_ids, self.worker, self.command)
        if not self.text:
            raise self.exception  # the caller found the error: there is no traceback of a worker
        # Users read the traceback of the environment, not of the group that raised this.
        self.__traceback__ = self.__context__ = None
        raise self.exception from self


def _shifted(env_ids: Sequence[int], first: int, width: int = 1) -> tuple[int, ...]:
    starts = (first + width * number for number in env_ids)
    return tuple(row for start in starts for row in range(start, start + width))


def _renumber(error: BaseException, first: int, width: int = 1) -> None:
    """Give an error the numbers of an outer vector env; the arguments are those of `within`."""
    error.args = (error.args[0].within(first, width=width), *error.args[1:])
    if isinstance(error, (WorkerError, StepTimeoutError)):
        error.env_ids = _shifted(error.env_ids, first, width)
    if isinstance(error, StepTimeoutError):
        error.running = _shifted(error.running, first, width)
    if isinstance(error, WorkerDiedError) and error.running is not None:
        error.running = first + width * error.running


def renumbered(error: Exception, width: int) -> Exception:
    """Return the error of an inner vector env with outer numbers, `width` per environment.

    The error itself stays as it is, because it may be raised again.
    """
    cause, traceback = error.__cause__, error.__traceback__
    if error.args and isinstance(error.args[0], Message):
        error = copy.copy(error)
        _renumber(error, 0, width)
    if isinstance(cause, Failure):
        cause = copy.copy(cause)
        cause.env_ids = _shifted(cause.env_ids, 0, width)
    error.__cause__ = cause
    return error.with_traceback(traceback)


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
    """Return the `repr` of an exception, or its type if `repr` raises."""
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
    except Exception as error:  # of a constructor
        exception = None
        text = f"{text}\n(the exception could not be unpickled: {_show(error)})"
    return Failure(env_ids, command, exception, text, worker)
