"""The app: which commands there are."""

from __future__ import annotations

import typer

from vecspaces import __version__
from vecspaces.cli.bench import bench
from vecspaces.cli.describe import describe
from vecspaces.cli.profile import profile
from vecspaces.cli.rollout import rollout
from vecspaces.cli.tune import tune

app = typer.Typer(
    help="Vectorised reinforcement-learning environments in worker processes.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(rollout)
app.command()(describe)
app.command()(bench)
app.command()(tune)
app.command()(profile)


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
