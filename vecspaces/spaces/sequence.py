"""Sequence: tuples or batches, of any length, of values of one space."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import mismatch, show_value
from vecspaces.spaces.batch_values import (
    batches_from_jsonable,
    batches_to_jsonable,
    contains_all,
    explain_all,
    stack,
)
from vecspaces.spaces.batching import batch_space
from vecspaces.spaces.masks import choose_limit
from vecspaces.spaces.nesting import Composite, check_member, explain_members, sample_member
from vecspaces.spaces.space import Space


class Sequence(Composite["tuple[Any, ...] | Any"]):
    """Finite sequences, of any length, of values of one space.

    Args:
        space: The space of the elements.
        seed: A seed (see `seed`), or a generator for the lengths alone.
        stack: Whether the elements of a value form a batch, as `batch_space` describes it: one
            array with a leading axis for a Box, a dict of such arrays for a Dict, and so on. False:
            a value is a tuple.

    Attributes:
        feature_space: The space of the elements.
        stack: The argument.
        stacked_feature_space: The space of a batch of one element; only with `stack=True`.

    Raises:
        TypeError: `space` is not a Space.

    Example:
        >>> from vecspaces.spaces import Box
        >>> Sequence(Box(0, 1), seed=0).sample()
        (array([0.6822636], dtype=float32), array([0.18933342], dtype=float32),
         array([0.19049619], dtype=float32))
        >>> Sequence(Box(0, 1), stack=True, seed=0).sample()
        array([[0.6822636 ],
               [0.18933342],
               [0.19049619]], dtype=float32)
    """

    _has_fixed_size = False
    feature_space: Space[Any]
    stack: bool
    stacked_feature_space: Space[Any]

    def __init__(
        self,
        space: Space[Any],
        seed: int | tuple[Any, Any] | np.random.Generator | None = None,
        stack: bool = False,
    ) -> None:
        check_member(space, "space")
        self.feature_space = space
        self.stack = stack
        if stack:
            self.stacked_feature_space = batch_space(space, 1)
        super().__init__(None, None, seed)

    @classmethod
    def _arguments_of(cls, space: Any) -> dict[str, Any]:
        return {"space": space.feature_space, "stack": space.stack}

    def _members(self) -> dict[str, Space[Any]]:
        return {"feature_space": self.feature_space}

    def _name_seeds(self) -> str:
        return "of the lengths and of the elements"

    def sample(
        self, mask: tuple[Any, Any] | None = None, probability: tuple[Any, Any] | None = None
    ) -> tuple[Any, ...] | Any:
        """Draw a random sequence.

        Args:
            mask: A pair: the length, as `generate_sample_length` takes it, and a mask, or None, for
                the elements.
            probability: A pair: the length in the same form, and probabilities, or None, for the
                elements.

        Returns:
            A tuple of the elements, or with `stack=True` a batch.

        Raises:
            AssertionError: The length is negative, or is an array of another shape or dtype.
            TypeError: The length is of another type.
            ValueError: Both `mask` and `probability` are passed.
        """
        if mask is None and probability is None:
            draw = self.feature_space.sample
            values = tuple([draw() for _ in range(self.np_random.geometric(0.25))])
        else:
            word, limits = choose_limit(mask, probability)
            length = self.generate_sample_length(limits[0], word)
            values = tuple(
                sample_member(self.feature_space, word, limits[1], 1) for _ in range(length)
            )
        return stack(self.feature_space, values) if self.stack else values

    def generate_sample_length(
        self,
        length_mask: int | np.integer[Any] | npt.NDArray[np.integer[Any]] | None,
        mask_type: str,
    ) -> Any:
        """Draw the length of a sample.

        Args:
            length_mask: The length itself; an array, shape `(n,)`, of lengths to choose from; or
                None for a geometric distribution of mean 4.
            mask_type: The name of the parameter in errors: `"mask"` or `"probability"`.

        Returns:
            The length.

        Raises:
            AssertionError: A negative length, or an array of another shape or dtype.
            TypeError: `length_mask` is of another type.

        Example:
            >>> from vecspaces.spaces import Discrete
            >>> Sequence(Discrete(3), seed=1).generate_sample_length(np.array([5, 7]), "mask")
            np.int64(5)
        """
        if length_mask is None:
            return self.np_random.geometric(0.25)
        if np.issubdtype(type(length_mask), np.integer):
            if length_mask >= 0:
                return length_mask
            expected = "a length of at least 0"
        elif not isinstance(length_mask, np.ndarray):
            expected = "a length, an array of lengths or None"
            raise TypeError(mismatch(mask_type, expected, show_value(length_mask), (0,)))
        elif length_mask.ndim != 1 or length_mask.dtype.kind not in "iu":
            expected = "an array of integers with one axis"
        elif (length_mask < 0).any():
            expected = "lengths of at least 0"
        else:
            return self.np_random.choice(length_mask)
        raise AssertionError(mismatch(mask_type, expected, show_value(length_mask), (0,)))

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a tuple of elements, or with `stack=True` a batch of them."""
        try:
            if self.stack:
                return contains_all(self.feature_space, x)
            if not isinstance(x, tuple):
                return False
            for value in x:
                if not self.feature_space.contains(value):
                    return False
        except Exception:  # whatever x is, it is not a sequence
            return False
        return True

    def _explain(self, x: Any, name: str) -> str:
        if self.stack:
            return explain_all(self.feature_space, x, name) or super()._explain(x, name)
        if not isinstance(x, tuple):
            return mismatch(name, f"a tuple of values of {self.feature_space!r}", show_value(x))
        elements = ((i, self.feature_space, value) for i, value in enumerate(x))
        return explain_members(elements, name) or super()._explain(x, name)

    def to_jsonable(self, sample_n: Iterable[Any]) -> Any:
        """Convert sequences into lists, as the space of elements, or of batches, writes them."""
        if self.stack:
            return batches_to_jsonable(self.feature_space, list(sample_n))
        return [self.feature_space.to_jsonable(sample) for sample in sample_n]

    def from_jsonable(self, sample_n: Any) -> list[Any]:
        """Convert the lists that `to_jsonable` returned back into sequences."""
        if self.stack:
            return batches_from_jsonable(self.feature_space, sample_n)
        return [tuple(self.feature_space.from_jsonable(sample)) for sample in sample_n]

    def __repr__(self) -> str:
        return f"Sequence({self.feature_space}, stack={self.stack})"
