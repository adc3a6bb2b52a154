"""Crosses of many cases, of which the ordinary run takes a part and .ci/full the whole."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import product
from typing import Any

import pytest


def ordinarily(chosen: Callable[..., bool], cells: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return the cells as parameters, those that are not chosen marked `full`.

    Args:
        chosen: Told the values of a cell, decides whether it is part of the ordinary run.
        cells: The whole cross.
    """
    return [pytest.param(*cell, marks=[] if chosen(*cell) else pytest.mark.full) for cell in cells]


def diagonal(**parameters: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test with a cross, of which the ordinary run takes a diagonal.

    It has as many cells as the longest parameter has values, and each value of each parameter,
    since all advance together. The full run has all cells.

    Args:
        parameters: The values of each; the keys of a dict are ids.
    """
    sides = [
        [*values.items()] if isinstance(values, Mapping) else [(_id(item), item) for item in values]
        for values in parameters.values()
    ]
    sizes = list(map(len, sides))
    ordinary = {tuple(number % size for size in sizes) for number in range(max(sizes))}
    cells = []
    for places in product(*map(range, sizes)):
        chosen = [side[place] for side, place in zip(sides, places, strict=True)]
        ids = [
            name or f"{parameter}{place}"
            for parameter, place, (name, _) in zip(parameters, places, chosen, strict=True)
        ]
        marks = [] if places in ordinary else [pytest.mark.full]
        cells.append(pytest.param(*(value for _, value in chosen), marks=marks, id="-".join(ids)))
    return pytest.mark.parametrize(tuple(parameters), cells)


def _id(value: Any) -> str:
    """Return the id of a value, as pytest does; nothing where its text says too little."""
    if isinstance(value, (str, int, float, Enum)):
        return str(value)
    return getattr(value, "__name__", "")


METHODS = multiprocessing.get_all_start_methods()
#: The quickest start method, and Python's default from 3.14 on, where the system has them.
FASTEST = "fork" if "fork" in METHODS else "spawn"
NEWEST = "forkserver" if "forkserver" in METHODS else "spawn"
#: The start methods, of which the ordinary run has the default.
START_METHODS = ordinarily(lambda method: method == METHODS[0], zip(METHODS, strict=True))
