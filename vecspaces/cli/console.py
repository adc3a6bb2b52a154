"""How a command prints its result: tables, `--json`, and a progress bar."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from vecspaces.cli.options import STANDARD_OUTPUT
from vecspaces.files import replacing

_REFRESH_SECONDS = 0.2  # drawing takes 1 to 2 ms: less than 1 % of the time


def output(json_file: Path | None = None) -> Console:
    """Return the console for results: standard output, or standard error if JSON is printed."""
    return Console(highlight=False, stderr=json_file == STANDARD_OUTPUT)


def make_table(title: str, *columns: str, left: int = 1) -> Table:
    """Return a table whose first columns are aligned to the left, the others to the right."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    return table


def make_facts(title: str, facts: Iterable[tuple[str, Any]]) -> Table:
    """Return a table of names and values; numbers are formatted, and None is a dash."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in facts:
        form = {int: "{:,}", float: "{:,.2f}"}.get(type(value), "{}")
        shown = "-" if value is None else form.format(value)
        table.add_row(name.replace("_per_second", "/s").replace("_", " "), shown)
    return table


def write_json(file: Path | None, result: Any) -> None:
    """Write a result to the file of `--json`."""
    if file is not None:
        text = json.dumps(result, indent=2) + "\n"
        if file == STANDARD_OUTPUT:
            typer.echo(text, nl=False)
        else:
            with replacing(file) as new:
                new.write_text(text, encoding="utf-8")


#: Takes how much is completed, and a text.
Show: TypeAlias = Callable[[float, str], None]


@contextmanager
def progress_bar(total: float) -> Iterator[Show]:
    """Show the progress of a command; yields a function that draws at most five times a second."""
    width = shutil.get_terminal_size().columns - 1 if sys.stderr.isatty() else 0
    began = drawn = time.monotonic()

    def show(completed: float, text: str) -> None:
        nonlocal drawn
        now = time.monotonic()
        if width and now - drawn >= _REFRESH_SECONDS:
            drawn = now
            left = (now - began) * (total / completed - 1) if completed else 0.0
            line = f"{completed / total:4.0%}  {max(0.0, left):,.0f} s left  {text}"
            print(f"\r{line[:width]:{width}}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print(f"\r{'':{width}}\r" if width else "", end="", file=sys.stderr, flush=True)
