"""What the commands share: their options, where they print, and how they refuse bad input."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import sysconfig
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from vecspaces.errors import StepTimeoutError, VecspacesError, WorkerDiedError, WorkerError
from vecspaces.make import find_factory
from vecspaces.vector.exchange.failures import EnvIds, EnvironmentTraceback, without_advice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from vecspaces.make import Factory
    from vecspaces.vector.exchange.failures import Failure

# Errors whose message is complete; of others (KeyError: 'gravity') the type is half of it.
_SELF_EXPLAINING = (AttributeError, ImportError, TypeError, ValueError, VecspacesError)
_STANDARD_OUTPUT = Path("-")
#: Below what a command shows after Ctrl-C.
INTERRUPTED = "interrupted: this is what was found so far"
_PICTURES = (".gif", ".mp4")
# What matplotlib writes.
_PLOTS = (".eps", ".jpg", ".jpeg", ".pdf", ".pgf", ".png", ".ps", ".svg", ".svgz", ".tif", ".webp")
_PACKAGE = str(Path(__file__).parents[1])
# Libraries: of what they raise about an argument, the message is enough.
_OF_LIBRARIES = tuple(
    f'  File "{sysconfig.get_path(name)}' for name in ("stdlib", "purelib", "platlib")
)
_WRAPPERS = (os.path.join("gymnasium", "wrappers"), os.path.join("gymnasium", "core.py"))
_FRAME = re.compile(r'^  File "(.+?)", line \d+, in .+\n(?:    .*\n)*', re.MULTILINE)
_HEADING = "Traceback (most recent call last):\n"


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


def refuse(message: str) -> NoReturn:
    """Print in one line what is wrong with the input, and end with exit code 2."""
    typer.echo(f"vecspaces: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


def report(error: Exception, options: Mapping[str, str]) -> NoReturn:
    """Print what went wrong, and end with an exit code: 2 for bad input, 1 for what failed.

    An environment or a policy that fails is shown with its own lines of code. `options` holds how
    the arguments of the command are written there, for messages that begin with a name.
    """
    cause = error.__cause__
    failure = cause.failure if isinstance(cause, EnvironmentTraceback) else None
    frames = _own_frames(error, failure)
    message = "; ".join([_describe(error, failure, options), *getattr(error, "__notes__", [])])
    typer.echo(f"vecspaces: {' '.join(message.split())}", err=True)
    if frames or failure is not None:
        typer.echo(f"{frames}(--traceback shows the rest)", err=True)
    failed = isinstance(error, (WorkerError, StepTimeoutError)) or failure is not None
    imported = isinstance(error, (ImportError, AttributeError))
    raise typer.Exit(1 if failed or (frames and not imported) else 2) from None


def _describe(error: Exception, failure: Failure | None, options: Mapping[str, str]) -> str:
    """Return the message of an error, with options instead of the arguments behind them."""
    clear = isinstance(error, _SELF_EXPLAINING) and str(error)
    message = str(error) if clear else f"{type(error).__name__}: {error}"
    if failure is not None and isinstance(error, VecspacesError):
        return message  # it names the environment itself
    if failure is not None:
        what = (
            "could not be built" if failure.command == "build" else f"failed in {failure.command}"
        )
        return f"{EnvIds(failure.env_ids)} {what}: {type(error).__name__}: {error}"
    if isinstance(error, WorkerDiedError):
        return without_advice(error)
    name = re.match(r"\w+(?=[:=]| must)", message)
    if name is not None and name[0] in options:
        return f"{options[name[0]]}{message[name.end() :]}"
    return message


def _own_frames(error: Exception, failure: Failure | None) -> str:
    """Return the lines of code that vecspaces called: the environment's or the policy's."""
    text = "".join(format_exception(error)) if failure is None else failure.text
    for section in reversed(text.split(_HEADING)[1:]):
        own: list[str] = []
        for frame in _FRAME.finditer(section):
            file = frame[1]
            if file.startswith(_PACKAGE):
                own.clear()
            elif not file.startswith("<frozen") and not any(part in file for part in _WRAPPERS):
                own.append(frame[0])
        if failure is None:
            own = [frame for frame in own if not frame.startswith(_OF_LIBRARIES)]
        if own:
            return "".join(own)
    return ""


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
