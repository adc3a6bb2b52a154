"""What the commands share: their options, their output, their progress bar."""

from __future__ import annotations

import inspect
import json
import os
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from vecspaces.make import find_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from vecspaces.make import Factory

_STANDARD_OUTPUT = Path("-")
_PICTURES = (".gif", ".mp4")
# What matplotlib writes.
_PLOTS = (".eps", ".jpg", ".jpeg", ".pdf", ".pgf", ".png", ".ps", ".svg", ".svgz", ".tif", ".webp")


def check_file(file: Path | None) -> Path | None:
    """Return a file to write, refused before the work if it could not be written after it."""
    return None if file is None else _check(file)


def check_picture(file: Path | None) -> Path | None:
    """Check a file for `RecordVideo`, as `check_file` does."""
    return None if file is None else _check(file, _PICTURES)


def check_plot(file: Path | None) -> Path | None:
    """Check a file for a plot, as `check_file` does."""
    return None if file is None else _check(file, _PLOTS)


def _check(file: Path, suffixes: tuple[str, ...] = ()) -> Path:
    if file == _STANDARD_OUTPUT and not suffixes:
        return file
    if file.is_dir() or not file.parent.is_dir():
        raise typer.BadParameter(f"expected a file in a folder that exists, found {file}")
    if suffixes and file.suffix.lower() not in suffixes:
        endings = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise typer.BadParameter(f"expected a name ending in {endings}, found {file}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise typer.BadParameter(f"expected a file that can be written, found {file}")
    return file


EnvArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENV", help="A Gymnasium id, or module:factory; the module may be in this folder."
    ),
]
BackendOption = Annotated[
    str, typer.Option(help="async: worker processes; sync: this process; ray: actors of a cluster.")
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


def make_facts(title: str, facts: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and values."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in facts:
        table.add_row(name, value)
    return table


def write_json(file: Path | None, found: Any) -> None:
    """Write a result to the file of `--json`."""
    if file is not None:
        text = json.dumps(found, indent=2) + "\n"
        if file == _STANDARD_OUTPUT:
            typer.echo(text, nl=False)
        else:
            file.write_text(text, encoding="utf-8")


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
    console = Console(stderr=True)
    with Progress(
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
        auto_refresh=False,  # a thread that draws would take part in what is measured
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield partial(progress.update, progress.add_task("", total=total), refresh=True)


def announce(text: str) -> None:
    """Print on standard error what will be done and how long it will take."""
    typer.echo(text, err=True)


def find_env(env: str, **arguments: Any) -> Factory:
    """Return the factory that ENV names, which can be called with these arguments."""
    factory = find_factory(env)
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise ValueError(
            f"env: expected a factory that takes ({given}), found {env}: {error}"
        ) from None
    except ValueError:  # a callable in C, without a signature
        pass
    return factory


def prepare() -> None:
    """Let `module:factory` name a module of this folder, and renderers run without a display."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # or SDL complains where there is none
