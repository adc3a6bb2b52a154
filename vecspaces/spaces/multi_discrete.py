"""MultiDiscrete: arrays of integers, each out of its own consecutive ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

import numpy as np

from vecspaces.checks import show_value
from vecspaces.spaces.discrete import Discrete, IntegerT_cov
from vecspaces.spaces.intervals import cast_exactly
from vecspaces.spaces.masks import check_mask, check_probability
from vecspaces.spaces.space import Space, mismatch, refuse_both

if TYPE_CHECKING:
    import numpy.typing as npt


class MultiDiscrete(Space["npt.NDArray[IntegerT_cov]"], Generic[IntegerT_cov]):
    """Arrays whose entries are `start[i], ..., start[i] + nvec[i] - 1`.

    Args:
        nvec: How many values each entry has; of any number of axes.
        dtype: The integer dtype of values.
        seed: A seed, or a generator to draw from.
        start: The smallest value of each entry, of the shape of `nvec`; None is zero.

    Attributes:
        nvec: The counts, of the space's shape and dtype.
        start: The smallest values, likewise.

    Raises:
        ValueError: `dtype` is no integer dtype, a count is not positive, the shapes differ, or a
            largest value does not fit the dtype.
        OverflowError: A count or a start does not fit the dtype.

    Example:
        >>> MultiDiscrete(np.array([[1, 2], [3, 4]]), seed=42).sample()
        array([[0, 0],
               [2, 2]])
    """

    dtype: np.dtype[IntegerT_cov]
    _shape: tuple[int, ...]
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

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a value."""
        return self._shape

    @property
    def is_np_flattenable(self) -> Literal[True]:
        """Always True: a value flattens to one one-hot vector per entry."""
        return True

    def sample(
        self, mask: tuple[Any, ...] | None = None, probability: tuple[Any, ...] | None = None
    ) -> npt.NDArray[IntegerT_cov]:
        """Draw a random array, uniformly unless told otherwise.

        Args:
            mask: For each entry an int8 array of shape `(nvec[i],)`: 1 where a value may be drawn,
                else 0; in tuples, nested as deep as the space has axes. All zero draws `start[i]`.
            probability: Likewise float64 arrays with sum 1: how likely each value is.

        Returns:
            An array of the space's shape and dtype.

        Raises:
            AssertionError: `mask` or `probability` has another form.
            ValueError: Both were given.
        """
        if mask is None and probability is None:
            rng = self._np_random or self.np_random  # without the property's own call
            drawn = rng.random(self._shape) * self.nvec
            sample: npt.NDArray[IntegerT_cov] = drawn.astype(self.dtype) + self.start
            return sample
        refuse_both(mask, probability)
        name, limit = ("probability", probability) if mask is None else ("mask", mask)
        return np.array(self._draw(limit, name, self.nvec, self.start), self.dtype)

    def _draw(self, limit: Any, name: str, nvec: Any, start: Any) -> Any:
        """Draw what a mask or probability allows, as nested lists of ints."""
        if nvec.ndim:
            if not isinstance(limit, tuple) or len(limit) != len(nvec):
                wanted = f"a tuple of {len(nvec)} entries"
                raise AssertionError(f"{name}: expected {wanted}, found {show_value(limit)}")
            return [
                self._draw(limit[i], f"{name}[{i}]", nvec[i], start[i]) for i in range(len(nvec))
            ]
        if name.startswith("mask"):
            check_mask(limit, name, (int(nvec),))
            allowed = np.flatnonzero(limit)
            index = allowed[self.np_random.integers(allowed.size)] if allowed.size else 0
        else:
            check_probability(limit, name, (int(nvec),))
            allowed = np.flatnonzero(limit)
            index = self.np_random.choice(allowed, p=(limit / np.sum(limit))[allowed])
        return int(start) + int(index)  # NumPy would make a float of int64 and uint64

    def contains(self, x: Any) -> bool:
        """Tell whether `x` is an array, or a sequence that becomes one, within the ranges."""
        array = self._to_array(x)
        if array is None or array.shape != self._shape or not self._holds(array.dtype):
            return False
        last = self.start + (self.nvec - 1)  # an element of the space, so that it cannot wrap
        return bool(
            np.count_nonzero(array >= self.start) == array.size
            and np.count_nonzero(array <= last) == array.size
        )

    def _to_array(self, x: Any) -> npt.NDArray[Any] | None:
        if isinstance(x, np.ndarray):
            return x
        if isinstance(x, Sequence):
            try:
                return np.array(x)
            except Exception:  # ragged, or foreign objects that raise anything
                return None
        return None

    def _holds(self, dtype: np.dtype[Any]) -> bool:
        return dtype == self.dtype or (dtype.kind in "iub" and np.can_cast(dtype, self.dtype))

    def _explain(self, x: Any, name: str) -> str:
        array = self._to_array(x)
        if array is None:
            return mismatch(name, f"an array of dtype {self.dtype}", show_value(x))
        if array.shape != self._shape:
            return mismatch(name, f"shape {self._shape}", f"shape {array.shape}")
        if not self._holds(array.dtype):
            return mismatch(name, f"dtype {self.dtype}", f"dtype {array.dtype}")
        last = self.start + (self.nvec - 1)
        outside = np.argwhere((array < self.start) | (array > last))
        if not len(outside):
            return super()._explain(x, name)
        index = tuple(outside[0].tolist())
        wanted = f"an integer from {self.start[index]} to {last[index]} at index {index}"
        return mismatch(name, wanted, str(array[index]))

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
            warnings.warn(
                f"len() of a MultiDiscrete of shape {self._shape} counts its first axis alone",
                stacklevel=2,
            )
        return len(self.nvec)
