"""Ctrl-C in every command: a line, the environments that it waited for, and exit code 130."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

import typer

from vecspaces.cli.errors import user_frames
from vecspaces.vector.exchange.failures import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_CODE = 130
#: After a wait of this length, an environment may hang.
LONG_SECONDS = 1.0


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
            raise typer.Exit(EXIT_CODE) from None
