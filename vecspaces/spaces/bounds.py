"""Intervals: bounds cast to a dtype, and samples between them, exact also at a dtype's limits."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import show_value

FloatArray = npt.NDArray[np.float64]


def is_number(x: Any) -> bool:
    """Return whether `x` is an int or a float, of Python or of NumPy; a bool is not."""
    return isinstance(x, (int, float, np.integer, np.floating)) and not isinstance(x, bool)


@functools.cache
def dtype_limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest finite number of a dtype, as Python numbers."""
    if dtype.kind == "b":
        return 0, 1
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return np.array(info.min).item(), np.array(info.max).item()


def cast_bound(
    name: str, bound: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return a bound as an array of the dtype, and a mask of the entries that are bounds.

    `-inf` as `"low"` and `inf` as `"high"` are not bounds. ValueError: the bound is nan, of another
    type or shape, or beyond the dtype on its own side; OverflowError: it is beyond the dtype on the
    other side, so that no value is within.
    """
    infinity = -np.inf if name == "low" else np.inf
    values: Any
    unbounded: Any
    if is_number(bound):
        values = bound.item() if isinstance(bound, np.generic) else bound
        unbounded = values == infinity
        extremes = [] if unbounded else [values]
    elif isinstance(bound, np.ndarray):
        values = np.asarray(bound)
        if values.dtype.kind not in "iufb":
            raise ValueError(f"{name}: expected numbers or bools, found {show_value(bound)}")
        if values.shape != shape:
            raise ValueError(f"{name}: expected shape {shape}, found shape {values.shape}")
        unbounded = np.asarray(values == infinity)
        finite = values[~unbounded]
        # As Python numbers, which compare exactly: in float64, 2**63 is not beyond int64's largest.
        extremes = np.array([finite.min(), finite.max()]).tolist() if finite.size else []
    else:
        raise ValueError(f"{name}: expected an array, int or float, found {show_value(bound)}")
    smallest, largest = dtype_limits(dtype)
    if any(extreme != extreme for extreme in extremes):
        raise ValueError(f"{name}: expected no nan, found {bound}")
    if dtype.kind in "ub" and np.any(unbounded):
        raise ValueError(f"{name}: {dtype} holds no {infinity}, found {bound}")
    if extremes:
        below, above = extremes[0] < smallest, extremes[-1] > largest
        is_bound_infinite = below if name == "low" else above
        if is_bound_infinite or (dtype.kind != "f" and (below or above)):
            error = ValueError if is_bound_infinite else OverflowError
            raise error(f"{name}: expected {smallest} to {largest} ({dtype}), found {bound}")
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.kind == "i" and np.any(unbounded):
            array = np.full(shape, smallest if name == "low" else largest, dtype)
            np.copyto(array, values, casting="unsafe", where=~np.asarray(unbounded))
        else:
            array = np.full(shape, values, dtype)
    bounded = np.full(shape, np.logical_not(unbounded))
    array.flags.writeable = bounded.flags.writeable = False
    return array, bounded


def cast_exactly(name: str, values: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return values as an array of an integer dtype; raise OverflowError where NumPy would wrap."""
    raw = np.asarray(values)
    if raw.dtype.kind in "mM":
        raw = raw.view(np.int64)  # NumPy casts times by their ticks, and wraps those too
    # NumPy 1.26 only warns of Python ints that wrap, where NumPy 2 raises: an array is cast then.
    array = np.array(raw if raw.dtype.kind in "iu" else values, dtype=dtype)
    if raw.dtype.kind in "iuf" and np.any(np.trunc(raw) != array):
        smallest, largest = dtype_limits(dtype)
        raise OverflowError(f"{name}: expected {smallest} to {largest} ({dtype}), found {values}")
    return array


def all_equal(array: npt.NDArray[Any]) -> bool:
    """Return whether there are entries and all are equal."""
    return bool(array.size and (array == array.flat[0]).all())


class BoxSampler:
    """Draws arrays between bounds, from Gymnasium's stream."""

    def __init__(
        self,
        low: npt.NDArray[Any],
        high: npt.NDArray[Any],
        bounded_below: npt.NDArray[np.bool_],
        bounded_above: npt.NDArray[np.bool_],
        dtype: np.dtype[Any],
    ) -> None:
        # Bounds that were assigned, or unpickled, may be of another dtype.
        low, high = low.astype(dtype, copy=False), high.astype(dtype, copy=False)
        self._low, self._high = low, high
        self._shape, self._dtype = low.shape, dtype
        bottom, top = _ends(low.reshape(-1), high.reshape(-1))
        below, above = bounded_below.reshape(-1), bounded_above.reshape(-1)
        # The stream is float64: the entries without bounds, then those with a lower bound alone,
        # with an upper bound alone, and with both (for integers: uniform on [low, high + 1),
        # rounded down).
        self._groups = [
            _Group(law, None if mask.all() else np.flatnonzero(mask), bottom[mask], top[mask])
            for law, mask in (
                ("normal", ~below & ~above),
                ("exponential", below & ~above),
                ("reflected", ~below & above),
                ("uniform", below & above),
            )
            if mask.any()
        ]
        # With u < 1, u * top is less than top, but low + u * (top - low) may round up to it.
        self._exact = all(group.law == "scaled" for group in self._groups) and np.all(top <= 2**53)
        # float64 skips some integers and longdoubles: those results are clipped once more.
        self._coarse = low.dtype.itemsize > 8 or any(
            group.law == "halved" for group in self._groups
        )
        self._ends: Any = None
        if self._dtype.kind in "iu" and not self._exact:
            self._coarse = bool(np.any(np.abs(bottom) >= 2**53) or np.any(top >= 2**53))
            smallest, largest = dtype_limits(self._dtype)
            if self._coarse:  # float(largest) is one more than the largest value
                self._ends = smallest, np.nextafter(float(largest), 0.0)
            else:
                self._ends = bottom, high.reshape(-1).astype(np.float64)

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw an array; a scalar for integers and bools of shape (), as Gymnasium does."""
        if len(self._groups) == 1 and self._groups[0].where is None:
            drawn = self._groups[0].draw(rng)
        else:
            drawn = np.empty(self._low.size)
            for group in self._groups:
                drawn[group.where] = group.draw(rng)
        if self._dtype.kind == "b":
            drawn = np.greater_equal(drawn, 1.0)
        elif self._ends is not None:
            np.floor(drawn, out=drawn)
            np.maximum(drawn, self._ends[0], out=drawn)
            np.minimum(drawn, self._ends[1], out=drawn)
        result: Any = drawn.astype(self._dtype, copy=False).reshape(self._shape)
        if self._coarse:
            np.clip(result, self._low, self._high, out=result)
        return result if self._shape or self._dtype.kind == "f" else result[()]


class _Group:
    """Draws entries of one distribution by one call; `where`: their flat indices; None: all."""

    def __init__(self, law: str, where: Any, low: FloatArray, high: FloatArray) -> None:
        if law == "uniform":
            high = high + 0.0  # 0.0: a range from 0.0 to -0.0 is negative for `Generator.uniform`
            with np.errstate(over="ignore"):
                overflows = bool(np.isinf(high - low).any())
            if overflows:  # the range is beyond float64: halve the bounds, double what is drawn
                law, low, high = "halved", low / 2, high / 2
            elif (low == 0).all() and (high > 0).all():
                law = "scaled"  # the same product with one pass less
        self.law, self.where, self._count = law, where, len(low)
        equal = all_equal(low) and all_equal(high)
        self._low: Any = low[0].item() if equal else low
        self._high: Any = high[0].item() if equal else high

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """Draw a flat float64 array."""
        if self.law == "scaled":
            drawn = rng.random(self._count)
            drawn *= self._high
        elif self.law == "uniform":
            drawn = rng.uniform(self._low, self._high, self._count)
        elif self.law == "halved":
            drawn = rng.uniform(self._low, self._high, self._count)
            drawn *= 2.0
        elif self.law == "normal":
            drawn = rng.normal(size=self._count)
        elif self.law == "exponential":
            drawn = rng.exponential(size=self._count)
            drawn += self._low
        else:
            drawn = rng.exponential(size=self._count)
            np.subtract(self._high, drawn, out=drawn)
        return drawn


def _ends(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the intervals to draw from as float64: high + 1 for integers."""
    if high.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return low.astype(np.float64), high.astype(np.float64)
    widest = np.dtype(np.uint64 if high.dtype.kind == "u" else np.int64)
    above = (high.astype(widest) + 1).astype(np.float64)
    above[high == np.iinfo(widest).max] = 2.0 ** (64 if widest.kind == "u" else 63)  # it wrapped
    return low.astype(np.float64), above
