"""Casting: which values fit a dtype and shape; callers turn a `Mismatch` into their own error.

The shape must match exactly. Casts of the same kind (float64 to float32, an integer to a float) are
made; integers and bools are cast to integers and bools if they are in range; everything else is
refused. NumPy's own assignment would store 300 as 44 in a uint8 and broadcast shape (1,), without
an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import vecspaces.spaces  # noqa: F401 (first, for threads that import both)
from vecspaces.checks import RAISED, Path, mismatch, show_type, show_value
from vecspaces.spaces.bounds import dtype_limits

_INTEGERS = frozenset("biu")


class Mismatch(ValueError):  # noqa: N818 (a finding, which callers turn into another error)
    """A value that does not fit the place to which it is written.

    Args:
        expected: What fits the place.
        actual: The value, described briefly.
        path: The path of the place in the nested value.
        row: The environment's row, or the position in a batch, if it is known.
        name: The name of the value; None: the message begins with the row.

    Example:
        >>> str(Mismatch("uint8 of shape (2,)", "None", ("camera", "left"), row=3))
        "row 3: ['camera']['left']: expected uint8 of shape (2,), found None"
    """

    def __init__(
        self,
        expected: str,
        actual: str,
        path: Path = (),
        row: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(expected, actual, path, row, name)
        self.expected = expected
        self.actual = actual
        self.path = path
        self.row = row
        self.name = name

    def placed(self, path: Path, row: int | None = None) -> Mismatch:
        """Return the error for an outer value: the path begins with `path`, and `row` is set."""
        row = self.row if row is None else row
        return type(self)(self.expected, self.actual, path + self.path, row, self.name)

    def called(self, name: str) -> Mismatch:
        """Name the value in the message: `items[3]['camera']: expected ...`."""
        return type(self)(self.expected, self.actual, self.path, self.row, name)

    def __str__(self) -> str:
        name = self.name or ""
        if self.row is None:
            return mismatch(name, self.expected, self.actual, self.path)
        if name:
            return mismatch(f"{name}[{self.row}]", self.expected, self.actual, self.path)
        return f"row {self.row}: {mismatch('', self.expected, self.actual, self.path)}"


class KeyMismatch(Mismatch, KeyError):  # noqa: N818 (as above)
    """A dict with other keys, or a tuple with another length, than its place has."""


def fit(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], path: Path = ()) -> NDArray[Any]:
    """Return a value as an array of exactly this dtype and shape, by the rule above.

    Args:
        value: An array, a scalar, or nested lists or tuples of numbers.
        dtype: The dtype it must have.
        shape: The shape it must have.
        path: The path of the value, for the error.

    Returns:
        `value` itself if it fits without a cast, otherwise a new array.

    Raises:
        Mismatch: If it does not fit.

    Example:
        >>> fit([1, 2], np.dtype("float32"), (2,))
        array([1., 2.], dtype=float32)
        >>> fit([1, 300], np.dtype("uint8"), (2,))
        Traceback (most recent call last):
            ...
        vecspaces.layout.casting.Mismatch: expected uint8 array of shape (2,), values from \
    0 to 255, found int64 array of shape (2,), values from 1 to 300
    """
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
    except RAISED as error:  # ragged lists, and whatever an __array__ may raise
        # The error of a tensor names the call that is missing: `detach()`, `cpu()`.
        reason = f": {error!r}" if hasattr(value, "__array__") else ""
        raise Mismatch(show_type(dtype, shape), show_value(value) + reason, path) from error
    source = array.dtype
    if array.shape == shape:
        if source == dtype:
            return array
        if source.kind in _INTEGERS and dtype.kind in _INTEGERS:
            _check_range(array, dtype, path)
            return array.astype(dtype)
        if np.can_cast(source, dtype, "same_kind"):
            return array.astype(dtype)
    numeric = source.kind not in "OUS"  # the value in place of an array of objects or strings
    raise Mismatch(show_type(dtype, shape), show_value(array if numeric else value), path)


def _check_range(array: NDArray[Any], dtype: np.dtype[Any], path: Path) -> None:
    if array.size == 0 or np.can_cast(array.dtype, dtype, "safe"):
        return
    (low, high), (least, greatest) = dtype_limits(dtype), (int(array.min()), int(array.max()))
    if least < low or greatest > high:
        raise Mismatch(
            f"{show_type(dtype, array.shape)}, values from {low} to {high}",
            f"{show_type(array.dtype, array.shape)}, values from {least} to {greatest}",
            path,
        )


def fit_batch(
    batch: Any, n: int, dtype: np.dtype[Any], shape: tuple[int, ...], path: Path = ()
) -> NDArray[Any]:
    """Return a batch as an array `(n, *shape)`; a Mismatch names the first row that is wrong."""
    whole = (n, *shape)
    try:
        return fit(batch, dtype, whole, path)
    except Mismatch:
        if isinstance(batch, np.ndarray):
            # A wrong dtype or shape concerns the whole array, not a row.
            told_apart = batch.shape == whole and batch.dtype.kind in _INTEGERS
        else:
            told_apart = isinstance(batch, (list, tuple)) and len(batch) == n
        if not told_apart:
            raise
    fitted = np.empty(whole, dtype)
    for row, value in enumerate(batch):
        try:
            fitted[row] = fit(value, dtype, shape, path)
        except Mismatch as error:
            raise error.placed((), row) from error.__cause__
    # Each value fits, though NumPy's common dtype of all (float64 for int64 and uint64) did not.
    return fitted
