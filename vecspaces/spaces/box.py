"""Box: arrays whose entries are between two bounds, finite or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, cast

import numpy as np
import numpy.typing as npt

from vecspaces.checks import mismatch, show_value
from vecspaces.errors import VecspacesError
from vecspaces.spaces.array_space import ArraySpace, ScalarT_cov
from vecspaces.spaces.bounds import (
    BoxSampler,
    all_equal,
    cast_bound,
    cast_exactly,
    dtype_limits,
    is_number,
)
from vecspaces.spaces.space import Space

_BOUNDS = ("low", "high", "bounded_below", "bounded_above")
_MINIMUM_FASTER_FROM = 1024  # entries; a comparison has a temporary array


class Box(ArraySpace[ScalarT_cov], Generic[ScalarT_cov]):
    """Arrays of one shape and dtype, each entry within its own closed interval.

    Args:
        low: The smallest value of each entry: an array, or a number for all. `-inf`: unbounded.
        high: The largest value of each entry: an array, or a number for all. `inf`: unbounded.
        shape: The shape; None takes it from `low` or `high`, and `(1,)` if both are numbers.
        dtype: An integer, unsigned, floating or bool dtype.
        seed: A seed, or a generator to draw from.

    Attributes:
        low: The lower bounds, of the space's shape and dtype; read-only, assign an array to change
            them.
        high: The upper bounds, in the same form.
        bounded_below: Whether each entry has a lower bound; bool, of the space's shape.
        bounded_above: Whether each entry has an upper bound.
        low_repr: `low` as `repr` shows it; None before the first call of `repr`.
        high_repr: `high` as `repr` shows it; None before the first call of `repr`.

    Raises:
        TypeError: `shape` is not an iterable of integers.
        ValueError: A bound is nan, of the wrong type or shape, beyond the dtype, or low > high.
        OverflowError: `low` is above, or `high` below, the values of an integer dtype.

    Example:
        >>> Box(low=-1.0, high=2.0, shape=(3, 4), dtype=np.float32)
        Box(-1.0, 2.0, (3, 4), float32)
        >>> Box(low=np.array([-1.0, -2.0]), high=np.array([2.0, 4.0]), dtype=np.float32)
        Box([-1. -2.], [2. 4.], (2,), float32)
    """

    _kinds = "iufb"
    low: npt.NDArray[ScalarT_cov]
    high: npt.NDArray[ScalarT_cov]
    bounded_below: npt.NDArray[np.bool_]
    bounded_above: npt.NDArray[np.bool_]
    low_repr: str | None
    high_repr: str | None
    _sampler: BoxSampler | None
    _limits: tuple[Any, Any, bool] | None

    def __init__(
        self,
        low: Any,
        high: Any,
        shape: Sequence[int] | None = None,
        dtype: npt.DTypeLike = np.float32,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if dtype is None:
            raise ValueError("dtype: expected a dtype, found None; float32 is the default")
        try:
            self.dtype = np.dtype(cast("Any", dtype))
        except TypeError:
            raise TypeError(f"dtype: expected a NumPy dtype, found {dtype!r}") from None
        if self.dtype.kind not in "iufb":
            raise ValueError(f"dtype: expected integer, floating or bool, found {self.dtype}")
        self._shape = _infer_shape(low, high, shape)
        self.low, self.bounded_below = cast_bound("low", low, self._shape, self.dtype)
        self.high, self.bounded_above = cast_bound("high", high, self._shape, self.dtype)
        if np.greater(self.low, self.high).any():
            raise ValueError(
                f"low, high: expected low <= high, found low={self.low}, high={self.high}"
            )
        super().__init__(self._shape, self.dtype, seed)

    @classmethod
    def of_bounds(
        cls,
        low: npt.NDArray[Any],
        high: npt.NDArray[Any],
        bounded_below: npt.NDArray[np.bool_],
        bounded_above: npt.NDArray[np.bool_],
        seed: np.random.Generator | None = None,
    ) -> Box[Any]:
        """Make a Box of bounds that need no check, because they come from another space."""
        box = cls.__new__(cls)
        Space.__init__(box, low.shape, low.dtype, seed)
        box.low, box.high = low, high
        box.bounded_below, box.bounded_above = bounded_below, bounded_above
        return box

    def __setattr__(self, name: str, value: Any) -> None:
        # Bounds are read-only copies, so that compiled results stay valid.
        if name in _BOUNDS:
            value = np.asarray(value)
            if value.flags.writeable or value.base is not None:
                # By its name, which gives NumPy's own dtype object, because a pickle contains a
                # copy of it.
                value = value.astype(value.dtype.str)
                value.flags.writeable = False
            self.__dict__.update(_sampler=None, _limits=None, low_repr=None, high_repr=None)
        super().__setattr__(name, value)

    def is_bounded(self, manner: Literal["both", "below", "above"] = "both") -> bool:
        """Return whether every entry is bounded.

        Args:
            manner: On which side: `"both"`, `"below"` or `"above"`.

        Raises:
            ValueError: `manner` is none of these.

        Example:
            >>> Box(0, np.inf).is_bounded("below"), Box(0, np.inf).is_bounded()
            (True, False)
        """
        below, above = bool(self.bounded_below.all()), bool(self.bounded_above.all())
        if manner not in ("both", "below", "above"):
            raise ValueError(f"manner: expected 'both', 'below' or 'above', found {manner!r}")
        return {"both": below and above, "below": below, "above": above}[manner]

    def sample(self, mask: None = None, probability: None = None) -> npt.NDArray[ScalarT_cov]:
        """Draw a random array; the distribution of each entry depends on its bounds.

        It is uniform between two bounds, exponential from one bound, and normal without bounds;
        integers are rounded down.

        Args:
            mask: Must be None.
            probability: Must be None.

        Returns:
            An array of the space's shape and dtype; for an integer space of shape (), a scalar.

        Raises:
            VecspacesError: A mask or a probability was passed.

        Example:
            >>> Box(0, 255, shape=(2, 2), dtype=np.uint8, seed=1).sample()
            array([[131, 243],
                   [ 36, 242]], dtype=uint8)
        """
        for word, limit in (("mask", mask), ("probability", probability)):
            if limit is not None:
                raise VecspacesError(mismatch(word, "None for a Box", show_value(limit)))
        if self._sampler is None:
            self._sampler = BoxSampler(
                self.low, self.high, self.bounded_below, self.bounded_above, self.dtype
            )
        sample: npt.NDArray[ScalarT_cov] = self._sampler.draw(self.np_random)
        return sample

    def contains(self, x: Any) -> bool:
        """Return whether `x` converts to an array of this shape and dtype, within the bounds."""
        if type(x) is not np.ndarray:
            x = self._to_array(x)
        if x is None or x.shape != self._shape or not self._holds(x.dtype):
            return False
        low, high, agree = self._limits or self._find_limits()
        if agree:
            return bool((low is None or x.min() >= low) and (high is None or x.max() <= high))
        return bool(
            (low is None or np.count_nonzero(x >= low) == x.size)
            and (high is None or np.count_nonzero(x <= high) == x.size)
        )

    def _to_array(self, x: Any) -> npt.NDArray[Any] | None:
        """Return a value as a plain array, of this dtype if it is none; None if not possible."""
        try:
            if isinstance(x, np.ndarray) or (isinstance(x, np.generic) and x.dtype == self.dtype):
                return np.asarray(x)
            with np.errstate(all="ignore"):
                if self.dtype.kind in "iu":
                    return cast_exactly("x", x, self.dtype)
                return np.asarray(x, dtype=self.dtype)
        except Exception:  # x may be of any class, and its methods may raise anything
            return None

    def _bounds(self) -> tuple[Any, Any]:
        return self.low, self.high

    def _find_limits(self) -> tuple[Any, Any, bool]:
        """Return the limits that `contains` must test; None for a side that the dtype ensures."""
        smallest, largest = (
            (-np.inf, np.inf) if self.dtype.kind == "f" else dtype_limits(self.dtype)
        )
        low: Any = None if np.all(self.low == smallest) else self.low
        high: Any = None if np.all(self.high == largest) else self.high
        if low is None and high is None and self.dtype.kind == "f":
            high = self.high  # the comparison refuses NaN alone
        agree = self.low.size >= _MINIMUM_FASTER_FROM and all(
            bound is None or all_equal(bound) for bound in (low, high)
        )
        if agree:
            low, high = (bound if bound is None else bound.flat[0] for bound in (low, high))
        self._limits = low, high, agree
        return self._limits

    def __repr__(self) -> str:
        if self.low_repr is None:
            self.low_repr = _short_repr(self.low)
        if self.high_repr is None:
            self.high_repr = _short_repr(self.high)
        return f"Box({self.low_repr}, {self.high_repr}, {self.shape}, {self.dtype})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sampler": None, "_limits": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(state)
        for name in _BOUNDS:  # copies come back writeable
            setattr(self, name, self.__dict__[name])


def _infer_shape(low: Any, high: Any, shape: Any) -> tuple[int, ...]:
    """Return the shape: the argument, that of the bounds, or `(1,)` for two numbers."""
    if shape is not None:
        if not isinstance(shape, Iterable):
            raise TypeError(f"shape: expected an iterable of integers, found {show_value(shape)}")
        sides = tuple(shape)
        if not all(isinstance(side, (int, np.integer)) for side in sides):
            raise TypeError(f"shape: expected integers only, found {sides}")
        if any(side < 0 for side in sides):
            raise ValueError(f"shape: expected no negative side, found {sides}")
        return tuple(int(side) for side in sides)
    shapes = [bound.shape for bound in (low, high) if isinstance(bound, np.ndarray)]
    if len(set(shapes)) == 2:
        raise ValueError(f"low, high: expected equal shapes, found {shapes[0]} and {shapes[1]}")
    if shapes:
        return tuple(shapes[0])
    if is_number(low) and is_number(high):
        return (1,)
    raise ValueError(
        "shape: expected a shape, or arrays or numbers as low and high to take it from, found "
        f"low={show_value(low)} and high={show_value(high)}"
    )


def _short_repr(array: npt.NDArray[Any]) -> str:
    """Write an array, as one number if all its entries are equal."""
    return str(np.min(array)) if all_equal(array) else str(array)
