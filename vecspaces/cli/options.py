"""Options of several commands: each is described once, and converted to arguments."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from vecspaces.make import Factory, find_factory, find_parallel
from vecspaces.vector import RayVectorEnv, ThreadVectorEnv
from vecspaces.vector.agents import AgentLayout
from vecspaces.wrappers.record_video import PICTURES

STANDARD_OUTPUT = Path("-")
# What matplotlib writes.
PLOTS = (".eps", ".jpg", ".jpeg", ".pdf", ".pgf", ".png", ".ps", ".svg", ".svgz", ".tif", ".webp")


def check_file(
    *suffixes: str, or_standard_output: bool = False
) -> Callable[[Path | None], Path | None]:
    """Return a callback that refuses a file that cannot be written, before the work begins."""

    def check(file: Path | None) -> Path | None:
        if file is None or (or_standard_output and file == STANDARD_OUTPUT):
            return file
        if file == STANDARD_OUTPUT:
            raise typer.BadParameter(f"expected a file, found {file}, which --json alone takes")
        if file.is_dir() or not os.path.isdir(os.path.dirname(os.path.realpath(file))):
            raise typer.BadParameter(f"expected a file in a folder that exists, found {file}")
        if suffixes and file.suffix.lower() not in suffixes:
            endings = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
            raise typer.BadParameter(f"expected a name ending in {endings}, found {file}")
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise typer.BadParameter(f"expected a file that can be written, found {file}")
        return file

    return check


Env: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ENV", help="A Gymnasium id, or module:factory; the module may be in this folder."
    ),
]
Agents: TypeAlias = Annotated[
    AgentLayout | None,
    typer.Option(help="For parallel environments of PettingZoo: rows or Dicts by agent."),
]
EnvArg: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--env-arg",
        metavar="KEY=VALUE",
        help="An argument of the environment: a Python literal, otherwise a string. "
        "May be given several times.",
    ),
]
NumEnvs: TypeAlias = Annotated[int, typer.Option(min=1, help="Number of environments.")]
# The default of every command that makes a batch of environments.
NUM_ENVS = 64
NumWorkers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of workers.",
        show_default="one per usable core",
    ),
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, help="Seed of all episodes.", show_default="fresh entropy"),
]
Backend: TypeAlias = Annotated[
    str,
    typer.Option(
        help="What runs the environments. async: worker processes; sync: this process; "
        "thread: threads of it; ray: actors of a Ray cluster."
    ),
]
AutoresetMode: TypeAlias = Annotated[
    Literal["NextStep", "SameStep"] | None,
    typer.Option(metavar="MODE", help="NextStep or SameStep.", show_default="NextStep"),
]
StepTimeout: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=1e-3,
        help="The longest time that a reset or step may take.",
        show_default="no bound",
    ),
]
StartMethod: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--start-method",
        "--context",
        metavar="METHOD",
        help="How workers start: fork, spawn or forkserver.",
        show_default="Python's own",
    ),
]
Record: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=check_file(*PICTURES),
        help="Record a video to this file: .gif or .mp4.",
    ),
]
Json: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        callback=check_file(or_standard_output=True),
        help="Write the result as JSON; - prints it.",
    ),
]
Traceback: TypeAlias = Annotated[
    bool, typer.Option("--traceback", help="Show the whole traceback of an error.")
]


def parse_numbers(option: str, text: str, most: int) -> list[int]:
    """Return the numbers of an option such as `0,2`; raise ValueError for anything else."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or max(numbers) > most:
        raise ValueError(
            f"{option}: expected numbers with commas, from 0 to {most}; found {text!r}"
        )
    return numbers


def parse_env_args(given: Sequence[str] | None) -> dict[str, Any]:
    """Return the arguments of the environment.

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
        # TypeError: a literal that cannot be evaluated, such as a dict with a list as a key.
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            found[key] = ast.literal_eval(text)
    return found


def find_env(env: str, agents: AgentLayout | None = None, /, **arguments: Any) -> Factory:
    """Return the factory of ENV with these arguments; refuse arguments that it does not take."""
    prepare(env)
    factory = find_factory(env if agents is None else find_parallel(env))
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        hint = ": --env-arg gives arguments"
        if "unexpected keyword argument 'render_mode'" in str(error):
            hint = ": pictures need a factory that takes a render_mode"
        raise ValueError(
            f"env: expected a factory that takes ({given}), found {env}: {error}{hint}"
        ) from None
    except ValueError:  # a callable in C, without a signature
        pass
    return partial(factory, **arguments) if arguments else factory


def vector_options(backend: str, **options: Any) -> dict[str, Any]:
    """Return the arguments of the vector env that were given; refuse those that it lacks."""
    given = {name: value for name, value in options.items() if value is not None}
    if backend in ("ray", "thread"):
        kind = RayVectorEnv if backend == "ray" else ThreadVectorEnv
        for name in given:
            if name not in inspect.signature(kind).parameters:
                raise ValueError(f"{name}: expected --backend async, found {backend}")
    return given


def prepare(name: str | None) -> None:
    """Let renderers run without a display, and find `module:name` in the working folder.

    The folder is searched last, so that no file in it replaces an installed module.
    """
    if name is not None and ":" in name and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # or SDL prints errors without a display
