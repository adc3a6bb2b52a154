"""Composite: the base of the spaces with members, from seeding to paths in errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from vecspaces import seeding
from vecspaces.checks import add_path, mismatch, show_value
from vecspaces.spaces.space import Space, T_cov
from vecspaces.spaces.standard import StandardSpace
from vecspaces.typevars import TypeVar

MemberT = TypeVar("MemberT", covariant=True, default=Any)


class Composite(StandardSpace[T_cov]):
    """A space with members; creating its own generator does not change theirs."""

    _has_fixed_size: ClassVar[bool] = True

    def _members(self) -> Mapping[Any, Space[Any]]:
        """Return the members by their keys."""
        raise NotImplementedError

    @property
    def is_np_flattenable(self) -> bool:
        """Whether every member can be flattened into a vector of a fixed length."""
        members = self._members().values()
        return self._has_fixed_size and all(member.is_np_flattenable for member in members)

    @property
    def np_random(self) -> np.random.Generator:
        """The generator of this space alone, created on first use."""
        # Not by `seed`, as in Space: it would seed the members too, and undo their seeds.
        if self._np_random is None:
            self._np_random, _ = seeding.np_random()
        return self._np_random

    def seed(self, seed: Any = None) -> Any:
        """Seed the generators of this space and of its members.

        Args:
            seed: None for fresh entropy; an int, for this space, from which the seeds of the
                members are drawn; or a list or tuple of the seed of this space and of one seed per
                member, itself nested where a member is.

        Returns:
            The seed of this space, then the seeds of the members.

        Raises:
            TypeError: `seed` is of another type.
            ValueError: `seed` has another length.

        Example:
            >>> from vecspaces.spaces import Discrete, Graph
            >>> Graph(node_space=Discrete(3), edge_space=Discrete(4)).seed((1, 2, 3))
            (1, 2, 3)
        """
        members = list(self._members().values())
        if seed is None or isinstance(seed, int):
            seed = (seed, *self._draw_seeds(seed))
        check_seed_length(seed, 1 + len(members), f"({self._name_seeds()})")
        first = super().seed(seed[0])
        return first, *(seed_member(space, seed[i], i) for i, space in enumerate(members, 1))

    def _name_seeds(self) -> str:
        """Return what each seed of a list is for, for errors."""
        raise NotImplementedError

    def _draw_seeds(self, seed: int | None) -> list[Any]:
        """Return seeds for the members, as Gymnasium draws them; None for each with None."""
        n = len(self._members())
        if seed is None:
            return [None] * n
        super().seed(seed)
        seeds: list[int] = self.np_random.integers(np.iinfo(np.int32).max, size=n).tolist()
        return seeds


class Product(Composite[T_cov]):
    """A space whose values consist of one value of each member, in a dict or a tuple."""

    _container: ClassVar[type[dict[Any, Any]] | type[tuple[Any, ...]]]

    def _build(self, values: Iterable[Any]) -> Any:
        """Put one value of each member together."""
        if self._container is dict:
            return dict(zip(self._members(), values, strict=True))
        return tuple(values)

    def _to_columns(
        self, values: list[Any], convert: Callable[[Space[Any], list[Any]], Any]
    ) -> Any:
        """Return what `convert(member, its values)` returns, in a dict or list."""
        columns = {
            key: convert(space, [value[key] for value in values])
            for key, space in self._members().items()
        }
        if not columns:
            return [{} if self._container is dict else [] for _ in values]
        return columns if self._container is dict else list(columns.values())

    def to_jsonable(self, sample_n: Iterable[Any]) -> Any:
        """Convert values into one JSON-able column per member.

        A space without members, which has no columns, gives one `{}` or `[]` per value.
        """
        return self._to_columns(list(sample_n), lambda space, values: space.to_jsonable(values))

    def from_jsonable(self, sample_n: Any) -> list[Any]:
        """Convert the columns that `to_jsonable` returned back into values."""
        return self._from_columns(sample_n, lambda space, column: space.from_jsonable(column))

    def _from_columns(
        self, sample_n: Any, convert: Callable[[Space[Any], Any], list[Any]]
    ) -> list[Any]:
        """Return values that consist of what `convert(member, its column)` returns."""
        members = self._members()
        if not members:
            return [self._build(()) for _ in sample_n]
        columns: dict[Any, list[Any]] = {}
        for key, space in members.items():
            try:
                column = sample_n[key]
            except (IndexError, KeyError, TypeError) as error:
                expected = f"a column for each of {list(members)}, as to_jsonable gives them"
                shown = f"none for {key!r} in {show_value(sample_n)}"
                raise type(error)(mismatch("sample_n", expected, shown)) from None
            try:
                columns[key] = convert(space, column)
            except Exception as error:
                add_path(error, "sample_n", key)
                raise
        lengths = {key: len(column) for key, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(mismatch("sample_n", "columns of one length", f"lengths {lengths}"))
        return [self._build(row) for row in zip(*columns.values(), strict=True)]

    def _with(self, members: Iterable[Space[Any]], seed: Any = None) -> Any:
        """Return a space of this kind with other members under the same keys."""
        raise NotImplementedError


def check_member(space: Any, where: str) -> None:
    """Raise TypeError unless `space` is a Space."""
    if not isinstance(space, Space):
        raise TypeError(mismatch(where, "a Space", show_value(space)))


def check_members(spaces: Any) -> tuple[Space[Any], ...]:
    """Return the members of a Tuple or OneOf; raise TypeError for anything else."""
    if not isinstance(spaces, Iterable):
        raise TypeError(mismatch("spaces", "an iterable of spaces", show_value(spaces)))
    members = tuple(spaces)
    for i, space in enumerate(members):
        check_member(space, f"spaces[{i}]")
    return members


def seed_member(space: Space[Any], seed: Any, key: str | int) -> Any:
    """Seed a member with its part of a nested seed; an error names the path."""
    try:
        return space.seed(seed)
    except Exception as error:
        add_path(error, "seed", key)
        raise


def check_seed_length(seed: Any, n: int, meaning: str) -> None:
    """Raise TypeError unless `seed` is a list or tuple, and ValueError unless it has `n` seeds."""
    if not isinstance(seed, (list, tuple)):
        expected = f"None, an int, or a list or tuple of {n} seeds {meaning}"
        raise TypeError(mismatch("seed", expected, show_value(seed)))
    if len(seed) != n:
        raise ValueError(mismatch("seed", f"{n} seeds {meaning}", str(len(seed))))


def sample_member(space: Space[Any], word: str, limit: Any, key: str | int) -> Any:
    """Sample a member with its part of a nested mask or probability; an error names the path."""
    try:
        return space.sample(mask=limit) if word == "mask" else space.sample(probability=limit)
    except Exception as error:
        add_path(error, word, key)
        raise


def explain_members(members: Iterable[tuple[Any, Space[Any], Any]], name: str) -> str | None:
    """Return why the first (key, space, value) that does not fit is invalid; None if all fit."""
    answers = (space.explain(value, f"{name}[{key!r}]") for key, space, value in members)
    return next((answer for answer in answers if answer is not None), None)
