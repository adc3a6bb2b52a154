"""The command `vecspaces`: its subcommands, and how usage errors are printed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from vecspaces import __version__
from vecspaces.cli.bench import bench
from vecspaces.cli.check import check
from vecspaces.cli.errors import refuse, report, reported
from vecspaces.cli.evaluate import evaluate
from vecspaces.cli.rollout import rollout

if TYPE_CHECKING:
    from collections.abc import Iterator


# Newer versions of typer contain a copy of click.
_UsageError: Any = typer.BadParameter.__bases__[0]


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Print a usage error in one line, as commands print all errors."""
    try:
        yield
    except _UsageError as error:
        param = getattr(error, "param", None)
        if param is None:
            refuse(error.format_message())
        refuse(f"{_as_written(param)}: {error.message or 'expected a value, found none'}")


def _as_written(param: Any) -> str:
    """Return how a parameter is written on the command line."""
    return str(param.opts[0] if param.param_type_name == "option" else param.name.upper())


class _CommandGroup(TyperGroup):
    """Prints usage errors of all commands in one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _refused():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _refused(), reported():
            return super().invoke(ctx)


class _Command(TyperCommand):
    """Prints an error in a few lines, or with `--traceback` as Python does."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except (Exception, SystemExit) as error:  # an environment's module may call exit()
            # rich ends the command if the reader of a pipe, such as `head`, has ended.
            if ctx.params["traceback"] or isinstance(error.__context__, BrokenPipeError):
                raise
            options = {str(param.name): _as_written(param) for param in self.params}
            # The file of --options has the argument `options`.
            report(error, {name.strip("-"): name for name in options.values()} | options)


app = typer.Typer(
    cls=_CommandGroup,
    rich_markup_mode=None,  # with rich, tables truncate the names of options
    pretty_exceptions_enable=False,
)
for command in (rollout, evaluate, check, bench):
    app.command(cls=_Command)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vecspaces {__version__}")
        raise typer.Exit()


@app.callback()
def common(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Vectorised reinforcement-learning environments in worker processes."""
