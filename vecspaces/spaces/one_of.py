"""OneOf: a value of one of several spaces, with the index of the space."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic

import numpy as np

from vecspaces.checks import mismatch, show_value
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.masks import check_limit_tuple, choose_limit
from vecspaces.spaces.nesting import Composite, MemberT, check_members, sample_member
from vecspaces.spaces.sequence import Sequence
from vecspaces.spaces.space import Space
from vecspaces.spaces.tuple import Tuple


class OneOf(Composite[tuple[int, MemberT]], Generic[MemberT]):
    """The tagged union of spaces; a value is a pair of an index and a value of that member.

    Args:
        spaces: One or more members.
        seed: A seed (see `seed`), or a generator for the index alone.

    Attributes:
        spaces: The members, as a tuple.

    Raises:
        TypeError: `spaces` is not an iterable, or a member is not a Space.
        ValueError: `spaces` is empty.

    Example:
        >>> from vecspaces.spaces import Box, Discrete
        >>> space = OneOf((Discrete(2), Box(-1, 1, shape=(2,))), seed=123)
        >>> space.sample()
        (np.int64(0), np.int64(0))
        >>> space.sample()
        (np.int64(1), array([-0.00711833, -0.7257502 ], dtype=float32))
    """

    spaces: tuple[Space[MemberT], ...]

    def __init__(
        self,
        spaces: Iterable[Space[MemberT]],
        seed: int | tuple[Any, ...] | np.random.Generator | None = None,
    ) -> None:
        self.spaces = check_members(spaces)
        if not self.spaces:
            raise ValueError("spaces: expected at least one space, found none")
        super().__init__(None, None, seed)

    def _members(self) -> dict[int, Space[MemberT]]:
        return dict(enumerate(self.spaces))

    def __getitem__(self, index: int) -> Space[MemberT]:
        return self.spaces[index]

    def __len__(self) -> int:
        return len(self.spaces)

    def _name_seeds(self) -> str:
        return "of the index and of each member"

    def sample(
        self, mask: tuple[Any, ...] | None = None, probability: tuple[Any, ...] | None = None
    ) -> tuple[int, MemberT]:
        """Draw a random member, with equal probabilities, and a random value of it.

        Args:
            mask: A tuple with a mask, or None, per member.
            probability: A tuple with probabilities, or None, per member.

        Returns:
            The index, an `np.int64`, and the value.

        Raises:
            AssertionError: The mask or probability is not a tuple with an entry per member.
            ValueError: Both `mask` and `probability` are passed.
        """
        index: Any = self.np_random.integers(0, len(self.spaces), dtype=np.int64)
        space = self.spaces[index]
        if mask is None and probability is None:
            return index, space.sample()
        word, limits = choose_limit(mask, probability)
        check_limit_tuple(word, limits, len(self.spaces))
        return index, sample_member(space, word, limits[index], int(index))

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a pair of an index and a value of that member."""
        try:
            return bool(
                isinstance(x, tuple)
                and len(x) == 2
                and isinstance(x[0], (np.int64, int))
                and 0 <= x[0] < len(self.spaces)
                and self.spaces[x[0]].contains(x[1])
            )
        except Exception:  # a subclass of tuple, or a space, may raise anything
            return False

    def _explain(self, x: Any, name: str) -> str:
        if not isinstance(x, tuple):
            return mismatch(name, "a tuple (index, value)", show_value(x))
        if len(x) != 2:
            return mismatch(name, "a tuple (index, value)", f"{len(x)} entries")
        index, value = x
        if not isinstance(index, (np.int64, int)) or not 0 <= index < len(self.spaces):
            last = len(self.spaces) - 1
            return mismatch(f"{name}[0]", f"an int or np.int64 from 0 to {last}", show_value(index))
        return self.spaces[index].explain(value, f"{name}[1]") or super()._explain(x, name)

    def to_jsonable(self, sample_n: Iterable[tuple[int, Any]]) -> list[Any]:
        """Convert values into pairs of the index and the value as its member writes it."""
        pairs: list[Any] = []
        for index, value in sample_n:
            jsonable = self.spaces[index].to_jsonable([value])
            pairs.append([int(index), jsonable[0] if _by_value(self.spaces[index]) else jsonable])
        return pairs

    def from_jsonable(self, sample_n: Any) -> list[tuple[int, Any]]:
        """Convert the pairs that `to_jsonable` returned back into values."""
        values: list[Any] = []
        for index, jsonable in sample_n:
            space = self.spaces[index]
            batch = [jsonable] if _by_value(space) else jsonable
            values.append((np.int64(index), space.from_jsonable(batch)[0]))
        return values

    def __repr__(self) -> str:
        return "OneOf(" + ", ".join(map(str, self.spaces)) + ")"


def _by_value(space: Space[Any]) -> bool:
    """Return whether the only item of `to_jsonable([value])` is the whole value, not one column."""
    if isinstance(space, Sequence) and space.stack:
        return _by_value(space.feature_space)
    if isinstance(space, Dict):
        return not len(space)
    return not isinstance(space, Tuple) or len(space) <= 1
