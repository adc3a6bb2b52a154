"""What the commands share: their options, their output, their progress bar."""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from vecspaces.files import replacing
from vecspaces.make import find_factory
from vecspaces.vector import RayVectorEnv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from vecspaces.make import Factory

_STANDARD_OUTPUT = Path("-")
_PICTURES = (".gif", ".mp4")
# What matplotlib writes.
_PLOTS = (".eps", ".jpg", ".jpeg", ".pdf", ".pgf", ".png", ".ps", ".svg", ".svgz", ".tif", ".webp")


def check_file(file: Path | None) -> Path | None:
    """Return a file to write, refused before the work if it could not be written after it."""
    return None if file is None else _check(file)


def _check_json(file: Path | None) -> Path | None:
    """Check a file for `write_json`, which also prints."""
    return file if file == _STANDARD_OUTPUT else check_file(file)


def check_picture(file: Path | None) -> Path | None:
    """Check a file for `RecordVideo`, as `check_file` does."""
    return None if file is None else _check(file, _PICTURES)


def check_plot(file: Path | None) -> Path | None:
    """Check a file for a plot, as `check_file` does."""
    return None if file is None else _check(file, _PLOTS)


def _check(file: Path, suffixes: tuple[str, ...] = ()) -> Path:
    if file == _STANDARD_OUTPUT:
        raise typer.BadParameter(f"expected a file, found {file}, which --json alone takes")
    try:
        target = os.path.realpath(file)
    except FileNotFoundError:  # the working folder was deleted
        target = ""
    # What still is a link leads to itself.
    if file.is_dir() or not os.path.isdir(os.path.dirname(target)) or os.path.islink(target):
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
EnvArgOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env-arg",
        metavar="KEY=VALUE",
        help="An argument of the environment: a Python literal, else a string. Repeatable.",
    ),
]
BackendOption = Annotated[
    str, typer.Option(help="async: worker processes; sync: this process; ray: actors of a cluster.")
]
NumEnvsOption = Annotated[int, typer.Option(min=1, help="Number of environments.")]
AutoresetModeOption = Annotated[
    Literal["NextStep", "SameStep"] | None,
    typer.Option(metavar="MODE", help="NextStep or SameStep.", show_default="NextStep"),
]
StepTimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=1e-3,
        help="The longest that a reset or step may take.",
        show_default="no bound",
    ),
]
StartMethodOption = Annotated[
    str | None,
    typer.Option(
        "--start-method",
        "--context",
        metavar="METHOD",
        help="How workers start: fork, spawn or forkserver.",
        show_default="Python's own",
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        callback=_check_json,
        help="Write the result as JSON; - prints it.",
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


def write_json(file: Path | None, found: Any, indent: int | None = 2) -> None:
    """Write a result to the file of `--json`."""
    if file is not None:
        text = json.dumps(found, indent=indent) + "\n"
        if file == _STANDARD_OUTPUT:
            typer.echo(text, nl=False)
        else:
            with replacing(file) as new:
                new.write_text(text, encoding="utf-8")


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


def parse_env_args(given: Sequence[str] | None) -> dict[str, Any]:
    """Return the arguments of an environment that `--env-arg` gave.

    Example:
        >>> parse_env_args(["gravity=9.81", "size=(2, 3)", "name=moon"])
        {'gravity': 9.81, 'size': (2, 3), 'name': 'moon'}
    """
    found: dict[str, Any] = {}
    for one in given or ():
        key, equals, text = one.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--env-arg: expected KEY=VALUE, with a name as KEY, found {one!r}")
        if key in found:
            raise ValueError(f"--env-arg: expected each KEY once, found {key!r} twice")
        found[key] = text
        # No literal, or one that cannot be made, such as a dict with a list as a key.
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            found[key] = ast.literal_eval(text)
    return found


def find_env(env: str, /, **arguments: Any) -> Factory:
    """Return the factory that ENV names, with these arguments, which it must take."""
    factory = find_factory(env)
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        hint = ": --env-arg gives arguments"
        if "render_mode" in arguments:
            hint = ": pictures need a factory that takes a render_mode"
        raise ValueError(
            f"env: expected a factory that takes ({given}), found {env}: {error}{hint}"
        ) from None
    except ValueError:  # a callable in C, without a signature
        pass
    return partial(factory, **arguments) if arguments else factory


def vector_options(backend: str, **options: Any) -> dict[str, Any]:
    """Return the arguments of the vector env that were given; workers of Ray lack some."""
    given = {name: value for name, value in options.items() if value is not None}
    if backend == "ray":
        for name in given:
            if name not in inspect.signature(RayVectorEnv).parameters:
                raise ValueError(f"{name}: expected --backend async, found {backend}")
    return given


def prepare(*names: str | None) -> None:
    """Let renderers run without a display, and `module:factory` name a module of this folder.

    The folder comes last, so that no file in it takes the place of an installed module.
    """
    if any(":" in name for name in names if name is not None):
        with suppress(FileNotFoundError):  # the folder was deleted
            here = os.getcwd()
            if here not in sys.path:
                sys.path.append(here)
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # or SDL complains where there is none
