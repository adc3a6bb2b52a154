"""Options of several commands: each is described once, and converted to arguments."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from vecspaces.make import Factory, find_factory, find_parallel
from vecspaces.vector import RayVectorEnv, ThreadVectorEnv
from vecspaces.vector.options import AgentLayout
from vecspaces.wrappers.record_video import PICTURES

STANDARD_OUTPUT = Path("-")
#: The default of every command that makes a batch of environments.
NUM_ENVS = 64


def check_file(
    *suffixes: str, or_standard_output: bool = False
) -> Callable[[Path | None], Path | None]:
    """Return a callback that refuses a file that cannot be written, before the work begins."""

    def check(file: Path | None) -> Path | None:
        if file is None or (or_standard_output and file == STANDARD_OUTPUT):
            return file
        expected = ""
        if file == STANDARD_OUTPUT:
            raise typer.BadParameter(f"expected a file, found {file}, which --json alone takes")
        if file.is_dir() or not os.path.isdir(os.path.dirname(os.path.realpath(file))):
            expected = "file in a folder that exists"
        elif suffixes and file.suffix.lower() not in suffixes:
            expected = f"name ending in {', '.join(suffixes[:-1])} or {suffixes[-1]}"
        elif not os.access(file if file.exists() else file.parent, os.W_OK):
            expected = "file that can be written"
        if expected:
            raise typer.BadParameter(f"expected a {expected}, found {file}")
        return file

    return check


def parse_env_args(texts: list[str] | None) -> dict[str, Any]:
    """Return the arguments of the environment.

    Example:
        >>> parse_env_args(["gravity=9.81", "size=(2, 3)", "name=moon"])
        {'gravity': 9.81, 'size': (2, 3), 'name': 'moon'}
    """
    arguments: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--env-arg: expected KEY=VALUE, with a name as KEY, found {text!r}")
        if key in arguments:
            raise ValueError(f"--env-arg: expected each KEY once, found {key!r} twice")
        arguments[key] = value
        # TypeError: a literal that cannot be evaluated, such as a dict with a list as a key.
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            arguments[key] = ast.literal_eval(value)
    return arguments


def option(help: str, default: str | None = None, *names: str, **rules: Any) -> Any:
    """Describe an option; `default` is how its default is shown, if it is None."""
    shown: Any = True if default is None else default
    return typer.Option(*names, help=help, show_default=shown, **rules)


_ENV = "A Gymnasium id, or module:factory; the module may be in this folder."
_AGENTS = "For parallel environments of PettingZoo: rows or Dicts by agent."
_ENV_ARG = "An argument: a Python literal, otherwise a string. May be given several times."
_BACKEND = (
    "What runs the environments. async: worker processes; sync: this process; thread: threads of "
    "it; ray: actors of a Ray cluster."
)
_TIMEOUT = "The longest time that a reset or step may take."
_START = "How workers start: fork, spawn or forkserver."
_RECORD = "Record a video to this file: .gif or .mp4."
_JSON = "Write the result as JSON; - prints it."
Env: TypeAlias = Annotated[str, typer.Argument(metavar="ENV", help=_ENV)]
Agents: TypeAlias = Annotated[AgentLayout | None, option(_AGENTS)]
EnvArg: TypeAlias = Annotated[
    list[str] | None, option(_ENV_ARG, None, "--env-arg", metavar="KEY=VALUE")
]
NumEnvs: TypeAlias = Annotated[int, option("Number of environments.", min=1)]
NumWorkers: TypeAlias = Annotated[
    int | None, option("Number of workers.", "one per usable core", min=1)
]
Seed: TypeAlias = Annotated[int | None, option("Seed of all episodes.", "fresh entropy", min=0)]
Backend: TypeAlias = Annotated[str, option(_BACKEND)]
StepTimeout: TypeAlias = Annotated[
    float | None, option(_TIMEOUT, "no bound", metavar="SECONDS", min=1e-3)
]
StartMethod: TypeAlias = Annotated[
    str | None, option(_START, "Python's own", "--start-method", "--context", metavar="METHOD")
]
Record: TypeAlias = Annotated[
    Path | None, option(_RECORD, metavar="FILE", callback=check_file(*PICTURES))
]
Json: TypeAlias = Annotated[
    Path | None,
    option(_JSON, None, "--json", metavar="FILE", callback=check_file(or_standard_output=True)),
]
Traceback: TypeAlias = Annotated[
    bool, option("Show the whole traceback of an error.", None, "--traceback")
]


def find_env(env: str, agents: AgentLayout | None = None, /, **arguments: Any) -> Factory:
    """Return the factory of ENV with these arguments; refuse arguments that it does not take."""
    prepare(env)
    factory = find_factory(env if agents is None else find_parallel(env))
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        hint = ": --env-arg gives arguments"
        if "unexpected keyword argument 'render_mode'" in str(error):
            hint = ": pictures need a factory that takes a render_mode"
        raise ValueError(
            f"env: expected a factory that takes ({shown}), found {env}: {error}{hint}"
        ) from None
    except ValueError:  # a callable in C, without a signature
        pass
    return partial(factory, **arguments) if arguments else factory


def vector_options(backend: str, **options: Any) -> dict[str, Any]:
    """Return the arguments that are not None; refuse those that the vector env lacks."""
    kind = {"ray": RayVectorEnv, "thread": ThreadVectorEnv}.get(backend)
    arguments = {name: value for name, value in options.items() if value is not None}
    for name in arguments:
        if kind is not None and name not in inspect.signature(kind).parameters:
            raise ValueError(f"{name}: expected --backend async, found {backend}")
    return arguments


def prepare(name: str | None) -> None:
    """Let renderers run without a display, and find `module:name` in the working folder.

    The folder is searched last, so that no file in it replaces an installed module.
    """
    if name is not None and ":" in name and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # or SDL prints errors without a display
