"""How a command refuses bad input, and shows what failed: one line, and the failing code."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, NoReturn

import typer

from vecspaces.errors import (
    InvalidActionError,
    StepTimeoutError,
    VecspacesError,
    WorkerDiedError,
    WorkerError,
)
from vecspaces.vector.exchange.failures import (
    ONE_WORKER_EACH,
    Failure,
    Message,
    name_envs,
    without_advice,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vecspaces.vector.exchange.failures import Failure

# Errors whose message is complete; of others (KeyError: 'gravity') the type is half of it.
_SELF_EXPLAINING = (AttributeError, ImportError, TypeError, ValueError, VecspacesError)
# What is no matter of the input: actions come from a policy.
_FAILED = (InvalidActionError, StepTimeoutError, WorkerError)
_PACKAGE = str(Path(__file__).parents[1])
# Libraries: of what they raise about an argument, the message is enough.
_OF_LIBRARIES = tuple(
    f'  File "{sysconfig.get_path(name)}' for name in ("stdlib", "purelib", "platlib")
)
# What only calls the environment, imports it, or interrupts it.
_BETWEEN = (
    os.path.join(_PACKAGE, "cli", "interrupts.py"),
    os.path.join("gymnasium", "wrappers"),
    os.path.join("gymnasium", "core.py"),
    os.path.join("gymnasium", "envs", "registration.py"),
    os.path.join("importlib", "__init__.py"),
)
_FRAME = re.compile(r'^  File "(.+?)", line \d+, in .+\n(?:    .*\n)*', re.MULTILINE)
_MOST_FRAMES = 20  # of a recursion without an end there are a thousand
_HEADING = "Traceback (most recent call last):\n"


def refuse(message: str) -> NoReturn:
    """Print in one line what is wrong with the input, and end with exit code 2."""
    typer.echo(f"vecspaces: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


def report(error: Exception | SystemExit, options: Mapping[str, str]) -> NoReturn:
    """Print what went wrong, and end with an exit code: 2 for bad input, 1 for what failed.

    An environment or a policy that fails is shown with its own lines of code. `options` holds how
    the arguments of the command are written there, for messages that begin with a name.
    """
    cause = error.__cause__
    failure = cause if isinstance(cause, Failure) else None
    is_missing = _lacks_library(error)
    frames = "" if is_missing else _own_frames(error, failure)
    stack = getattr(error, "stack", None)
    if not frames and stack:
        frames = f"{stack}\n"
    message = "; ".join([_describe(error, failure, options), *getattr(error, "__notes__", [])])
    if "num_workers" in options:
        message = message.replace(ONE_WORKER_EACH, "as many --num-workers as --num-envs")
    typer.echo(f"vecspaces: {' '.join(message.split())}", err=True)
    if frames or (failure is not None and not is_missing):
        typer.echo(f"{frames}(--traceback shows the rest)", err=True)
    failed = (failure is not None and not is_missing) or isinstance(error, _FAILED)
    imported = isinstance(error, (ImportError, AttributeError))
    raise typer.Exit(1 if failed or (frames and not imported) else 2) from None


def _describe(error: BaseException, failure: Failure | None, options: Mapping[str, str]) -> str:
    """Return the message of an error, with options instead of the arguments behind them."""
    clear = isinstance(error, _SELF_EXPLAINING) and str(error)
    kind = "" if _lacks_library(error) else f"{type(error).__name__}: "
    message = str(error) if clear else f"{kind}{error}"
    if failure is not None and isinstance(error, VecspacesError):
        return message  # it names the environment itself
    if failure is not None:
        what = (
            "could not be built" if failure.command == "build" else f"failed in {failure.command}"
        )
        return f"{name_envs(failure.env_ids)} {what}: {kind}{error}"
    if isinstance(error, (WorkerDiedError, StepTimeoutError)):
        return _describe_loss(error)
    if isinstance(error, InvalidActionError):
        return f"the policy returned invalid {message}"
    if isinstance(error, WorkerError):  # it holds the traceback of what cannot be raised here
        return _FRAME.sub("", message.replace(_HEADING, ""))
    name = re.match(r"\w+(?=[:=]| must)", message)
    if name is not None and name[0] in options:
        return f"{options[name[0]]}{message[name.end() :]}"
    return message


def _describe_loss(error: WorkerDiedError | StepTimeoutError) -> str:
    """Return what happened, and where: without advice for programs, and without the stack."""
    what, _, where = str(error).partition("\n")
    if isinstance(error.args[0], Message) and isinstance(error.args[0].fields[0], Message):
        what = without_advice(error)
    position = where.partition("\n")[0].removesuffix(":")
    return f"{what}; {position}" if position else what


def describe_place(text: str) -> str:
    """Return in one line what happened, where, and the innermost line of code of the user's own."""
    what, _, where = text.partition("\n")
    position = where.partition("\n")[0].removesuffix(":")
    return "; ".join(filter(None, [what, position, _innermost(f"{where}\n")]))


def interrupted_line(error: BaseException) -> str:
    """Return the line of the user's own code that this process was running, or nothing."""
    return _innermost(_own_frames(error, None))


def _innermost(text: str) -> str:
    """Return file, line and function of the last frame, if possible of the user's own code."""
    frames = [frame[0] for frame in _FRAME.finditer(text)]
    own = [frame for frame in frames if not frame.startswith(_OF_LIBRARIES)] or frames
    return own[-1].strip().partition("\n")[0].removeprefix("File ") if own else ""


def _lacks_library(error: BaseException) -> bool:
    """Whether Gymnasium says which library an environment needs: its message is complete."""
    gymnasium = sys.modules.get("gymnasium.error")
    return gymnasium is not None and isinstance(error, gymnasium.DependencyNotInstalled)


def _own_frames(error: BaseException, failure: Failure | None) -> str:
    """Return the lines of code that vecspaces called: the environment's or the policy's."""
    text = "".join(format_exception(error)) if failure is None else failure.text
    for section in reversed(text.split(_HEADING)[1:]):
        own: list[str] = []
        for frame in _FRAME.finditer(section):
            file = frame[1]
            if file.startswith("<frozen") or any(part in file for part in _BETWEEN):
                continue
            if file.startswith(_PACKAGE):
                own.clear()
            else:
                own.append(frame[0])
        if failure is None:
            own = [frame for frame in own if not frame.startswith(_OF_LIBRARIES)]
        if own:
            return "".join(own[-_MOST_FRAMES:])
    return ""
