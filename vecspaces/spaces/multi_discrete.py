"""MultiDiscrete: arrays of integers, with a range for each entry."""

from __future__ import annotations

import warnings
from typing import Any, Generic, cast

import numpy as np
import numpy.typing as npt

from vecspaces.spaces.array_space import ArraySpace
from vecspaces.spaces.bounds import cast_exactly
from vecspaces.spaces.discrete import Discrete, IntegerT_cov
from vecspaces.spaces.masks import check_limit, check_limit_tuple, choose_limit


class MultiDiscrete(ArraySpace[IntegerT_cov], Generic[IntegerT_cov]):
    """Arrays whose entries are `start[i], ..., start[i] + nvec[i] - 1`.

    Args:
        nvec: The number of values of each entry; an array with any number of axes.
        dtype: The integer dtype of values.
        seed: A seed, or a generator to draw from.
        start: The smallest value of each entry, of the shape of `nvec`; None: zeros.

    Attributes:
        nvec: The numbers of values, of the space's shape and dtype.
        start: The smallest values, in the same form.

    Raises:
        ValueError: `dtype` is not an integer dtype, a number is not positive, the shapes differ, or
            a largest value does not fit the dtype.
        OverflowError: An entry of `nvec` or `start` does not fit the dtype.

    Example:
        >>> MultiDiscrete(np.array([[1, 2], [3, 4]]), seed=42).sample()
        array([[0, 0],
               [2, 2]])
    """

    nvec: npt.NDArray[IntegerT_cov]
    start: npt.NDArray[IntegerT_cov]

    def __init__(
        self,
        nvec: npt.NDArray[np.integer[Any]] | list[int],
        dtype: npt.DTypeLike = np.int64,
        seed: int | np.random.Generator | None = None,
        start: npt.NDArray[np.integer[Any]] | list[int] | None = None,
    ) -> None:
        if dtype is None:
            raise ValueError("dtype: expected an integer dtype, found None; int64 is the default")
        self.dtype = np.dtype(cast("Any", dtype))
        if self.dtype.kind not in "iu":
            raise ValueError(f"dtype: expected an integer dtype, found {self.dtype}")
        self.nvec = cast_exactly("nvec", nvec, self.dtype)
        if start is None:
            self.start = np.zeros(self.nvec.shape, self.dtype)
        else:
            self.start = cast_exactly("start", start, self.dtype)
        if self.start.shape != self.nvec.shape:
            raise ValueError(
                f"start: expected the shape of nvec, {self.nvec.shape}, found {self.start.shape}"
            )
        if not (self.nvec > 0).all():
            raise ValueError(f"nvec: expected positive counts, found {self.nvec}")
        if (self.start + (self.nvec - 1) < self.start).any():  # it wrapped
            raise ValueError(
                f"nvec, start: expected start + nvec - 1 to fit {self.dtype}, which ends at "
                f"{np.iinfo(self.dtype).max}, found nvec={self.nvec}, start={self.start}"
            )
        super().__init__(self.nvec.shape, self.dtype, seed)

    def sample(
        self, mask: tuple[Any, ...] | None = None, probability: tuple[Any, ...] | None = None
    ) -> npt.NDArray[IntegerT_cov]:
        """Draw a random array, uniformly by default.

        Args:
            mask: Per entry an int8 array of shape `(nvec[i],)`: 1 for values that may be drawn,
                else 0; in tuples, nested as deep as the space has axes. If all are 0, `start[i]` is
                drawn.
            probability: In the same form, float64 arrays with sum 1: the probability of each value.

        Returns:
            An array of the space's shape and dtype.

        Raises:
            AssertionError: `mask` or `probability` has another form.
            ValueError: Both are passed.
        """
        if mask is None and probability is None:
            rng = self._np_random or self.np_random  # without the property's own call
            drawn = rng.random(self._shape) * self.nvec
            sample: npt.NDArray[IntegerT_cov] = drawn.astype(self.dtype) + self.start
            return sample
        word, limit = choose_limit(mask, probability)
        return np.array(self._draw(word, limit, self.nvec, self.start, ()), self.dtype)

    def _draw(self, word: str, limit: Any, nvec: Any, start: Any, path: tuple[int, ...]) -> Any:
        """Draw within a mask or probability, as nested lists of ints."""
        if nvec.ndim:
            check_limit_tuple(word, limit, len(nvec), path)
            return [
                self._draw(word, limit[i], nvec[i], start[i], (*path, i)) for i in range(len(nvec))
            ]
        check_limit(word, limit, (int(nvec),), path)
        allowed = np.flatnonzero(limit)
        if word == "mask":
            index = allowed[self.np_random.integers(allowed.size)] if allowed.size else 0
        else:
            index = self.np_random.choice(allowed, p=(limit / np.sum(limit))[allowed])
        return int(start) + int(index)  # NumPy would promote int64 and uint64 to float64

    def contains(self, x: Any) -> bool:
        """Return whether `x` is an array within the ranges, or a sequence that converts to it."""
        array = x if type(x) is np.ndarray else self._to_array(x)
        if array is None or array.shape != self._shape or not self._holds(array.dtype):
            return False
        low, high = self._bounds()
        return bool(np.count_nonzero(array >= low) == array.size == np.count_nonzero(array <= high))

    def _bounds(self) -> tuple[Any, Any]:
        return self.start, self.start + (self.nvec - 1)  # values of the space: this cannot wrap

    def __repr__(self) -> str:
        if np.any(self.start != 0):
            return f"MultiDiscrete({self.nvec}, start={self.start})"
        return f"MultiDiscrete({self.nvec})"

    def __getitem__(self, index: Any) -> Any:
        """Return the space of one entry (a Discrete) or of several, with this generator's state."""
        nvec, start = self.nvec[index], self.start[index]
        subspace: Any = (
            Discrete(nvec, start=start, dtype=self.dtype)
            if nvec.ndim == 0
            else MultiDiscrete(nvec, start=start, dtype=self.dtype)
        )
        subspace.np_random.bit_generator.state = self.np_random.bit_generator.state
        return subspace

    def __len__(self) -> int:
        """Return the length of the first axis."""
        if self.nvec.ndim >= 2:
            warnings.warn(
                f"len() of a MultiDiscrete of shape {self._shape} counts its first axis alone",
                stacklevel=2,
            )
        return len(self.nvec)
