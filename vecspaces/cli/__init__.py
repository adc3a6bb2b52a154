"""The `vecspaces` command; this file alone runs without the extra `cli`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without the extra, print one line that names it."""
    try:
        from vecspaces.cli.app import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("rich", "typer"):
            raise
        print(
            f'vecspaces: the command line needs {missing}: pip install "vecspaces[cli]"',
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:  # imports take long enough to be interrupted
        print("vecspaces: interrupted", file=sys.stderr)
        sys.exit(130)
    app(prog_name="vecspaces")
