"""Discrete: one integer out of n consecutive ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, cast

import numpy as np
import numpy.typing as npt

from vecspaces.checks import mismatch, show_value
from vecspaces.spaces.masks import check_limit, choose_limit
from vecspaces.spaces.standard import StandardSpace
from vecspaces.typevars import TypeVar

IntegerT_cov = TypeVar("IntegerT_cov", bound=np.integer[Any], covariant=True, default=np.int64)


class Discrete(StandardSpace[IntegerT_cov], Generic[IntegerT_cov]):
    """The integers `start, ..., start + n - 1`.

    Args:
        n: Number of values.
        seed: A seed, or a generator to draw from.
        start: The smallest value.
        dtype: The integer dtype of samples.

    Attributes:
        n: The number of values, a scalar of the dtype.
        start: The smallest value, a scalar of the dtype.

    Raises:
        TypeError: `n` or `start` is not an integer, or `dtype` is not an integer dtype.
        ValueError: `n` is not positive, or the largest value does not fit the dtype.
        OverflowError: `n` or `start` does not fit the dtype.

    Example:
        >>> Discrete(2, seed=42).sample()
        np.int64(0)
        >>> space = Discrete(3, start=-1, seed=42)
        >>> space.sample()
        np.int64(-1)
        >>> space.sample(mask=np.array([0, 0, 1], dtype=np.int8))
        np.int64(1)
        >>> space.sample(probability=np.array([0, 0.3, 0.7], dtype=np.float64))
        np.int64(1)
        >>> Discrete(3, seed=37, dtype=np.int32).sample()
        np.int32(0)
    """

    dtype: np.dtype[IntegerT_cov]
    n: IntegerT_cov
    start: IntegerT_cov

    def __init__(
        self,
        n: int | np.integer[Any],
        seed: int | np.random.Generator | None = None,
        start: int | np.integer[Any] = 0,
        dtype: npt.DTypeLike = np.int64,
    ) -> None:
        if not np.issubdtype(type(n), np.integer):
            raise TypeError(f"n: expected an integer, found {show_value(n)}")
        if n <= 0:
            raise ValueError(f"n: expected a positive count, found {n}")
        if not np.issubdtype(type(start), np.integer):
            raise TypeError(f"start: expected an integer, found {show_value(start)}")
        if dtype is None:
            raise TypeError("dtype: expected an integer dtype, found None; int64 is the default")
        self.dtype = np.dtype(cast("Any", dtype))
        if self.dtype.kind not in "iu":
            raise TypeError(f"dtype: expected an integer dtype, found {self.dtype}")
        smallest, largest = np.iinfo(self.dtype).min, np.iinfo(self.dtype).max
        for name, value in (("n", n), ("start", start)):
            if not smallest <= int(value) <= largest:
                raise OverflowError(
                    f"{name}: expected {smallest} to {largest} ({self.dtype}), found {value}"
                )
        if int(start) + int(n) - 1 > largest:
            raise ValueError(
                f"n, start: expected the largest value to fit {self.dtype}, which ends at "
                f"{largest}, found start + n - 1 = {int(start) + int(n) - 1}"
            )
        self.n = self.dtype.type(n)
        self.start = self.dtype.type(start)
        super().__init__((), self.dtype, seed)

    def sample(
        self,
        mask: npt.NDArray[np.int8] | None = None,
        probability: npt.NDArray[np.float64] | None = None,
    ) -> IntegerT_cov:
        """Draw a random integer, uniformly by default.

        Args:
            mask: int8, shape `(n,)`: 1 for values that may be drawn, else 0. If all are 0, `start`
                is drawn.
            probability: float64, shape `(n,)`, with sum 1: the probability of each value.

        Returns:
            A scalar of the space's dtype.

        Raises:
            AssertionError: `mask` or `probability` has another form.
            ValueError: Both are passed.
        """
        if mask is None and probability is None:
            rng = self._np_random or self.np_random  # without the property's own call
            sample: IntegerT_cov = self.start + rng.integers(self.n, dtype=self.dtype.type)
            return sample
        word, limit = choose_limit(mask, probability)
        check_limit(word, limit, (int(self.n),))
        drawn: Any
        if word == "mask":
            allowed = np.flatnonzero(limit)
            drawn = allowed[self.np_random.integers(allowed.size)] if allowed.size else 0
        else:
            drawn = self.np_random.choice(int(self.n), p=limit)
        sample = self.start + self.dtype.type(drawn)
        return sample

    def contains(self, x: Any) -> bool:
        """Return whether `x` is one of the integers, as an int, a NumPy scalar or a 0-d array."""
        if isinstance(x, (np.generic, np.ndarray)):
            if not isinstance(x, np.generic):
                x = np.asarray(x)  # the methods of a subclass may raise anything
            dtype = x.dtype
            if x.shape != () or not (
                dtype == self.dtype or (dtype.kind in "iu" and np.can_cast(dtype, self.dtype))
            ):
                return False
            value = int(x)
        elif isinstance(x, int):
            value = int.__index__(x)  # a subclass may override int(x)
        else:
            return False
        start = int(self.start)
        return start <= value < start + int(self.n)

    def _bounds(self) -> tuple[Any, Any]:
        return self.start, int(self.start) + int(self.n) - 1

    def _explain(self, x: Any, name: str) -> str:
        last = int(self.start) + int(self.n) - 1
        return mismatch(
            name, f"an integer from {self.start} to {last} ({self.dtype})", show_value(x)
        )

    def to_jsonable(self, sample_n: Iterable[Any]) -> list[int]:
        """Convert the integers into Python ints."""
        return [int(x) for x in sample_n]

    def from_jsonable(self, sample_n: Iterable[Any]) -> list[Any]:
        """Convert Python ints into scalars of this dtype."""
        return [self.dtype.type(x) for x in sample_n]

    def __repr__(self) -> str:
        parts = [str(self.n)]
        if int(self.start):
            parts.append(f"start={self.start}")
        if self.dtype != np.int64:
            parts.append(f"dtype={self.dtype}")
        return f"Discrete({', '.join(parts)})"
