"""Text: strings of bounded length over a set of characters."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import mismatch, show_value
from vecspaces.spaces.masks import check_limit, check_limit_tuple, choose_limit
from vecspaces.spaces.standard import StandardSpace

alphanumeric: frozenset[str] = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)


class _Characters:
    """The characters of a charset in several forms."""

    def __init__(self, characters: str) -> None:
        self.as_tuple = tuple(characters)
        self.as_set = frozenset(characters)
        self.as_str = "".join(sorted(characters))
        self.indices: dict[str, np.int32] = {
            character: np.int32(i) for i, character in enumerate(characters)
        }
        # A uniform number in [0, 1) selects the first character whose end is above it. The sums are
        # rounded as in numpy.random.Generator.choice with equal probabilities.
        sums = np.full(len(characters), 1.0 / max(len(characters), 1)).cumsum()
        self.ends = sums / sums[-1:]


_table = functools.lru_cache(maxsize=256)(_Characters)


class Text(StandardSpace[str]):
    """Strings of `min_length` to `max_length` characters of `charset`.

    Args:
        max_length: The maximum length, in characters.
        min_length: The minimum length.
        charset: The characters; a set is sorted, a string keeps its order.
        seed: A seed, or a generator to draw from.

    Raises:
        TypeError: A length is not an integer, or an element of `charset` is not a str.
        ValueError: The lengths are negative or in the wrong order, or an element of `charset` is no
            single character.

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
                raise TypeError(f"{name}: expected an integer, found {show_value(value)}")
        if min_length < 0:
            raise ValueError(f"min_length: expected at least 0, found {min_length}")
        if min_length > max_length:
            raise ValueError(
                f"min_length: expected at most max_length={max_length}, found {min_length}"
            )
        self.min_length = int(min_length)
        self.max_length = int(max_length)
        # A set's own order differs from process to process; a string keeps its order.
        characters = sorted(charset) if isinstance(charset, (set, frozenset)) else list(charset)
        for character in characters:
            if not isinstance(character, str):
                raise TypeError(f"charset: expected characters, found {show_value(character)}")
            if len(character) != 1:
                raise ValueError(f"charset: expected single characters, found {character!r}")
        # A str is cheap to copy, hash and compare; it is the key of its other forms.
        self._charset = "".join(dict.fromkeys(characters))
        super().__init__(dtype=str, seed=seed)

    @classmethod
    def _arguments_of(cls, space: Any) -> dict[str, Any]:
        return {
            "min_length": space.min_length,
            "max_length": space.max_length,
            "charset": "".join(space.character_list),  # samples depend on the order
        }

    def _parts(self) -> dict[str, Any]:
        return {
            "min_length": self.min_length,
            "max_length": self.max_length,
            "characters": self.characters,  # in any order
        }

    @property
    def _characters(self) -> _Characters:
        return _table(self._charset)

    @property
    def character_set(self) -> frozenset[str]:
        """The characters as a set."""
        return self._characters.as_set

    @property
    def character_list(self) -> tuple[str, ...]:
        """The characters in the order of their indices."""
        return self._characters.as_tuple

    def character_index(self, char: str) -> np.int32:
        """Return the index of a character."""
        return self._characters.indices[char]

    @property
    def characters(self) -> str:
        """The characters as a sorted string."""
        return self._characters.as_str

    def sample(
        self,
        mask: tuple[int | None, npt.NDArray[np.int8] | None] | None = None,
        probability: tuple[int | None, npt.NDArray[np.float64] | None] | None = None,
    ) -> str:
        """Draw a random string, its length and characters uniformly by default.

        Args:
            mask: A pair. The length, or None for a random length; an int8 array with 1 for each
                character of `character_list` that may be drawn, else 0, or None for all.
            probability: A pair. The length, or None; a float64 array with sum 1: the probability of
                each character, or None for equal ones.

        Returns:
            A string; the empty one if all of the mask is 0 and the space contains it.

        Raises:
            AssertionError: `mask` or `probability` has another form.
            ValueError: Both are passed, or no character may be drawn and `min_length` is not 0.
        """
        word, limit = choose_limit(mask, probability)
        length, weights = (None, None) if limit is None else self._check_pair(word, limit)
        if length is None:
            length = self.np_random.integers(self.min_length, self.max_length + 1)
        table = self._characters
        characters = table.as_tuple
        if not characters or (weights is not None and not weights.any()):
            if self.min_length == 0:
                return ""
            expected = f"a character to draw from, as min_length={self.min_length}"
            name = word if characters else "charset"
            raise ValueError(mismatch(name, expected, "none; allow at least one"))
        if weights is None:
            picks = table.ends.searchsorted(self.np_random.random(length), side="right")
        else:
            if word == "mask":
                weights = weights / weights.sum()
            picks = self.np_random.choice(len(characters), size=length, p=weights)
        return "".join([characters[pick] for pick in picks.tolist()])

    def _check_pair(self, word: str, pair: Any) -> tuple[Any, Any]:
        """Return the length and the array of a mask or probability, checked."""
        check_limit_tuple(word, pair, 2)
        length, weights = pair
        if length is not None and not (
            np.issubdtype(type(length), np.integer) and self.min_length <= length <= self.max_length
        ):
            expected = f"None or an integer from {self.min_length} to {self.max_length}"
            raise AssertionError(mismatch(word, expected, show_value(length), (0,)))
        if weights is not None:
            check_limit(word, weights, (len(self._charset),), (1,))
        return length, weights

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a str of an allowed length, with only these characters."""
        if not isinstance(x, str):
            return False
        text = str.__str__(x)  # a subclass may override its length and its characters
        return self.min_length <= len(
            text
        ) <= self.max_length and self._characters.as_set.issuperset(text)

    def _explain(self, x: Any, name: str) -> str:
        if not isinstance(x, str):
            return mismatch(name, "a str", show_value(x))
        text = str.__str__(x)
        if not self.min_length <= len(text) <= self.max_length:
            wanted = f"{self.min_length} to {self.max_length} characters"
            return mismatch(name, wanted, f"{len(text)} in {show_value(text)}")
        unknown = sorted(set(text) - self._characters.as_set)
        if not unknown:
            return super()._explain(x, name)
        return mismatch(name, f"characters of {self.characters!r}", repr("".join(unknown)))

    def __repr__(self) -> str:
        return f"Text({self.min_length}, {self.max_length}, charset={self.characters})"
