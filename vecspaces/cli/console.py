"""What the commands share: where they print, and how they refuse bad input."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from vecspaces.errors import VecspacesError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Errors whose message tells it all; of others (KeyError: 'gravity') the type is half of it.
_SELF_EXPLAINING = (AttributeError, ImportError, TypeError, ValueError, VecspacesError)

EnvArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENV", help="A Gymnasium id, or module:factory; the module may lie in this folder."
    ),
]
NumEnvsOption = Annotated[int, typer.Option(help="How many environments.")]
TracebackOption = Annotated[
    bool, typer.Option("--traceback", help="Show where an error comes from, not its message alone.")
]


def output() -> Console:
    """The console for results: standard output as it is now."""
    return Console(highlight=False)


def refuse(message: str) -> NoReturn:
    """Say in one line what is wrong with the input, and end with exit code 2.

    Args:
        message: What was expected, what was found, and what to do.

    Raises:
        typer.Exit: Always.
    """
    typer.echo(f"vecspaces: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


@contextmanager
def refusing(*, traceback: bool) -> Iterator[None]:
    """Turn every exception of the block into `refuse`: for what bad input may break.

    Args:
        traceback: Let the exception through instead.
    """
    try:
        yield
    except Exception as error:  # an environment's module and constructor may raise anything
        if traceback:
            raise
        clear = isinstance(error, _SELF_EXPLAINING) and str(error)
        refuse(str(error) if clear else f"{type(error).__name__}: {error}")


def import_from_here() -> None:
    """Let `module:factory` name a module of the current folder, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
