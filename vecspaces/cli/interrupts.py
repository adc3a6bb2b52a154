"""Ctrl-C in every command: its work ends, what was found so far is shown; the exit code is 130."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from typing import TYPE_CHECKING, NoReturn

import typer

from vecspaces.cli.errors import describe_place, interrupted_line
from vecspaces.vector.exchange.failures import Message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from rich.console import Console

EXIT_CODE = 130


# After so long a wait, Ctrl-C may be meant for an environment that hangs.
_LONG_SECONDS = 1.0


def awaited(interruption: KeyboardInterrupt) -> Iterator[str]:
    """Say which environment the command was waiting for long, and where that one is.

    If it was waiting for none, an environment of this process may hang: its line is shown.
    """
    notes = [note for note in getattr(interruption, "__notes__", ()) if isinstance(note, Message)]
    for note in notes:
        if float(note.fields[1]) >= _LONG_SECONDS:
            yield describe_place(note)
    line = "" if notes else interrupted_line(interruption)
    if line:
        yield line


class Work:
    """A block that Ctrl-C ends early, after which a command shows what it found so far.

    Attributes:
        finished: Whether the block came to its end.
    """

    finished = False
    _awaited = ""

    def __enter__(self) -> Work:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self.finished = error is None
        if not isinstance(error, KeyboardInterrupt):
            return False
        self._awaited = "".join(f"; {what}" for what in awaited(error))
        return True

    def conclude(self, console: Console) -> None:
        """Where it did not finish, mark what was shown, and end the command."""
        if not self.finished:
            said = f"interrupted: this is what was found so far{self._awaited}"
            console.print(said, style="yellow", markup=False, soft_wrap=True)
            raise typer.Exit(EXIT_CODE)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Let Ctrl-C end a command in one line; what it interrupts is ended without warnings."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        warnings.simplefilter("ignore", RuntimeWarning)  # that something had to be ended by force
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    replaced = is_main and before is signal.default_int_handler  # it may be ignored, as by nohup
    with warnings.catch_warnings():
        try:
            if replaced:
                signal.signal(signal.SIGINT, interrupt)
            yield
        except KeyboardInterrupt as interruption:
            said = "; ".join([*map(str, interruption.args), *awaited(interruption)])
            typer.echo(f"vecspaces: interrupted{said and ': '}{said}", err=True)
            raise typer.Exit(EXIT_CODE) from None
        finally:
            if replaced:
                signal.signal(signal.SIGINT, before)
