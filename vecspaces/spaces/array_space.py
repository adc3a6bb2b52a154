"""ArraySpace: the base of Box, MultiBinary and MultiDiscrete: arrays of one shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.checks import mismatch, show_value
from vecspaces.spaces.standard import StandardSpace
from vecspaces.typevars import TypeVar

ScalarT_cov = TypeVar("ScalarT_cov", bound=np.generic, covariant=True, default=Any)


class ArraySpace(StandardSpace[npt.NDArray[ScalarT_cov]], Generic[ScalarT_cov]):
    """A space of arrays of one shape and dtype, with bounds for each entry."""

    _kinds: ClassVar[str] = "iub"
    """The kinds of dtype that are taken where they can be cast safely."""

    dtype: np.dtype[ScalarT_cov]
    _shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a value."""
        return self._shape

    def _bounds(self) -> tuple[Any, Any]:
        """Return the smallest and the largest value of each entry."""
        raise NotImplementedError

    def _to_array(self, x: Any) -> npt.NDArray[Any] | None:
        """Return a value as a plain array, whose operators do not raise; None if not possible."""
        try:
            if isinstance(x, np.ndarray):  # of a subclass, such as one of quantities with units
                return np.asarray(x)
            return np.array(x) if isinstance(x, (Sequence, np.generic)) else None
        except Exception:  # ragged, or objects whose methods raise anything
            return None

    def _holds(self, dtype: np.dtype[Any]) -> bool:
        return dtype == self.dtype or (dtype.kind in self._kinds and np.can_cast(dtype, self.dtype))

    def _explain(self, x: Any, name: str) -> str:
        array = self._to_array(x)
        if array is None:
            return mismatch(name, f"an array of dtype {self.dtype}", show_value(x))
        if array.shape != self._shape:
            return mismatch(name, f"shape {self._shape}", f"shape {array.shape}")
        expected, shown = [], []
        if not self._holds(array.dtype):
            expected.append(f"dtype {self.dtype}")
            shown.append(f"dtype {array.dtype}")
        if array.dtype.kind in "biuf":  # others have no order
            low, high = (np.broadcast_to(bound, self._shape) for bound in self._bounds())
            outside = ~((array >= low) & (array <= high))
            if self.dtype.kind in "iu":
                outside |= array != np.trunc(array)
            if outside.any():
                index = tuple(np.argwhere(outside)[0].tolist())
                entry = "an integer" if self.dtype.kind in "iu" else "a value"
                expected.append(f"{entry} from {low[index]} to {high[index]} at index {index}")
                shown.append(str(array[index]))
        if not expected:
            return super()._explain(x, name)
        return mismatch(name, " and ".join(expected), " and ".join(shown))

    def to_jsonable(self, sample_n: Iterable[npt.NDArray[Any]]) -> list[Any]:
        """Convert arrays into nested lists."""
        return [np.asarray(sample).tolist() for sample in sample_n]

    def from_jsonable(self, sample_n: Iterable[Any]) -> list[Any]:
        """Convert nested lists into arrays of this dtype."""
        arrays = [np.array(sample, dtype=self.dtype) for sample in sample_n]
        # The lists of an array of shape (0, 3) do not contain the 3.
        return [array if array.size else array.reshape(self._shape) for array in arrays]
