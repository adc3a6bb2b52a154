"""Dict: dictionaries with a fixed set of keys, and a space for the value of each key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Any, Generic

import numpy as np

from vecspaces.checks import mismatch, show_value
from vecspaces.spaces.masks import choose_limit
from vecspaces.spaces.nesting import (
    MemberT,
    Product,
    check_member,
    explain_members,
    sample_member,
    seed_member,
)
from vecspaces.spaces.space import Space


class Dict(Product[dict[str, Any]], Mapping[str, Space[MemberT]], Generic[MemberT]):
    """A dictionary of spaces; a value is a dictionary with the same keys.

    The space is itself a mapping from keys to spaces, except for `in`, which means `contains`, as
    for every space.

    Args:
        spaces: A mapping, or a sequence of pairs (key, space); None: only the keywords.
        seed: A seed (see `seed`), or a generator for this space alone.
        sort_keys: Whether the keys of a mapping are sorted, if they can be compared. An
            `OrderedDict`, a sequence of pairs and the keywords keep their order.
        **spaces_kwargs: Further members by name, after those of `spaces`.

    Attributes:
        spaces: The members by key, in the order of sampling and of flattening.
        sort_keys: The argument.

    Raises:
        TypeError: `spaces` is of another type, or a member is not a Space.
        ValueError: A keyword is also a key of `spaces`.

    Example:
        >>> from vecspaces.spaces import Box, Discrete
        >>> space = Dict({"position": Box(-1, 1, shape=(2,)), "color": Discrete(3)}, seed=42)
        >>> space
        Dict('color': Discrete(3), 'position': Box(-1.0, 1.0, (2,), float32))
        >>> space.sample()
        {'color': np.int64(0), 'position': array([-0.3991573 ,  0.21649833], dtype=float32)}
    """

    _container = dict
    spaces: dict[str, Space[MemberT]]
    sort_keys: bool

    def __init__(
        self,
        spaces: Mapping[str, Space[MemberT]] | Sequence[tuple[str, Space[MemberT]]] | None = None,
        seed: dict[str, Any] | int | np.random.Generator | None = None,
        *,
        sort_keys: bool = True,
        **spaces_kwargs: Space[MemberT],
    ) -> None:
        self.sort_keys = sort_keys
        if spaces is None:
            members = {}
        elif isinstance(spaces, Mapping):
            members = dict(spaces.items())
            if sort_keys and not isinstance(spaces, OrderedDict):
                try:
                    members = dict(sorted(members.items()))
                except TypeError:  # keys that cannot be compared keep their order
                    members = dict(spaces.items())
        elif isinstance(spaces, Sequence):
            try:
                members = dict(spaces)
            except (TypeError, ValueError) as error:
                raise type(error)(
                    f"spaces: expected pairs (key, space), found {show_value(spaces)}"
                ) from None
        else:
            raise TypeError(
                "spaces: expected a mapping or a sequence of pairs (key, space), "
                f"found {show_value(spaces)}"
            )
        for key, space in spaces_kwargs.items():
            if key in members:
                raise ValueError(
                    f"{key}: expected a keyword that is not a key of `spaces`, found it in both"
                )
            members[key] = space
        for key, space in members.items():
            check_member(space, f"spaces[{key!r}]")
        self.spaces = members
        super().__init__(None, None, seed)

    @classmethod
    def _arguments_of(cls, space: Any) -> dict[str, Any]:
        # Gymnasium before 1.4 has no `sort_keys`, and always sorts.
        return {"sort_keys": getattr(space, "sort_keys", True), "spaces": space.spaces}

    def _parts(self) -> dict[str, Any]:
        return {"spaces": self.spaces}  # in any order

    def _members(self) -> dict[str, Space[MemberT]]:
        return self.spaces

    def _with(self, members: Iterable[Space[Any]], seed: Any = None) -> Dict[Any]:
        return Dict(
            dict(zip(self.spaces, members, strict=True)), seed=seed, sort_keys=self.sort_keys
        )

    def __getitem__(self, key: str) -> Space[Any]:
        return self.spaces[key]

    def __setitem__(self, key: str, value: Space[Any]) -> None:
        check_member(value, f"spaces[{key!r}]")
        self.spaces[key] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self.spaces)

    def __len__(self) -> int:
        return len(self.spaces)

    def keys(self) -> KeysView[str]:
        """Return a view of the keys."""
        return KeysView(self.spaces)

    def seed(self, seed: int | dict[str, Any] | None = None) -> dict[str, Any]:
        """Seed the generators of the members.

        Args:
            seed: None for fresh entropy; an int, from which the seeds of the members are drawn; or
                a dictionary with a seed per key, itself nested where a member is.

        Returns:
            The seeds of the members by key.

        Raises:
            TypeError: `seed` is of another type.
            ValueError: The keys of `seed` are not those of this space.

        Example:
            >>> from vecspaces.spaces import Discrete
            >>> Dict(a=Discrete(3), b=Discrete(4)).seed({"a": 1, "b": 2})
            {'a': 1, 'b': 2}
        """
        seeds: Any = seed
        if seed is None or isinstance(seed, int):
            seeds = dict(zip(self.spaces, self._draw_seeds(seed), strict=True))
        if not isinstance(seeds, dict):
            expected = f"None, an int or a dict with the keys {list(self.spaces)}"
            raise TypeError(mismatch("seed", expected, show_value(seeds)))
        if seeds.keys() != self.spaces.keys():
            shown = f"the keys {list(seeds)}"
            raise ValueError(mismatch("seed", f"the keys {list(self.spaces)}", shown))
        return {key: seed_member(self.spaces[key], seeds[key], key) for key in seeds}

    def sample(
        self, mask: dict[str, Any] | None = None, probability: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Draw a random value of each member.

        Args:
            mask: A dictionary with a mask, or None, per key.
            probability: A dictionary with probabilities, or None, per key.

        Returns:
            The values by key.

        Raises:
            AssertionError: The mask or probability is not a dictionary with the keys of this space.
            ValueError: Both `mask` and `probability` are passed.
        """
        if mask is None and probability is None:
            return {key: space.sample() for key, space in self.spaces.items()}
        word, limits = choose_limit(mask, probability)
        if not isinstance(limits, dict):
            raise AssertionError(mismatch(word, "a dict", show_value(limits)))
        if limits.keys() != self.spaces.keys():
            shown = f"the keys {list(limits)}"
            raise AssertionError(mismatch(word, f"the keys {list(self.spaces)}", shown))
        return {
            key: sample_member(space, word, limits[key], key) for key, space in self.spaces.items()
        }

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a dict with the keys of this space and values of its members."""
        try:
            if not isinstance(x, dict) or x.keys() != self.spaces.keys():
                return False
            for key, space in self.spaces.items():
                if not space.contains(x[key]):
                    return False
        except Exception:  # a subclass of dict, or a space, may raise anything
            return False
        return True

    def _explain(self, x: Any, name: str) -> str:
        if not isinstance(x, dict):
            return mismatch(name, f"a dict with the keys {list(self.spaces)}", show_value(x))
        missing = [key for key in self.spaces if key not in x]
        unknown = [key for key in x if key not in self.spaces]
        if missing or unknown:
            parts = ((missing, "missing"), (unknown, "besides"))
            shown = " and ".join(f"{keys} {word}" for keys, word in parts if keys)
            return mismatch(name, f"a dict with the keys {list(self.spaces)}", shown)
        members = ((key, space, x[key]) for key, space in self.spaces.items())
        return explain_members(members, name) or super()._explain(x, name)

    def __repr__(self) -> str:
        return "Dict(" + ", ".join(f"{key!r}: {space}" for key, space in self.spaces.items()) + ")"
