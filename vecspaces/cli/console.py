"""What the commands share: their options, where they print, and how they refuse bad input."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from vecspaces.errors import VecspacesError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Errors whose message is complete; of others (KeyError: 'gravity') the type is half of it.
_SELF_EXPLAINING = (AttributeError, ImportError, TypeError, ValueError, VecspacesError)
_STANDARD_OUTPUT = Path("-")


def check_file(file: Path | None) -> Path | None:
    """Return a file to write, refused before the work if it could not be written after it."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise typer.BadParameter(f"expected a file in a folder that exists, found {file}")
    return file


EnvArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENV", help="A Gymnasium id, or module:factory; the module may lie in this folder."
    ),
]
NumEnvsOption = Annotated[int, typer.Option(min=1, help="Number of environments.")]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", callback=check_file, help="Write the result as JSON; - prints it."
    ),
]
TracebackOption = Annotated[
    bool, typer.Option("--traceback", help="Show the traceback of an error, not only its message.")
]


def output(json_file: Path | None = None) -> Console:
    """Return the console for results: standard output, or standard error where JSON is printed."""
    return Console(highlight=False, stderr=json_file == _STANDARD_OUTPUT)


def write_json(file: Path | None, found: Any) -> None:
    """Write a result where `--json` wants it."""
    if file is not None:
        text = json.dumps(found, indent=2) + "\n"
        if file == _STANDARD_OUTPUT:
            typer.echo(text, nl=False)
        else:
            file.write_text(text, encoding="utf-8")


def refuse(message: str) -> NoReturn:
    """Print in one line what is wrong with the input, and end with exit code 2."""
    typer.echo(f"vecspaces: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


@contextmanager
def refusing(*, traceback: bool) -> Iterator[None]:
    """Refuse the input that an exception of the block comes from, unless `traceback` is set."""
    try:
        yield
    except Exception as error:  # an environment's module and constructor may raise anything
        if traceback:
            raise
        clear = isinstance(error, _SELF_EXPLAINING) and str(error)
        message = str(error) if clear else f"{type(error).__name__}: {error}"
        refuse("; ".join([message, *getattr(error, "__notes__", [])]))


def parse_numbers(option: str, text: str, least: int, most: int | None = None) -> list[int]:
    """Return the numbers of an option such as `1,8,64`; raise ValueError for anything else."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < least or (most is not None and max(numbers) > most):
        bounds = f"from {least} on" if most is None else f"from {least} to {most}"
        raise ValueError(f"{option}: expected numbers with commas, {bounds}; found {text!r}")
    return numbers


@contextmanager
def progress_bar(total: float | None = None) -> Iterator[Callable[..., None]]:
    """Show how far a command is; yields `rich.progress.Progress.update` of the one task."""
    with Progress(
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        auto_refresh=False,  # a thread that draws would take part in what is measured
        transient=True,
    ) as progress:
        yield partial(progress.update, progress.add_task("", total=total), refresh=True)


def import_from_here() -> None:
    """Let `module:factory` name a module of the current folder, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
