"""MultiBinary: arrays of zeros and ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vecspaces.spaces.space import Space, describe, refuse_both

if TYPE_CHECKING:
    import numpy.typing as npt


class MultiBinary(Space["npt.NDArray[np.int8]"]):
    """Arrays of int8 zeros and ones, of a fixed shape.

    Args:
        n: The length, or the shape as a sequence or array of positive ints.
        seed: A seed, or a generator to draw from.

    Raises:
        ValueError: `n` is neither an int nor a sequence of ints, or holds one that is not positive.

    Example:
        >>> MultiBinary(5, seed=42).sample()
        array([1, 0, 1, 0, 1], dtype=int8)
        >>> MultiBinary([3, 2], seed=42).sample()
        array([[1, 0],
               [1, 0],
               [1, 1]], dtype=int8)
    """

    dtype: np.dtype[np.int8]
    n: int | tuple[int, ...]

    def __init__(
        self,
        n: npt.NDArray[np.integer[Any]] | Sequence[int] | int,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if isinstance(n, int):
            self.n = int(n)
            shape: tuple[int, ...] = (self.n,)
        elif isinstance(n, (Sequence, np.ndarray)):
            self.n = shape = tuple(int(i) for i in n)
        else:
            raise ValueError(f"n: expected an int or a sequence of ints, found {describe(n)}")
        if not all(count > 0 for count in shape):
            raise ValueError(f"n: expected positive counts, found {n}")
        super().__init__(shape, np.int8, seed)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a value."""
        return self._shape  # type: ignore[return-value]  # never None in a MultiBinary

    @property
    def is_np_flattenable(self) -> Literal[True]:
        """Always True: a value flattens to as many entries as it has."""
        return True

    def sample(
        self,
        mask: npt.NDArray[np.int8] | None = None,
        probability: npt.NDArray[np.float64] | None = None,
    ) -> npt.NDArray[np.int8]:
        """Draw a random array."""
        refuse_both(mask, probability)
        if probability is not None:
            return (self.np_random.random(size=self.shape) <= probability).astype(self.dtype)
        drawn = self.np_random.integers(low=0, high=2, size=self.n, dtype=np.int8)
        return drawn if mask is None else np.where(mask == 2, drawn, mask)

    def contains(self, x: Any) -> bool:
        """Whether `x` is an array, or a sequence that becomes one, of zeros and ones."""
        if isinstance(x, Sequence):
            try:
                x = np.array(x)
            except Exception:  # ragged, or foreign objects that raise anything
                return False
        return bool(
            isinstance(x, np.ndarray)
            and x.shape == self._shape
            and np.all(np.logical_or(x == 0, x == 1))
        )

    def to_jsonable(self, sample_n: Iterable[npt.NDArray[np.int8]]) -> list[Any]:
        """Turn arrays into nested lists."""
        return np.array(list(sample_n)).tolist()  # type: ignore[no-any-return]

    def from_jsonable(self, sample_n: Iterable[Any]) -> list[npt.NDArray[np.int8]]:
        """Turn nested lists into int8 arrays."""
        return [np.asarray(sample, self.dtype) for sample in sample_n]

    def __repr__(self) -> str:
        return f"MultiBinary({self.n})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MultiBinary) and self.n == other.n
