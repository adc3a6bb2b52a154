"""Every cell of the table of docs/features.md is tried: it works, or is refused as the page says.

`tests/features.py` says how a feature gets its row.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.crosses import ordinarily
from tests.features import COLUMNS, FEATURES, outcome

PAGE = (Path(__file__).parents[2] / "docs" / "features.md").read_text(encoding="utf-8")


def table() -> dict[tuple[str, str], str]:
    """The cells of the page, by row and column."""
    (text,) = re.findall(r"^(?:\|.*\n)+", PAGE, re.MULTILINE)
    lines = [line.strip("|").split("|") for line in text.splitlines()]
    (_, *columns), _, *rows = [[cell.strip() for cell in line] for line in lines]
    return {
        (name, column): cell
        for name, *cells in rows
        for column, cell in zip(columns, cells, strict=True)
    }


def sentences() -> dict[str, tuple[str, str]]:
    """The errors below the table, by their number: the type, and a part of the text."""
    found = re.findall(r'^(\d+)\. `(\w+)`: "([^"]+)"', PAGE, re.MULTILINE)
    return {number: (kind, " ".join(text.split())) for number, kind, text in found}


CELLS = table()
SENTENCES = sentences()


def check_cell(name: str, column: str, folder: Path) -> None:
    """Try a cell, and compare what happens with the page."""
    cell = CELLS[name, column]
    found, error = outcome(name, COLUMNS[column], folder)
    form = re.fullmatch(r"([\w ]+?|—)(?: \((\d+)\))?", cell)
    assert form is not None, cell
    expected, number = form.groups()
    assert found == expected, f"{found}: {error!r}"
    assert (number is None) == (error is None)
    if number is not None:
        kind, text = SENTENCES[number]
        assert type(error).__name__ == kind and text in str(error)


def test_the_page_has_a_row_for_each_feature_and_uses_each_sentence() -> None:
    rows = list(dict.fromkeys(name for name, _ in CELLS))
    assert rows == list(FEATURES)
    assert list(dict.fromkeys(column for _, column in CELLS)) == list(COLUMNS)
    used = {found for cell in CELLS.values() for found in re.findall(r"\((\d+)\)", cell)}
    assert used == SENTENCES.keys()


def is_ordinary(name: str, column: str) -> bool:
    """Each row is tried with Sync and Async, and with one or two of the other columns."""
    others = list(COLUMNS).index(column) + list(FEATURES).index(name)
    return column in ("Sync", "Async") or others % 4 == 0


@pytest.mark.parametrize(
    ("name", "column"),
    ordinarily(is_ordinary, [cell for cell in CELLS if cell[1] != "Ray"]),
)
def test_a_cell_is_what_the_page_says(name: str, column: str, tmp_path: Path) -> None:
    check_cell(name, column, tmp_path)
