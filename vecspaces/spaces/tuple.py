"""Tuple: tuples of a fixed length, with a space for each position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, overload

import numpy as np

from vecspaces.checks import mismatch, show_value
from vecspaces.spaces.masks import check_limit_tuple, choose_limit
from vecspaces.spaces.nesting import (
    MemberT,
    Product,
    check_members,
    check_seed_length,
    explain_members,
    sample_member,
    seed_member,
)
from vecspaces.spaces.space import Space


class Tuple(Product[tuple[MemberT, ...]], Sequence[Space[MemberT]], Generic[MemberT]):
    """A tuple of spaces; a value is a tuple with one value of each space.

    The space is itself a sequence of spaces, except for `in`, which means `contains`, as for every
    space.

    Args:
        spaces: The members.
        seed: A seed (see `seed`), or a generator for this space alone.

    Attributes:
        spaces: The members, as a tuple.

    Raises:
        TypeError: `spaces` is not an iterable, or a member is not a Space.

    Example:
        >>> from vecspaces.spaces import Box, Discrete
        >>> space = Tuple((Discrete(2), Box(-1, 1, shape=(2,))), seed=42)
        >>> space.sample()
        (np.int64(0), array([-0.3991573 ,  0.21649833], dtype=float32))
    """

    _container = tuple
    spaces: tuple[Space[MemberT], ...]

    def __init__(
        self,
        spaces: Iterable[Space[MemberT]],
        seed: int | Sequence[Any] | np.random.Generator | None = None,
    ) -> None:
        self.spaces = check_members(spaces)
        super().__init__(None, None, seed)

    def _members(self) -> dict[int, Space[MemberT]]:
        return dict(enumerate(self.spaces))

    def _with(self, members: Iterable[Space[Any]], seed: Any = None) -> Tuple[Any]:
        return Tuple(members, seed=seed)

    @overload
    def __getitem__(self, index: int) -> Space[MemberT]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Space[MemberT], ...]: ...
    def __getitem__(self, index: int | slice) -> Space[MemberT] | tuple[Space[MemberT], ...]:
        return self.spaces[index]

    def __len__(self) -> int:
        return len(self.spaces)

    def seed(self, seed: int | Sequence[Any] | None = None) -> tuple[Any, ...]:
        """Seed the generators of the members.

        Args:
            seed: None for fresh entropy; an int, from which the seeds of the members are drawn; or
                a list or tuple with a seed per member, itself nested where a member is.

        Returns:
            The seeds of the members.

        Raises:
            TypeError: `seed` is of another type.
            ValueError: `seed` has another length than this space.

        Example:
            >>> from vecspaces.spaces import Discrete
            >>> Tuple((Discrete(3), Discrete(4))).seed([1, 2])
            (1, 2)
        """
        seeds: Any = seed
        if seed is None or isinstance(seed, int):
            seeds = self._draw_seeds(seed)
        check_seed_length(seeds, len(self.spaces), "(one for each member)")
        return tuple(seed_member(space, seeds[i], i) for i, space in enumerate(self.spaces))

    def sample(
        self, mask: tuple[Any, ...] | None = None, probability: tuple[Any, ...] | None = None
    ) -> tuple[MemberT, ...]:
        """Draw a random value of each member.

        Args:
            mask: A tuple with a mask, or None, per member.
            probability: A tuple with probabilities, or None, per member.

        Returns:
            The values.

        Raises:
            AssertionError: The mask or probability is not a tuple with an entry per member.
            ValueError: Both `mask` and `probability` are passed.
        """
        if mask is None and probability is None:
            return tuple([space.sample() for space in self.spaces])
        word, limits = choose_limit(mask, probability)
        check_limit_tuple(word, limits, len(self.spaces))
        return tuple(
            sample_member(space, word, limits[i], i) for i, space in enumerate(self.spaces)
        )

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a tuple, list or array with a value of each member."""
        try:
            if not isinstance(x, (tuple, list, np.ndarray)) or len(x) != len(self.spaces):
                return False
            for space, value in zip(self.spaces, x, strict=True):
                if not space.contains(value):
                    return False
        except Exception:  # an array without axes, or a class whose methods raise anything
            return False
        return True

    def _explain(self, x: Any, name: str) -> str:
        n = len(self.spaces)
        if not isinstance(x, (tuple, list, np.ndarray)) or (
            isinstance(x, np.ndarray) and not x.ndim
        ):
            return mismatch(name, f"a tuple of {n} values", show_value(x))
        if len(x) != n:
            return mismatch(name, f"a tuple of {n} values", f"{len(x)} values")
        members = zip(range(n), self.spaces, x, strict=True)
        return explain_members(members, name) or super()._explain(x, name)

    def __repr__(self) -> str:
        return "Tuple(" + ", ".join(map(str, self.spaces)) + ")"
