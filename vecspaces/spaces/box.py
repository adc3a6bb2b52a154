"""Box: arrays whose entries lie between two bounds, finite or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from vecspaces.errors import VecspacesError
from vecspaces.spaces.space import Space, describe, mismatch

if TYPE_CHECKING:
    import numpy.typing as npt

RealScalar: TypeAlias = "np.floating[Any] | np.integer[Any] | np.bool_"
ScalarT_cov = TypeVar("ScalarT_cov", bound=RealScalar, covariant=True)

_BOUNDS = ("low", "high", "bounded_below", "bounded_above")


class Box(Space["npt.NDArray[ScalarT_cov]"], Generic[ScalarT_cov]):
    """Arrays of one shape and dtype, each entry within its own closed interval.

    Args:
        low: The smallest value of each entry: an array, or a number for all. `-inf` is no bound.
        high: The largest value of each entry: an array, or a number for all. `inf` is no bound.
        shape: The shape; None takes it from `low` or `high`, and `(1,)` if both are numbers.
        dtype: An integer, unsigned, floating or bool dtype.
        seed: A seed, or a generator to draw from.

    Attributes:
        low: The lower bounds, of the space's shape and dtype; read-only, assign to change them.
        high: The upper bounds, likewise.
        bounded_below: Whether each entry has a lower bound; bool, of the space's shape.
        bounded_above: Whether each entry has an upper bound.
        low_repr: How `repr` shows `low`; None until it is needed.
        high_repr: How `repr` shows `high`; None until it is needed.

    Raises:
        TypeError: `shape` is no iterable of integers.
        ValueError: A bound is nan, of the wrong type or shape, beyond the dtype, or low > high.

    Example:
        >>> Box(low=-1.0, high=2.0, shape=(3, 4), dtype=np.float32)
        Box(-1.0, 2.0, (3, 4), float32)
        >>> Box(low=np.array([-1.0, -2.0]), high=np.array([2.0, 4.0]), dtype=np.float32)
        Box([-1. -2.], [2. 4.], (2,), float32)
    """

    dtype: np.dtype[ScalarT_cov]
    low: npt.NDArray[ScalarT_cov]
    high: npt.NDArray[ScalarT_cov]
    bounded_below: npt.NDArray[np.bool_]
    bounded_above: npt.NDArray[np.bool_]
    low_repr: str | None
    high_repr: str | None

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
        self.dtype = np.dtype(dtype)
        if self.dtype.kind not in "iufb":
            raise ValueError(
                f"dtype: expected an integer, floating or bool dtype, found {self.dtype}"
            )
        self._shape = _infer_shape(low, high, shape)
        self.low, self.bounded_below = self._cast_bound("low", low)
        self.high, self.bounded_above = self._cast_bound("high", high)
        if np.any(self.low > self.high):
            raise ValueError(
                f"low, high: expected low <= high everywhere, found low={self.low}, "
                f"high={self.high}"
            )
        self.low_repr = self.high_repr = None
        super().__init__(self._shape, self.dtype, seed)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _BOUNDS:
            value = np.array(value)
            value.flags.writeable = False
            self.__dict__.pop("_drawn", None)
        super().__setattr__(name, value)

    def _cast_bound(
        self, name: str, bound: Any
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Cast one bound to the dtype, and say where it is a bound at all."""
        is_low = name == "low"
        if not _is_number(bound) and not isinstance(bound, np.ndarray):
            raise ValueError(
                f"{name}: expected an array, an int or a float, found {describe(bound)}"
            )
        values = np.asarray(bound)
        if values.dtype.kind == "O":
            values = np.asarray(float(bound)) if values.ndim == 0 else values
        if values.dtype.kind not in "iufb":
            raise ValueError(
                f"{name}: expected an integer, floating or bool array, found dtype {values.dtype}"
            )
        if np.any(np.isnan(values)):
            raise ValueError(f"{name}: expected no nan, found {bound}")
        info: Any = (
            np.finfo(self.dtype)
            if self.dtype.kind == "f"
            else np.iinfo(np.uint8 if self.dtype.kind == "b" else self.dtype)
        )
        limit = info.min if is_low else (1 if self.dtype.kind == "b" else info.max)
        unbounded = np.isneginf(values) if is_low else np.isposinf(values)
        if unbounded.any() and self.dtype.kind in "ub":
            raise ValueError(f"{name}: {self.dtype} has no infinity, found {bound}")
        beyond = values < limit if is_low else values > limit
        if np.any(beyond & ~unbounded):
            raise ValueError(
                f"{name}: expected values within {self.dtype}, whose limit is {limit}, found {bound}"
            )
        shape = self._shape if _is_number(bound) else values.shape
        if shape != self._shape:
            raise ValueError(f"{name}: expected shape {self._shape}, found shape {values.shape}")
        if self.dtype.kind == "i":
            cast = np.where(unbounded, 0, values).astype(self.dtype)
            cast = np.where(unbounded, np.array(limit, self.dtype), cast)
        else:
            cast = values.astype(self.dtype)
        return np.broadcast_to(cast, shape), np.broadcast_to(~unbounded, shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a value."""
        return self._shape  # type: ignore[return-value]  # never None in a Box

    @property
    def is_np_flattenable(self) -> Literal[True]:
        """Always True: a value flattens to as many entries as it has."""
        return True

    def is_bounded(self, manner: Literal["both", "below", "above"] = "both") -> bool:
        """Whether every entry is bounded.

        Args:
            manner: On which side: `"both"`, `"below"` or `"above"`.

        Raises:
            ValueError: `manner` is none of these.

        Example:
            >>> Box(0, np.inf).is_bounded("below"), Box(0, np.inf).is_bounded()
            (True, False)
        """
        below, above = bool(self.bounded_below.all()), bool(self.bounded_above.all())
        answers = {"both": below and above, "below": below, "above": above}
        if manner not in answers:
            raise ValueError(f"manner: expected 'both', 'below' or 'above', found {manner!r}")
        return answers[manner]

    def sample(self, mask: None = None, probability: None = None) -> npt.NDArray[ScalarT_cov]:
        """Draw a random array."""
        if mask is not None or probability is not None:
            raise VecspacesError("mask, probability: a Box takes neither")
        rng = self.np_random
        high: Any = self.high if self.dtype.kind == "f" else self.high.astype("int64") + 1
        low: Any = self.low
        below, above = self.bounded_below, self.bounded_above
        out = np.empty(self.shape)
        neither, both = ~below & ~above, below & above
        out[neither] = rng.normal(size=int(neither.sum()))
        only = below & ~above
        out[only] = rng.exponential(size=int(only.sum())) + low[only]
        only = ~below & above
        out[only] = -rng.exponential(size=int(only.sum())) + high[only]
        out[both] = rng.uniform(low[both], high[both], size=int(both.sum()))
        if self.dtype.kind != "f":
            out = np.floor(out)
        result: Any = out.astype(self.dtype)
        return result  # type: ignore[no-any-return]

    def contains(self, x: Any) -> bool:
        """Whether `x` is an array, or becomes one, of this shape, a safe dtype, within the bounds."""
        if not isinstance(x, np.ndarray):
            try:
                x = np.asarray(x, dtype=self.dtype)
            except Exception:  # a foreign __array__ or __len__ may raise anything
                return False
        return bool(
            np.can_cast(x.dtype, self.dtype)
            and x.shape == self._shape
            and np.all(x >= self.low)
            and np.all(x <= self.high)
        )

    def to_jsonable(self, sample_n: Iterable[npt.NDArray[Any]]) -> list[Any]:
        """Turn arrays into nested lists."""
        return [sample.tolist() for sample in sample_n]

    def from_jsonable(self, sample_n: Iterable[Any]) -> list[Any]:
        """Turn nested lists into arrays of this dtype."""
        return [np.asarray(sample, dtype=self.dtype) for sample in sample_n]

    def __repr__(self) -> str:
        if self.low_repr is None:
            self.low_repr = _short_repr(self.low)
        if self.high_repr is None:
            self.high_repr = _short_repr(self.high)
        return f"Box({self.low_repr}, {self.high_repr}, {self.shape}, {self.dtype})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Box)
            and self.shape == other.shape
            and self.dtype == other.dtype
            and np.allclose(self.low, other.low)
            and np.allclose(self.high, other.high)
        )

    def __setstate__(self, state: Iterable[tuple[str, Any]] | Mapping[str, Any]) -> None:
        super().__setstate__(state)
        for name in _BOUNDS:
            setattr(self, name, self.__dict__[name])


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool)


def _infer_shape(low: Any, high: Any, shape: Any) -> tuple[int, ...]:
    """Take the shape from the argument, from the bounds, or `(1,)` for two numbers."""
    if shape is not None:
        if not isinstance(shape, Iterable):
            raise TypeError(f"shape: expected an iterable of integers, found {describe(shape)}")
        dims = tuple(shape)
        if not all(isinstance(dim, (int, np.integer)) for dim in dims):
            raise TypeError(f"shape: expected integers only, found {dims!r}")
        return tuple(int(dim) for dim in dims)
    arrays = [bound for bound in (low, high) if isinstance(bound, np.ndarray)]
    if len(arrays) == 2 and low.shape != high.shape:
        raise ValueError(
            f"low, high: expected equal shapes, found {low.shape} and {high.shape}"
        )
    if arrays:
        return arrays[0].shape
    if _is_number(low) and _is_number(high):
        return (1,)
    raise ValueError(
        "low, high: expected arrays, ints or floats to take the shape from, "
        f"found {describe(low)} and {describe(high)}"
    )


def _short_repr(array: npt.NDArray[Any]) -> str:
    """Show an array, by one number if all its entries are equal."""
    if array.size and np.min(array) == np.max(array):
        return str(np.min(array))
    return str(array)
