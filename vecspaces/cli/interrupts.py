"""Ctrl-C in every command: the work ends, its results so far are shown, the exit code is 130."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from vecspaces.cli.console import write_json
from vecspaces.cli.errors import describe_place, interrupted_line
from vecspaces.vector.exchange.failures import Message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from rich.console import Console

EXIT_CODE = 130
#: After a wait of this length, an environment may hang.
LONG_SECONDS = 1.0


def _find_hanging(interruption: KeyboardInterrupt) -> Iterator[str]:
    """Yield the environment for which the command was waiting long, and its line of code.

    If the command was not waiting, an environment of this process may hang: yield its line.
    """
    notes = [note for note in getattr(interruption, "__notes__", ()) if isinstance(note, Message)]
    for note in notes:
        if float(note.fields[1]) >= LONG_SECONDS:
            yield describe_place(note)
    line = "" if notes else interrupted_line(interruption)
    if line:
        yield line


class Work:
    """A block that Ctrl-C ends early, after which a command shows its results so far."""

    _finished = False
    _hanging = ""

    def __enter__(self) -> Work:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self._finished = error is None
        if not isinstance(error, KeyboardInterrupt):
            return False
        self._hanging = "".join(f"; {place}" for place in _find_hanging(error))
        return True

    def conclude(self, console: Console, json_file: Path | None, found: dict[str, Any]) -> None:
        """Write the results as JSON, and end the command if Ctrl-C ended the block."""
        write_json(json_file, {**found, "interrupted": not self._finished})
        if not self._finished:
            text = f"interrupted: this is what was found so far{self._hanging}"
            console.print(text, style="yellow", markup=False, soft_wrap=True)
            raise typer.Exit(EXIT_CODE)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Let Ctrl-C end a command with one line, and without warnings about interrupted work."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        warnings.simplefilter("ignore", RuntimeWarning)  # about workers that had to be killed
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    replaced = is_main and before is signal.default_int_handler  # for example, nohup ignores it
    with warnings.catch_warnings():
        try:
            if replaced:
                signal.signal(signal.SIGINT, interrupt)
            yield
        except KeyboardInterrupt as interruption:
            details = "; ".join([*map(str, interruption.args), *_find_hanging(interruption)])
            typer.echo(f"vecspaces: interrupted{details and ': '}{details}", err=True)
            raise typer.Exit(EXIT_CODE) from None
        finally:
            if replaced:
                signal.signal(signal.SIGINT, before)
