"""The app: which commands there are, and how they refuse a value of an option."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from vecspaces import __version__
from vecspaces.cli.bench import bench
from vecspaces.cli.check import check
from vecspaces.cli.describe import describe
from vecspaces.cli.errors import refuse, report
from vecspaces.cli.evaluate import evaluate
from vecspaces.cli.interrupts import reported
from vecspaces.cli.profile import profile
from vecspaces.cli.rollout import rollout
from vecspaces.cli.tune import tune


class _OneLineErrors(TyperGroup):
    """Shows a value that an option does not take in one line, as the commands show all errors."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with reported():
                return super().invoke(ctx)
        except typer.BadParameter as error:
            refuse(error.format_message())


class _Command(TyperCommand):
    """Reports what goes wrong in a few lines, or with `--traceback` in all of Python's."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:
            if ctx.params["traceback"]:
                raise
            names = {str(one.name): one for one in self.params}
            report(
                error,
                {
                    name: one.opts[0] if one.param_type_name == "option" else name.upper()
                    for name, one in names.items()
                },
            )


app = typer.Typer(
    cls=_OneLineErrors,
    help="Vectorised reinforcement-learning environments in worker processes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (rollout, evaluate, describe, check, bench, tune, profile):
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
