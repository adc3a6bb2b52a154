"""Errors of commands: exit code 1 or 2, one line on standard error, and the failing code.

Ctrl-C: a line, the environments that the command waited for, and exit code 130.
"""

from __future__ import annotations

import contextlib
import re
import sys
import sysconfig
import warnings
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
from vecspaces.vector.exchange.failures import Failure, Message, name_envs, without_advice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Errors whose message is complete without the type; "KeyError: 'gravity'" needs it.
_SELF_EXPLAINING = (AttributeError, ImportError, TypeError, ValueError, VecspacesError)
# Failures, which are not caused by the input: a policy returned the actions.
_FAILED = (InvalidActionError, StepTimeoutError, WorkerError)
_PACKAGE = str(Path(__file__).parents[1])
# Frames of libraries: what a library raises about an argument needs no code beside the message.
_OF_LIBRARIES = tuple(
    f'  File "{sysconfig.get_path(name)}' for name in ("stdlib", "purelib", "platlib")
)
# Frames that only call the environment, or import it.
_BETWEEN = re.compile(
    r"^<frozen|gymnasium[/\\](wrappers|core\.py|envs[/\\]registration)|importlib[/\\]__init__\.py"
)
_FRAME = re.compile(r'^  File "(.+?)", line \d+, in .+\n(?:    .*\n)*', re.MULTILINE)
_MOST_FRAMES = 20  # an endless recursion has a thousand
_HEADING = "Traceback (most recent call last):\n"
_INTERRUPTED = 130
#: After a wait of this length, an environment may hang.
LONG_SECONDS = 1.0


def refuse(message: str) -> NoReturn:
    """Print one line about wrong input, and end with exit code 2."""
    typer.echo(f"vecspaces: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


def report(error: Exception | SystemExit, options: Mapping[str, str]) -> NoReturn:
    """Print an error, and end with an exit code: 2 for wrong input, 1 for a failure.

    The failing lines of code of an environment or a policy follow. `options` maps the names of
    arguments, with which a message may begin, to the names of options.
    """
    gymnasium = sys.modules.get("gymnasium.error")
    # Gymnasium's error for a missing library has a complete message.
    is_missing = gymnasium is not None and isinstance(error, gymnasium.DependencyNotInstalled)
    is_complete = is_missing or (isinstance(error, _SELF_EXPLAINING) and str(error))
    message = str(error) if is_complete else f"{type(error).__name__}: {error}"
    failure = error.__cause__ if isinstance(error.__cause__, Failure) else None
    frames = "" if is_missing else user_frames(error, failure)
    stack = getattr(error, "stack", None)
    if not frames and stack:
        frames = f"{stack}\n"
    if failure is not None and not isinstance(error, VecspacesError):
        kind = "" if is_missing else f"{type(error).__name__}: "
        did = "could not be built" if failure.command == "build" else f"failed in {failure.command}"
        message = f"{name_envs(failure.env_ids)} {did}: {kind}{error}"
    elif failure is None:
        message = _describe(error, message, options)
    message = "; ".join([message, *getattr(error, "__notes__", [])])
    typer.echo(f"vecspaces: {' '.join(message.split())}", err=True)
    broke = failure is not None and not is_missing
    if frames or broke:
        typer.echo(f"{frames}(--traceback shows the rest)", err=True)
    if not isinstance(error, (ImportError, AttributeError)):
        broke |= bool(frames)
    raise typer.Exit(1 if broke or isinstance(error, _FAILED) else 2) from None


def _describe(error: BaseException, message: str, options: Mapping[str, str]) -> str:
    """Return the message of an error, with options in place of arguments."""
    if isinstance(error, (WorkerDiedError, StepTimeoutError)):
        what, _, rest = str(error).partition("\n")
        if isinstance(error.args[0], Message) and isinstance(error.args[0].fields[0], Message):
            what = str(without_advice(error))  # which is for programs
        position = rest.partition("\n")[0].removesuffix(":")
        return f"{what}; {position}" if position else what
    if isinstance(error, InvalidActionError):
        return f"the policy returned invalid {message}"
    if isinstance(error, WorkerError):  # the message contains a traceback
        return _FRAME.sub("", message.replace(_HEADING, ""))
    name = re.match(r"\w+(?=[:=]| must)", message)
    if name is not None and name[0] in options:
        return f"{options[name[0]]}{message[name.end() :]}"
    return message


def user_frames(error: BaseException, failure: Failure | None) -> str:
    """Return the frames below the last frame of vecspaces: those of the environment or policy."""
    text = "".join(format_exception(error)) if failure is None else failure.text
    for section in reversed(text.split(_HEADING)[1:]):
        frames: list[str] = []
        for frame in _FRAME.finditer(section):
            file = frame[1]
            if _BETWEEN.search(file):
                continue
            if file.startswith(_PACKAGE):
                frames.clear()
            else:
                frames.append(frame[0])
        if failure is None:
            frames = [frame for frame in frames if not frame.startswith(_OF_LIBRARIES)]
        if frames:
            return "".join(frames[-_MOST_FRAMES:])
    return ""


def _waited(interruption: KeyboardInterrupt) -> str:
    """Return the environments for which the command was waiting long, with their stacks.

    If the command was not waiting, an environment of this process may hang: return its code.
    """
    notes = [note for note in getattr(interruption, "__notes__", ()) if isinstance(note, Message)]
    if not notes:
        return user_frames(interruption, None).rstrip()
    return "\n".join(note for note in notes if float(note.fields[1]) >= LONG_SECONDS)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Let Ctrl-C end a command with one line, and without warnings about interrupted work."""
    with warnings.catch_warnings():
        # After Ctrl-C, workers have half a second to close.
        warnings.filterwarnings("ignore", r"(?s).* did not close within 0\.5 s", RuntimeWarning)
        try:
            yield
        except KeyboardInterrupt as interruption:
            text = ": ".join(["vecspaces: interrupted", *map(str, interruption.args)])
            typer.echo(f"{text}\n{_waited(interruption)}".rstrip(), err=True)
            raise typer.Exit(_INTERRUPTED) from None
