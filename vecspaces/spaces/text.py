"""Text: strings of bounded length over a set of characters."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from vecspaces.spaces.space import Space, describe, refuse_both

alphanumeric: frozenset[str] = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)


class Text(Space[str]):
    """Strings of `min_length` to `max_length` characters out of `charset`.

    Args:
        max_length: The largest length, in characters.
        min_length: The smallest length.
        charset: The characters; a set is sorted, a string keeps its order.
        seed: A seed, or a generator to draw from.

    Raises:
        TypeError: A length is no integer.
        ValueError: The lengths are negative or in the wrong order, or `charset` holds an element
            that is no single character.

    Example:
        >>> Text(5)
        Text(1, 5, charset=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz)
        >>> import string
        >>> Text(min_length=1, max_length=10, charset=string.digits)
        Text(1, 10, charset=0123456789)
    """

    def __init__(
        self,
        max_length: int,
        *,
        min_length: int = 1,
        charset: frozenset[str] | str = alphanumeric,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        for name, value in (("min_length", min_length), ("max_length", max_length)):
            if not np.issubdtype(type(value), np.integer):
                raise TypeError(f"{name}: expected an integer, found {describe(value)}")
        if min_length < 0:
            raise ValueError(f"min_length: expected at least 0, found {min_length}")
        if min_length > max_length:
            raise ValueError(
                f"min_length: expected at most max_length={max_length}, found {min_length}"
            )
        self.min_length = int(min_length)
        self.max_length = int(max_length)
        ordered = sorted(charset) if isinstance(charset, (set, frozenset)) else charset
        self._char_list = tuple(dict.fromkeys(ordered))
        wrong = [char for char in self._char_list if len(char) != 1]
        if wrong:
            raise ValueError(f"charset: expected single characters, found {wrong}")
        self._char_set = frozenset(self._char_list)
        self._char_index = {char: np.int32(i) for i, char in enumerate(self._char_list)}
        self._char_str = "".join(sorted(self._char_list))
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> Literal[True]:
        """Always True: a value flattens to `max_length` character indices."""
        return True

    @property
    def character_set(self) -> frozenset[str]:
        """The characters as a set."""
        return self._char_set

    @property
    def character_list(self) -> tuple[str, ...]:
        """The characters in the order of their indices."""
        return self._char_list

    def character_index(self, char: str) -> np.int32:
        """The index of a character."""
        return self._char_index[char]

    @property
    def characters(self) -> str:
        """The characters as a sorted string."""
        return self._char_str

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Draw a random string."""
        refuse_both(mask, probability)
        length, weights = mask or probability or (None, None)
        if length is None:
            length = self.np_random.integers(self.min_length, self.max_length + 1)
        count = len(self._char_list)
        weights = np.ones(count) / count if weights is None else weights / np.sum(weights)
        return "".join(self.np_random.choice(self._char_list, size=length, p=weights))

    def contains(self, x: Any) -> bool:
        """Whether `x` is a str of an allowed length, over the characters."""
        return (
            isinstance(x, str)
            and self.min_length <= len(x) <= self.max_length
            and self._char_set.issuperset(x)
        )

    def __repr__(self) -> str:
        return f"Text({self.min_length}, {self.max_length}, charset={self.characters})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Text)
            and self.min_length == other.min_length
            and self.max_length == other.max_length
            and self.character_set == other.character_set
        )
