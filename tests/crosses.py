"""Crosses of many cases, of which the ordinary run takes a part and .ci/full the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def ordinarily(chosen: Callable[..., bool], cells: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return the cells as parameters, those that are not chosen marked `full`.

    Args:
        chosen: Told the values of a cell, decides whether it is part of the ordinary run.
        cells: The whole cross.
    """
    return [pytest.param(*cell, marks=[] if chosen(*cell) else pytest.mark.full) for cell in cells]
