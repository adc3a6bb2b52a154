"""Space: the base class of all spaces.

The methods of every space are in this order: construction, `shape`, `is_np_flattenable` and
the properties of that space alone, `seed`, `sample`, `contains` and `_explain`, `to_jsonable` and
`from_jsonable`, `__repr__`, `__eq__`, `__getstate__` and `__setstate__`, then the methods that make
a space a container.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from vecspaces import seeding
from vecspaces.checks import mismatch, show_value

T_cov = TypeVar("T_cov", covariant=True)


class Space(Generic[T_cov]):
    """A set of values that can be sampled, tested for membership, and written as JSON.

    A subclass overrides `is_np_flattenable`, `sample` and `contains`; one whose values are nested
    also overrides `seed` and `_explain`.

    Args:
        shape: The shape of a value if values are arrays, else None.
        dtype: The dtype of a value if values are arrays, else None.
        seed: A seed (see `seed`), or a generator, which is used as it is.

    Attributes:
        dtype: The dtype as `numpy.dtype`, or None.

    Example:
        >>> space = Space(shape=(2, 3), dtype="float32")
        >>> space.shape, space.dtype
        ((2, 3), dtype('float32'))
    """

    dtype: np.dtype[Any] | None
    _shape: tuple[int, ...] | None
    _np_random: np.random.Generator | None

    def __init__(
        self,
        shape: Sequence[int] | None = None,
        dtype: npt.DTypeLike | None = None,
        seed: Any | None = None,
    ) -> None:
        self._shape = None if shape is None else tuple(shape)
        self.dtype = None if dtype is None else np.dtype(dtype)
        self._np_random = None
        if isinstance(seed, np.random.Generator):
            self._np_random = seed
        elif seed is not None:
            self.seed(seed)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a value; None if values are not arrays of one shape."""
        return self._shape

    @property
    def is_np_flattenable(self) -> bool:
        """Whether every value can be flattened into a vector of a fixed length."""
        raise NotImplementedError(f"{type(self).__name__} does not define is_np_flattenable")

    @property
    def np_random(self) -> np.random.Generator:
        """The generator that samples are drawn from, created on first use."""
        if self._np_random is None:
            self.seed()
        if self._np_random is None:  # a space whose `seed` seeds its members alone
            self._np_random, _ = seeding.np_random()
        return self._np_random

    def seed(self, seed: int | None = None) -> Any:
        """Seed the generator, and those of the members of a composite space.

        Args:
            seed: A non-negative int, or None for fresh entropy; composite spaces also take nested
                seeds.

        Returns:
            The seed that was used, an int, or a tuple or dict of seeds for a composite space.

        Raises:
            VecspacesError: The seed is negative or not a Python integer.

        Example:
            >>> Space().seed(7)
            7
        """
        self._np_random, used = seeding.np_random(seed)
        return used

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> T_cov:
        """Draw a random value of this space.

        Args:
            mask: Which values may be drawn, in the form that the subclass defines. Excludes
                `probability`.
            probability: How likely each value is, in the form that the subclass defines. Excludes
                `mask`.

        Returns:
            A value that the space contains.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define sample")

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a value of this space; no, if its methods raise an `Exception`."""
        raise NotImplementedError(f"{type(self).__name__} does not define contains")

    def __contains__(self, x: Any) -> bool:
        """Return whether `x` is a value of this space: `x in space`."""
        return self.contains(x)

    def explain(self, x: Any, name: str = "") -> str | None:
        """Return why `x` is not a value of this space.

        Args:
            x: Any object.
            name: The name of `x` in the answer, such as `"observation"`. A composite space extends
                it to the path of the first leaf that does not fit: `observation['camera']['left']`.

        Returns:
            None if `contains(x)` is True; otherwise the path, the expected and the actual value.

        Example:
            >>> from vecspaces.spaces import Discrete
            >>> Discrete(3).explain(2) is None
            True
            >>> Discrete(3).explain(3, name="action")
            'action: expected an integer from 0 to 2 (int64), found 3 of type int'
        """
        if self.contains(x):
            return None
        try:
            return str(self._explain(x, name))
        except Exception:  # x may be of any class, and its methods may raise anything
            return str(Space._explain(self, x, name))

    def _explain(self, x: Any, name: str) -> str:
        """Return why `contains` is False for `x`.

        A composite space calls `explain` of each member, with `name` extended by `[key]`, and
        returns the first answer that is not None, or else calls this method.
        """
        return mismatch(name, f"a value of {self!r}", show_value(x))

    def to_jsonable(self, sample_n: Iterable[Any]) -> Any:
        """Convert a batch of values into objects that `json.dumps` can write.

        Args:
            sample_n: Values of this space.

        Returns:
            Lists, dicts, numbers and strings; `from_jsonable` is the inverse.
        """
        return list(sample_n)

    def from_jsonable(self, sample_n: Any) -> list[Any]:
        """Convert the result of `to_jsonable` back into the batch of values, dtypes included.

        Args:
            sample_n: What `to_jsonable` returned, or what `json.loads` made of its text.

        Returns:
            The values.
        """
        return list(sample_n)

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        attributes = {} if self.shape is None else {"shape": self.shape}
        attributes |= {
            name: value
            for name, value in vars(self).items()
            if value is not None and not name.startswith("_")
        }
        shown = ", ".join(f"{name}={_show(value)}" for name, value in attributes.items())
        return f"{type(self).__name__}({shown})"

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        attributes = dict(state)
        if isinstance(dtype := attributes.get("dtype"), np.dtype):
            # A pickle contains a copy of NumPy's own dtype object, which all samples would then
            # have; dtypes are compared by identity, which is fast.
            attributes["dtype"] = dtype if dtype.kind == "V" else np.dtype(dtype.str)
        self.__dict__.update(attributes)


def _show(value: Any) -> str:
    """Write an attribute of a space for its `repr`."""
    if isinstance(value, np.ndarray):
        return show_value(value)
    return str(value) if isinstance(value, (np.dtype, Space)) else reprlib.repr(value)
