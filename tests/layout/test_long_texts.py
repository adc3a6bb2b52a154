"""Texts of many characters: rows cost what their texts do, whatever length the space allows."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecspaces import spaces
from vecspaces.layout import Layout, Mismatch
from vecspaces.memory import Arena

LONG = spaces.Text(2**20, min_length=2, charset="xyz")
PAGES = 3 * 4096  # the size and the text may lie in two pages, and arrays begin anywhere


def rows_of(space: Any, n: int = 3, **arguments: Any) -> Any:
    layout = Layout.compile(space, n, **arguments)
    return layout.bind(np.zeros(layout.size, np.uint8), spill=True)[0]


@given(texts=st.lists(st.text(st.characters(codec=None), max_size=50), min_size=3, max_size=3))
def test_rows_give_texts_back(texts: list[str]) -> None:
    rows = rows_of(LONG)
    rows.write_batch(tuple(texts))
    assert list(rows.read()) == rows.reader(0, 3)() == [rows.item(row) for row in range(3)] == texts


@pytest.mark.parametrize("text", ["x" * 2**20, "\U0001f600" * 2**20, "\ud800" * 5000])
@pytest.mark.parametrize("capacity", [0, 100, 65536])
def test_rows_take_texts_of_every_size(text: str, capacity: int) -> None:
    rows = rows_of(LONG, variable_capacity=capacity)
    rows.write(1, text)
    assert rows.item(1) == text
    rows.write(1, "short")
    assert rows.item(1) == "short"
    spilled = rows.take_spilled(0, 3)
    assert bool(spilled) == (capacity == 0)  # as it is asked for


@pytest.mark.skipif(sys.platform != "linux", reason="reads the blocks of an anonymous file")
def test_rows_take_the_memory_of_their_texts() -> None:
    n = 64
    layout = Layout.compile(LONG, n, slots=2)
    arena = Arena.shared(layout.size)
    try:
        first, other = layout.bind(arena, spill=True)

        def used() -> int:
            assert arena.handle is not None
            return os.fstat(arena.handle).st_blocks * 512

        first.write_batch(("short",) * n)
        other.copy_rows(first, slice(None))
        assert other.read() == ("short",) * n
        assert used() <= 2 * n * PAGES
        before = used()
        first.write(3, "x" * 2**20)
        assert 2**20 <= used() - before <= 2**20 + PAGES
    finally:
        arena.close()


@pytest.mark.parametrize("text", ["", "\ud800", "é", "x" * 6])
def test_writer_and_reader_take_each_text_as_single_writes_do(text: str) -> None:
    rows = rows_of(spaces.Text(6), n=4)
    texts = ["ab", text, "cd", "ef"]
    rows.writer(0, 4)(texts)
    assert list(rows.reader(0, 4)()) == [rows.item(row) for row in range(4)] == texts
    with pytest.raises(Mismatch, match="at most 6 characters"):
        rows.writer(0, 4)([*texts[:3], "y" * 7])
