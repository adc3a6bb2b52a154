"""Discrete: one integer out of n consecutive ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np

from vecspaces.spaces.space import Space, describe, mismatch, refuse_both

if TYPE_CHECKING:
    import numpy.typing as npt

IntegerT_cov = TypeVar("IntegerT_cov", bound="np.integer[Any]", covariant=True)


class Discrete(Space[IntegerT_cov], Generic[IntegerT_cov]):
    """The integers `start, ..., start + n - 1`.

    Args:
        n: How many values there are.
        seed: A seed, or a generator to draw from.
        start: The smallest value.
        dtype: The integer dtype of samples.

    Attributes:
        n: The count, a scalar of the dtype.
        start: The smallest value, a scalar of the dtype.

    Raises:
        TypeError: `n` or `start` is no integer, or `dtype` no integer dtype.
        ValueError: `n` is not positive, or a value does not fit the dtype.

    Example:
        >>> Discrete(2, seed=42).sample()
        np.int64(0)
        >>> space = Discrete(3, start=-1, seed=42)
        >>> space.sample()
        np.int64(-1)
        >>> space.sample(mask=np.array([0, 0, 1], dtype=np.int8))
        np.int64(1)
        >>> space.sample(probability=np.array([0, 0, 1], dtype=np.float64))
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
            raise TypeError(f"n: expected an integer, found {describe(n)}")
        if n <= 0:
            raise ValueError(f"n: expected a positive count, found {n}")
        if not np.issubdtype(type(start), np.integer):
            raise TypeError(f"start: expected an integer, found {describe(start)}")
        if dtype is None:
            raise TypeError("dtype: expected an integer dtype, found None")
        self.dtype = np.dtype(dtype)
        if not np.issubdtype(self.dtype, np.integer):
            raise TypeError(f"dtype: expected an integer dtype, found {self.dtype}")
        self.n = self.dtype.type(n)
        self.start = self.dtype.type(start)
        super().__init__((), self.dtype, seed)

    @property
    def is_np_flattenable(self) -> Literal[True]:
        """Always True: a value flattens to a one-hot vector of `n` entries."""
        return True

    def sample(
        self,
        mask: npt.NDArray[np.int8] | None = None,
        probability: npt.NDArray[np.float64] | None = None,
    ) -> IntegerT_cov:
        """Draw a random integer.

        Args:
            mask: int8, shape `(n,)`: 1 where a value may be drawn, else 0. All zero draws `start`.
            probability: float64, shape `(n,)`, with sum 1: how likely each value is.
        """
        refuse_both(mask, probability)
        if mask is not None:
            allowed = np.flatnonzero(mask)
            if not len(allowed):
                return self.start
            return self.start + self.dtype.type(self.np_random.choice(allowed))  # type: ignore[no-any-return]
        if probability is not None:
            return self.start + self.np_random.choice(  # type: ignore[no-any-return]
                np.arange(self.n, dtype=self.dtype), p=probability
            )
        return self.start + self.np_random.integers(self.n, dtype=self.dtype.type)  # type: ignore[no-any-return,call-overload]

    def contains(self, x: Any) -> bool:
        """Whether `x` is one of the integers, as an int, a NumPy scalar or a 0-d array."""
        if isinstance(x, int):
            return int(self.start) <= x < int(self.start) + int(self.n)
        if not isinstance(x, (np.generic, np.ndarray)) or x.dtype.kind not in "iu" or x.shape:
            return False
        return bool(
            np.can_cast(x.dtype, self.dtype)
            and int(self.start) <= int(x) < int(self.start) + int(self.n)
        )

    def _explain(self, x: Any, name: str) -> str:
        last = int(self.start) + int(self.n) - 1
        return mismatch(name, f"an integer from {self.start} to {last}", describe(x))

    def to_jsonable(self, sample_n: Iterable[Any]) -> list[int]:
        """Turn integers into Python ints."""
        return [int(x) for x in sample_n]

    def from_jsonable(self, sample_n: Iterable[Any]) -> list[Any]:
        """Turn Python ints into scalars of this dtype."""
        return [self.dtype.type(x) for x in sample_n]

    def __repr__(self) -> str:
        parts = [str(self.n)]
        if self.start != 0:
            parts.append(f"start={self.start}")
        if self.dtype != np.int64:
            parts.append(f"dtype={self.dtype}")
        return f"Discrete({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Discrete)
            and bool(self.n == other.n)
            and bool(self.start == other.start)
            and self.dtype == other.dtype
        )

    def __setstate__(self, state: Iterable[tuple[str, Any]] | Mapping[str, Any]) -> None:
        super().__setstate__({"start": np.int64(0), **dict(state)})
