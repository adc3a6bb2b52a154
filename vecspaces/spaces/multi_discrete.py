"""MultiDiscrete: arrays of integers, each out of its own consecutive ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal

import numpy as np

from vecspaces.spaces.discrete import Discrete, IntegerT_cov
from vecspaces.spaces.space import Space, refuse_both

if TYPE_CHECKING:
    import numpy.typing as npt


class MultiDiscrete(Space["npt.NDArray[IntegerT_cov]"], Generic[IntegerT_cov]):
    """Arrays whose entries are `start[i], ..., start[i] + nvec[i] - 1`.

    Args:
        nvec: How many values each entry has; of any number of axes.
        dtype: The integer dtype of values.
        seed: A seed, or a generator to draw from.
        start: The smallest value of each entry, of the shape of `nvec`; None is zero.

    Raises:
        ValueError: `dtype` is no integer dtype, a count is not positive, or the shapes differ.

    Example:
        >>> MultiDiscrete(np.array([[1, 2], [3, 4]]), seed=42).sample()
        array([[0, 0],
               [2, 2]])
    """

    dtype: np.dtype[IntegerT_cov]
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
            raise ValueError("dtype: expected an integer dtype, found None")
        self.dtype = np.dtype(dtype)
        if not np.issubdtype(self.dtype, np.integer):
            raise ValueError(f"dtype: expected an integer dtype, found {self.dtype}")
        self.nvec = np.array(nvec, dtype=self.dtype, copy=True)
        self.start = (
            np.zeros(self.nvec.shape, dtype=self.dtype)
            if start is None
            else np.array(start, dtype=self.dtype, copy=True)
        )
        if self.start.shape != self.nvec.shape:
            raise ValueError(
                f"start: expected the shape of nvec, {self.nvec.shape}, found {self.start.shape}"
            )
        if not (self.nvec > 0).all():
            raise ValueError(f"nvec: expected positive counts, found {self.nvec}")
        super().__init__(self.nvec.shape, self.dtype, seed)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a value."""
        return self._shape  # type: ignore[return-value]  # never None in a MultiDiscrete

    @property
    def is_np_flattenable(self) -> Literal[True]:
        """Always True: a value flattens to one one-hot vector per entry."""
        return True

    def sample(
        self, mask: tuple[Any, ...] | None = None, probability: tuple[Any, ...] | None = None
    ) -> npt.NDArray[IntegerT_cov]:
        """Draw a random array."""
        refuse_both(mask, probability)
        drawn = self.np_random.random(self.nvec.shape) * self.nvec
        return drawn.astype(self.dtype) + self.start

    def contains(self, x: Any) -> bool:
        """Whether `x` is an array, or a sequence that becomes one, within the ranges."""
        if isinstance(x, Sequence):
            try:
                x = np.array(x)
            except Exception:  # ragged, or foreign objects that raise anything
                return False
        return bool(
            isinstance(x, np.ndarray)
            and x.shape == self._shape
            and np.can_cast(x.dtype, self.dtype)
            and np.all(self.start <= x)
            and np.all(x <= self.start + (self.nvec - 1))
        )

    def to_jsonable(self, sample_n: Iterable[npt.NDArray[Any]]) -> list[Any]:
        """Turn arrays into nested lists."""
        return [sample.tolist() for sample in sample_n]

    def from_jsonable(self, sample_n: Iterable[Any]) -> list[Any]:
        """Turn nested lists into arrays of this dtype."""
        return [np.array(sample, dtype=self.dtype) for sample in sample_n]

    def __repr__(self) -> str:
        if np.any(self.start != 0):
            return f"MultiDiscrete({self.nvec}, start={self.start})"
        return f"MultiDiscrete({self.nvec})"

    def __eq__(self, other: object) -> bool:
        return bool(
            isinstance(other, MultiDiscrete)
            and self.dtype == other.dtype
            and self.shape == other.shape
            and np.all(self.nvec == other.nvec)
            and np.all(self.start == other.start)
        )

    def __setstate__(self, state: Iterable[tuple[str, Any]] | Mapping[str, Any]) -> None:
        attributes = dict(state)
        if "start" not in attributes:
            attributes["start"] = np.zeros(attributes["_shape"], dtype=attributes["dtype"])
        super().__setstate__(attributes)

    def __getitem__(self, index: Any) -> Any:
        """The space of one entry (a Discrete) or of several, with this generator's state."""
        nvec, start = self.nvec[index], self.start[index]
        subspace: Any = (
            Discrete(nvec, start=start, dtype=self.dtype)
            if nvec.ndim == 0
            else MultiDiscrete(nvec, start=start, dtype=self.dtype)
        )
        subspace.np_random.bit_generator.state = self.np_random.bit_generator.state
        return subspace

    def __len__(self) -> int:
        """The length of the first axis."""
        if self.nvec.ndim >= 2:
            warnings.warn("the length of a MultiDiscrete of several axes", stacklevel=2)
        return len(self.nvec)
