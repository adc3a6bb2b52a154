"""Batches of values: stacked, unstacked, checked as a whole, and converted `to_jsonable`.

A batch of n values of a Box, Discrete, MultiBinary or MultiDiscrete is one array with a leading
axis of length n. A batch for a Dict or Tuple is a dict or tuple of batches, and for any other space
a tuple of n values. Values of `Sequence(stack=True)` and `Graph` contain such batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from vecspaces.checks import mismatch, show_value
from vecspaces.spaces.array_space import ArraySpace
from vecspaces.spaces.box import Box
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.discrete import Discrete
from vecspaces.spaces.multi_binary import MultiBinary
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.nesting import Product, explain_members
from vecspaces.spaces.space import Space
from vecspaces.spaces.tuple import Tuple

ARRAY_SPACES = (ArraySpace, Discrete)

_WHOLE = {Box.contains, Discrete.contains, MultiBinary.contains, MultiDiscrete.contains}
"""Tests of values that compare with the bounds alone, if dtype and shape are the space's."""


def stack(space: Space[Any], values: Iterable[Any]) -> Any:
    """Put values of `space` into one new batch."""
    values = tuple(values)
    if isinstance(space, ARRAY_SPACES):
        batch: np.ndarray[Any, Any] = np.empty((len(values), *(space.shape or ())), space.dtype)
        return np.stack(values, out=batch) if values else batch
    if isinstance(space, Product):
        return space._build(
            stack(member, [value[key] for value in values])
            for key, member in space._members().items()
        )
    return values


def unstack(space: Space[Any], batch: Any) -> list[Any]:
    """Take a batch of values of `space` apart; arrays become views of their rows."""
    return _unstack(space, batch, batch_length(space, batch) or 0)


def _unstack(space: Space[Any], batch: Any, n: int) -> list[Any]:
    if not isinstance(space, Product):
        return list(batch)
    columns = [_unstack(member, batch[key], n) for key, member in space._members().items()]
    return [space._build([column[i] for column in columns]) for i in range(n)]


def pick(space: Space[Any], batch: Any, rows: int | Sequence[int] | np.ndarray[Any, Any]) -> Any:
    """Return one row of a batch of values of `space`, or a batch of some rows."""
    if isinstance(space, Product):
        return space._build(
            pick(member, batch[key], rows) for key, member in space._members().items()
        )
    if isinstance(rows, int) or not isinstance(batch, (tuple, list)):
        return batch[rows]
    return tuple(batch[number] for number in rows)  # values of variable size


def batch_length(space: Space[Any], batch: Any) -> int | None:
    """Return the number of values of `space` in a batch; None if such values have no data."""
    if not isinstance(space, Product):
        return len(batch)
    counts = [batch_length(member, batch[key]) for key, member in space._members().items()]
    lengths = {length for length in counts if length is not None}
    if len(lengths) > 1:
        raise ValueError(f"batch: expected columns of one length, found lengths {sorted(lengths)}")
    return lengths.pop() if lengths else None


def contains_all(space: Space[Any], batch: Any) -> bool:
    """Return whether every value of `batch` is in `space`; raise if it is no batch."""
    # Arrays of the space's own dtype and shape are tested at once, with the same result. A subclass
    # with its own `contains` is tested row by row.
    contains = type(space).contains
    if (
        isinstance(space, ARRAY_SPACES)
        and contains in _WHOLE
        and isinstance(batch, np.ndarray)
        and batch.dtype == space.dtype
        and batch.ndim
        and batch.shape[1:] == space.shape
    ):
        low, high = space._bounds()
        # count_nonzero is several times as fast as all() for small arrays
        return bool(np.count_nonzero(batch >= low) == batch.size == np.count_nonzero(batch <= high))
    if isinstance(space, Product) and contains in (Dict.contains, Tuple.contains):
        batch_length(space, batch)
        return (contains is Dict.contains or len(batch) == len(space._members())) and all(
            contains_all(member, batch[key]) for key, member in space._members().items()
        )
    return all(space.contains(value) for value in unstack(space, batch))


def explain_all(space: Space[Any], batch: Any, name: str) -> str | None:
    """Return why the first value of `batch` that is not in `space` is not; None if all are."""
    try:
        values = unstack(space, batch)
    except Exception as error:  # whatever `batch` is, it is not a batch
        return mismatch(name, f"a batch of values of {space!r}", f"{show_value(batch)} ({error!r})")
    return explain_members(((i, space, value) for i, value in enumerate(values)), name)


def batches_to_jsonable(space: Space[Any], batches: list[Any]) -> Any:
    """Convert batches as Gymnasium does; one that is not an array becomes a list of its values."""
    if isinstance(space, ARRAY_SPACES):
        return [np.asarray(batch).tolist() for batch in batches]
    if not isinstance(space, Product):
        return [space.to_jsonable(batch) for batch in batches]
    return space._to_columns(batches, batches_to_jsonable)


def batches_from_jsonable(space: Space[Any], jsonable: Any) -> list[Any]:
    """Convert the result of `batches_to_jsonable` back into the batches, dtypes included."""
    if isinstance(space, ARRAY_SPACES):
        return [
            np.asarray(rows, dtype=space.dtype).reshape(len(rows), *(space.shape or ()))
            for rows in jsonable
        ]
    if not isinstance(space, Product):
        return [tuple(space.from_jsonable(values)) for values in jsonable]
    return space._from_columns(jsonable, batches_from_jsonable)


def batch_limits(space: Space[Any], limit: Any, n: int) -> Any:
    """Repeat the mask, or the probabilities, of one value of `space` for a batch of `n`."""
    if limit is None:
        return None
    if not isinstance(space, Product):
        return (limit,) * n
    members = space._members()
    if not isinstance(limit, space._container):
        return limit  # the batch will refuse it, and say why
    keys = limit if isinstance(limit, dict) else range(len(limit))
    if set(keys) != set(members):
        return limit
    return space._build(batch_limits(member, limit[key], n) for key, member in members.items())
