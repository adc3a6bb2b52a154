"""MultiBinary: arrays of zeros and ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import show_value
from vecspaces.spaces.array_space import ArraySpace
from vecspaces.spaces.masks import check_limit, choose_limit


class MultiBinary(ArraySpace[np.int8]):
    """int8 arrays of zeros and ones, of a fixed shape.

    Args:
        n: The length, or the shape as a sequence or array of positive ints.
        seed: A seed, or a generator to draw from.

    Attributes:
        n: The length, or the shape as a tuple.

    Raises:
        TypeError: `n` is an array without axes.
        ValueError: `n` is neither an int nor a sequence or array, or a number is not positive.

    Example:
        >>> MultiBinary(5, seed=42).sample()
        array([1, 0, 1, 0, 1], dtype=int8)
        >>> MultiBinary([3, 2], seed=42).sample()
        array([[1, 0],
               [1, 0],
               [1, 1]], dtype=int8)
    """

    n: int | tuple[int, ...]

    def __init__(
        self,
        n: npt.NDArray[np.integer[Any]] | Sequence[int] | int,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if isinstance(n, int):
            self.n = int(n)
            shape: tuple[int, ...] = (self.n,)
        elif isinstance(n, np.ndarray) and not n.ndim:
            raise TypeError(f"n: expected an int or a sequence of ints, found {show_value(n)}")
        elif isinstance(n, (Sequence, np.ndarray)):
            self.n = shape = tuple(int(i) for i in n)
        else:
            raise ValueError(f"n: expected an int or a sequence of ints, found {show_value(n)}")
        if not all(count > 0 for count in shape):
            raise ValueError(f"n: expected positive counts, found {n}")
        super().__init__(shape, np.int8, seed)

    def sample(
        self,
        mask: npt.NDArray[np.int8] | None = None,
        probability: npt.NDArray[np.float64] | None = None,
    ) -> npt.NDArray[np.int8]:
        """Draw a random array; by default each entry is 0 or 1 with equal probability.

        Args:
            mask: int8, of the space's shape: 0 and 1 are the values drawn, 2 leaves an entry
                random.
            probability: float64, of the space's shape: the probability that each entry is 1.

        Returns:
            An int8 array of the space's shape.

        Raises:
            AssertionError: `mask` or `probability` has another form.
            ValueError: Both are passed.
        """
        if mask is None and probability is None:
            rng = self._np_random or self.np_random  # without the property's own call
            return rng.integers(0, 2, self.n, np.int8)
        word, limit = choose_limit(mask, probability)
        check_limit(
            word, limit, self._shape, largest=2 if word == "mask" else 1, is_distribution=False
        )
        if word == "mask":
            return np.where(limit == 2, self.np_random.integers(0, 2, self._shape, np.int8), limit)
        drawn: npt.NDArray[np.bool_] = self.np_random.random(self._shape) <= limit
        return drawn.astype(np.int8)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is an array of zeros and ones, or a sequence that converts to it.

        As in Gymnasium, the dtype is not checked: 1.0 and True are ones.
        """
        array = x if type(x) is np.ndarray else self._to_array(x)
        if array is None or array.shape != self._shape:
            return False
        if array.dtype.kind in "iu":  # only 0 and 1, shifted by one bit, are 0
            return not np.count_nonzero(array >> 1)
        try:
            return bool(np.all((array == 0) | (array == 1)))
        except Exception:  # objects of any class, whose methods may raise anything
            return False

    def _bounds(self) -> tuple[Any, Any]:
        return 0, 1

    def _holds(self, dtype: np.dtype[Any]) -> bool:
        return dtype.kind in "iufb"

    def __repr__(self) -> str:
        return f"MultiBinary({self.n})"
