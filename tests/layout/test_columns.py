"""Columns: rows that are written in one pass hold what each value, written by itself, would."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from vecspaces.layout import Layout, Mismatch
from vecspaces.spaces import Box

NUMBERS: list[Any] = [
    *(0, 1, -1, 255, 256, 2**31, -(2**63), 2**63, 2**64, 2**70, True, False),
    *(0.5, -0.0, np.nan, np.inf, 1e39, 1e300, 1j),
    *(np.bool_(True), np.int8(-3), np.uint8(200), np.int64(7), np.uint64(2**63)),
    *(np.float16(0.1), np.float32(0.1), np.float64(0.1)),
    *("1", b"1", None, [1], np.array(2), np.array([2])),
]
VECTORS: list[Any] = [
    *([1, 2], (1, 2), [1.5, 2], [True, False], range(2), {0: 1, 1: 2}, "ab", None),
    *(np.zeros(2, np.int8), np.ones(2, np.bool_), np.array([1, 300]), np.arange(4)[::2]),
    *(np.zeros(2, np.float32), np.ones(2, np.float16), np.ones(2, ">f4"), np.arange(4.0)[::2]),
    *(np.zeros(4), np.zeros(1), np.zeros(3), np.zeros((2, 1)), np.zeros((1, 2)), np.zeros(())),
    np.array(["a", "b"]),
]


@pytest.mark.parametrize(("values", "shape"), [(NUMBERS, ()), (VECTORS, (2,)), (VECTORS, (2, 1))])
@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "u2", "i4", "i8", "u8", "f2", "f4", "f8"], ids=np.dtype
)
def test_pairs_of_all_kinds(values: list[Any], shape: tuple[int, ...], dtype: str) -> None:
    low, high = (-np.inf, np.inf) if dtype[0] == "f" else (0, 1)
    layout = Layout.compile(Box(low, high, shape, np.dtype(dtype).type), 3)
    batch, row_by_row = (layout.bind(np.zeros(layout.size, np.uint8))[0] for _ in range(2))
    write = batch.writer(0, 3)
    # Three rows, since two are written one by one.
    for pair in itertools.product(values, values[::4]):
        rows = [*pair, pair[0]]
        errors: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what overflows becomes infinite
            try:
                write(rows)
            except Mismatch as error:
                errors.append(str(error))
            try:
                for row, value in enumerate(rows):
                    row_by_row.write(row, value)
            except Mismatch as error:
                errors.append(str(error))
        if errors:
            assert len(errors) == 2 and errors[0] == errors[1], pair
        else:
            assert batch.read().tobytes() == row_by_row.read().tobytes(), pair
