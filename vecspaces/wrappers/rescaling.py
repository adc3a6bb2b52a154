"""Affine maps between the bounds of two boxes, for the wrappers that rescale."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.spaces import Box

Bound = float | np.floating[Any] | np.integer[Any] | npt.NDArray[Any]


class Rescaling(NamedTuple):
    """A map of values into a box, per component: `gradient * value + intercept`."""

    box: Box
    gradient: npt.NDArray[Any]
    intercept: npt.NDArray[Any]

    def apply(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Map a batch of values."""
        changed: npt.NDArray[Any] = self.gradient * values + self.intercept
        return changed

    def undo(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Map a batch of values back."""
        changed: npt.NDArray[Any] = (np.asarray(values) - self.intercept) / self.gradient
        return changed


def rescaling(box: Box, low: Bound, high: Bound, names: tuple[str, str]) -> Rescaling:
    """Return the map of a box to other bounds; `names` are those of the arguments.

    A component with an infinite bound is only shifted.
    """
    low = _as_bound(box, low, names[0])
    high = _as_bound(box, high, names[1])
    for name, new, old in ((names[0], low, box.low), (names[1], high, box.high)):
        unbounded = np.isinf(new) | np.isinf(old)
        if not np.array_equal(new[unbounded], old[unbounded]):
            raise ValueError(
                f"{name}: expected the same infinities as in {box}, found {new}: a component "
                "without a bound keeps none"
            )
    if not np.all(low <= high):
        raise ValueError(f"{names[0]}: expected at most {names[1]}={high}, found {low}")
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    both = has_low & has_high
    # The difference of two bounds may exceed the range of the dtype.
    width = box.high[both].astype(np.longdouble) - box.low[both].astype(np.longdouble)
    gradient = np.ones(box.shape, box.dtype)
    exact = (high[both] - low[both]) / width
    gradient[both] = exact
    if not np.issubdtype(box.dtype, np.floating) and np.any(gradient[both] != exact):
        raise ValueError(
            f"{names[0]}, {names[1]}: expected whole multiples of the bounds of {box}, whose dtype "
            f"has no fractions, found {low.min()} and {high.max()}: cast it to floats before, with "
            "DtypeObservation, or use a function of your own (TransformObservation, "
            "TransformAction)"
        )
    intercept = np.zeros(box.shape, box.dtype)
    intercept[has_high] = high[has_high] - box.high[has_high]
    intercept[has_low] = gradient[has_low] * -box.low[has_low] + low[has_low]
    return Rescaling(Box(low, high, box.shape, box.dtype), gradient, intercept)


def _as_bound(box: Box, bound: Any, name: str) -> npt.NDArray[Any]:
    """Check one bound, and repeat a number for all components."""
    if not isinstance(bound, np.ndarray):
        if isinstance(bound, bool) or not isinstance(bound, (int, float, np.integer, np.floating)):
            raise TypeError(f"{name}: expected a number or a NumPy array, found {bound!r}")
        bound = np.full(box.shape, bound)
    array: npt.NDArray[Any] = bound
    if array.shape != box.shape:
        raise ValueError(f"{name}: expected the shape {box.shape}, found {array.shape}")
    return array
