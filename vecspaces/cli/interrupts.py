"""Ctrl-C in every command: its work ends, what was found so far is shown; the exit code is 130."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from rich.console import Console

EXIT_CODE = 130


class Work:
    """A block that Ctrl-C ends early, after which a command shows what it found so far.

    Attributes:
        finished: Whether the block came to its end.
    """

    finished = False

    def __enter__(self) -> Work:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self.finished = error is None
        return isinstance(error, KeyboardInterrupt)

    def conclude(self, console: Console) -> None:
        """Where it did not finish, mark what was shown, and end the command."""
        if not self.finished:
            console.print("interrupted: this is what was found so far", style="yellow")
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
            words = ": ".join(["vecspaces: interrupted", *map(str, interruption.args)])
            typer.echo(words, err=True)
            raise typer.Exit(EXIT_CODE) from None
        finally:
            if replaced:
                signal.signal(signal.SIGINT, before)
