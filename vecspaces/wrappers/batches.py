"""Flattening the rows of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.spaces import Box, Discrete, MultiBinary, Space, flatdim, flatten, flatten_space
from vecspaces.spaces.batch_values import batch_length
from vecspaces.spaces.nesting import Product
from vecspaces.vector.utils import batch_space, concatenate, iterate


def flatten_rows(space: Space[Any], batch: Any, count: int | None = None) -> Any:
    """Flatten every row of a batch, as arrays if the space has a flat form of a fixed size.

    `count` is the number of rows; None: the length of the batch.
    """
    if count is None:
        count = batch_length(space, batch) or 0
    if isinstance(space, (Box, MultiBinary)):
        return np.asarray(batch, space.dtype).reshape(count, flatdim(space))
    if isinstance(space, Discrete):
        flat: npt.NDArray[Any] = np.zeros((count, int(space.n)), space.dtype)
        flat[np.arange(count), np.asarray(batch, np.int64) - int(space.start)] = 1
        return flat
    if isinstance(space, Product) and space.is_np_flattenable:
        flat = np.empty((count, flatdim(space)), flatten_space(space).dtype)
        begin = 0
        for key, member in space._members().items():
            end = begin + flatdim(member)
            flat[:, begin:end] = flatten_rows(member, batch[key], count)
            begin = end
        return flat
    rows = [flatten(space, row) for row in iterate(batch_space(space, count), batch)]
    return concatenate(flatten_space(space), rows, None)
