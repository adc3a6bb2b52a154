"""Batches of values: put together, taken apart, tested as a whole, and written as JSON.

A batch of n values of a Box, Discrete, MultiBinary or MultiDiscrete is one array with a leading
axis of length n; of a Dict or Tuple, a dict or tuple of batches; of any other space, a tuple of n
values. `Sequence(stack=True)` and `Graph` hold such batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from vecspaces.checks import show_value
from vecspaces.spaces.box import Box
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.discrete import Discrete
from vecspaces.spaces.multi_binary import MultiBinary
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.space import Space, mismatch
from vecspaces.spaces.tuple import Tuple

ARRAY_SPACES = (Box, Discrete, MultiBinary, MultiDiscrete)


def stack(space: Space[Any], values: Iterable[Any]) -> Any:
    """Put values of `space` into one new batch.

    Example:
        >>> stack(Tuple((Discrete(3), Box(0, 1))), [(2, [0.5]), (0, [1.0])])
        (array([2, 0]), array([[0.5],
               [1. ]], dtype=float32))
    """
    values = tuple(values)
    if isinstance(space, ARRAY_SPACES):
        batch: np.ndarray[Any, Any] = np.empty((len(values), *_shape(space)), dtype=space.dtype)
        return np.stack(values, out=batch) if values else batch
    if isinstance(space, Dict):
        return {
            key: stack(member, [value[key] for value in values])
            for key, member in space.spaces.items()
        }
    if isinstance(space, Tuple):
        return tuple(
            stack(member, [value[i] for value in values]) for i, member in enumerate(space.spaces)
        )
    return values


def _shape(space: Space[Any]) -> tuple[int, ...]:
    assert space.shape is not None  # of one of ARRAY_SPACES
    return space.shape


def unstack(space: Space[Any], batch: Any) -> list[Any]:
    """Take a batch of values of `space` apart; arrays become views of their rows.

    Raises:
        TypeError: `batch` has no length where it should have one.
        KeyError, IndexError: `batch` has no column for a member of `space`.
        ValueError: The columns of `batch` have different lengths.

    Example:
        >>> unstack(Tuple((Discrete(3), Box(0, 1))), (np.array([2, 0]), np.array([[0.5], [1.0]])))
        [(np.int64(2), array([0.5])), (np.int64(0), array([1.]))]
    """
    return _rows(space, batch, batch_length(space, batch) or 0)


def batch_length(space: Space[Any], batch: Any) -> int | None:
    """Tell how many values of `space` a batch holds; None if such values carry no data at all.

    Raises:
        As `unstack`.

    Example:
        >>> batch_length(Dict(a=Discrete(3), b=Tuple(())), {"a": np.array([2, 0]), "b": ()})
        2
    """
    if isinstance(space, Dict):
        found = [batch_length(member, batch[key]) for key, member in space.spaces.items()]
    elif isinstance(space, Tuple):
        found = [batch_length(member, batch[i]) for i, member in enumerate(space.spaces)]
    else:
        return len(batch)
    lengths = {length for length in found if length is not None}
    if len(lengths) > 1:
        raise ValueError(f"batch: expected columns of one length, found lengths {sorted(lengths)}")
    return lengths.pop() if lengths else None


def _rows(space: Space[Any], batch: Any, n: int) -> list[Any]:
    if isinstance(space, Dict):
        columns = [_rows(member, batch[key], n) for key, member in space.spaces.items()]
        return [
            {key: column[i] for key, column in zip(space, columns, strict=True)} for i in range(n)
        ]
    if isinstance(space, Tuple):
        columns = [_rows(member, batch[i], n) for i, member in enumerate(space.spaces)]
        return [tuple([column[i] for column in columns]) for i in range(n)]
    return list(batch)


def contains_all(space: Space[Any], batch: Any) -> bool:
    """Whether `batch` is a batch of values of `space`, whatever their number.

    The answer is that of `contains` for each value; arrays of the space's own dtype and shape are
    tested as a whole.

    Raises:
        Exception: As `unstack`, for objects that are no batch of anything.

    Example:
        >>> contains_all(Discrete(3), np.array([0, 2, 2])), contains_all(Discrete(3), [0, 3])
        (True, False)
    """
    contains = type(space).contains  # a subclass with a test of its own is asked row by row
    limits_of = _LIMITS.get(contains)
    if (
        limits_of is not None
        and isinstance(batch, np.ndarray)
        and batch.dtype == space.dtype
        and batch.ndim
        and batch.shape[1:] == space.shape
    ):
        low, high = limits_of(space)
        # count_nonzero is several times as fast as all() for small arrays
        return bool(np.count_nonzero(batch >= low) == batch.size == np.count_nonzero(batch <= high))
    if isinstance(space, Dict) and contains is Dict.contains:
        batch_length(space, batch)
        return all(contains_all(member, batch[key]) for key, member in space.spaces.items())
    if isinstance(space, Tuple) and contains is Tuple.contains:
        batch_length(space, batch)
        return len(batch) == len(space.spaces) and all(
            contains_all(member, batch[i]) for i, member in enumerate(space.spaces)
        )
    return all(space.contains(value) for value in unstack(space, batch))


_LIMITS: dict[Any, Callable[[Any], tuple[Any, Any]]] = {
    Box.contains: lambda space: (space.low, space.high),
    Discrete.contains: lambda space: (space.start, int(space.start) + int(space.n) - 1),
    MultiBinary.contains: lambda space: (0, 1),
    MultiDiscrete.contains: lambda space: (space.start, space.start + (space.nvec - 1)),
}
"""The smallest and the largest value of a space, by the test for them."""


def explain_all(space: Space[Any], batch: Any, name: str) -> str | None:
    """Say which value of `batch` is no value of `space`, and why, as `Space.explain` does."""
    try:
        values = unstack(space, batch)
    except Exception as error:  # whatever `batch` is, it is no batch
        return mismatch(name, f"a batch of values of {space!r}", f"{show_value(batch)} ({error!r})")
    answers = (space.explain(value, f"{name}[{i}]") for i, value in enumerate(values))
    return next((answer for answer in answers if answer is not None), None)


def batches_to_jsonable(space: Space[Any], batches: list[Any]) -> Any:
    """Turn batches of values of `space` into what `json.dumps` can write, as Gymnasium does.

    A batch without array form, such as a tuple of strings, is written as the list of its values.
    """
    if isinstance(space, ARRAY_SPACES):
        return [np.asarray(batch).tolist() for batch in batches]
    if isinstance(space, Dict) and len(space):
        return {
            key: batches_to_jsonable(member, [batch[key] for batch in batches])
            for key, member in space.spaces.items()
        }
    if isinstance(space, Tuple) and len(space):
        return [
            batches_to_jsonable(member, [batch[i] for batch in batches])
            for i, member in enumerate(space.spaces)
        ]
    if isinstance(space, (Dict, Tuple)):
        return space.to_jsonable(batches)
    return [space.to_jsonable(batch) for batch in batches]


def batches_from_jsonable(space: Space[Any], jsonable: Any) -> list[Any]:
    """Turn what `batches_to_jsonable` returned back into the batches, dtypes included."""
    if isinstance(space, ARRAY_SPACES):
        return [
            np.asarray(rows, dtype=space.dtype).reshape(len(rows), *_shape(space))
            for rows in jsonable
        ]
    if isinstance(space, Dict) and len(space):
        columns = [
            batches_from_jsonable(member, jsonable[key]) for key, member in space.spaces.items()
        ]
        return [dict(zip(space, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(space, Tuple) and len(space):
        members = zip(space.spaces, jsonable, strict=True)
        columns = [batches_from_jsonable(member, column) for member, column in members]
        return list(zip(*columns, strict=True))
    if isinstance(space, (Dict, Tuple)):
        return space.from_jsonable(jsonable)
    return [tuple(space.from_jsonable(values)) for values in jsonable]


def batch_limits(space: Space[Any], limit: Any, n: int) -> Any:
    """Repeat the mask, or the probabilities, of one value of `space` for a batch of `n`.

    What does not fit `space` is returned as it is: the batch will refuse it, and say why.
    """
    if limit is None:
        return None
    if isinstance(space, Dict):
        if not isinstance(limit, dict) or limit.keys() != space.spaces.keys():
            return limit
        return {key: batch_limits(member, limit[key], n) for key, member in space.spaces.items()}
    if isinstance(space, Tuple):
        if not isinstance(limit, tuple) or len(limit) != len(space):
            return limit
        members = zip(space.spaces, limit, strict=True)
        return tuple(batch_limits(member, part, n) for member, part in members)
    return (limit,) * n
