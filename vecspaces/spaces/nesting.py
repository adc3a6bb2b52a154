"""What the composite spaces share: checked members, seeds for them, and paths in errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vecspaces import seeding
from vecspaces.checks import show_value
from vecspaces.spaces.space import Space, T_cov, refuse_both

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    MemberT = TypeVar("MemberT", covariant=True, default=Any)
else:
    from typing import TypeVar

    MemberT = TypeVar("MemberT", covariant=True)


class Composite(Space[T_cov]):
    """A space with members, whose generators are not touched when its own is made."""

    @property
    def np_random(self) -> np.random.Generator:
        """The generator of this space alone, made when it is first needed."""
        # Not by `seed`, as in Space: it would start the members anew, and undo their seeds.
        if self._np_random is None:
            self._np_random, _ = seeding.np_random()
        return self._np_random


def check_member(space: Any, where: str) -> None:
    """Raise TypeError unless `space` is a Space.

    Example:
        >>> check_member(3, "spaces['camera']")
        Traceback (most recent call last):
        ...
        TypeError: spaces['camera']: expected a Space, found 3 of type int
    """
    if not isinstance(space, Space):
        raise TypeError(f"{where}: expected a Space, found {show_value(space)}")


def member_seeds(generator: np.random.Generator, n: int) -> list[int]:
    """Draw seeds for `n` members, as Gymnasium's composite spaces draw them.

    Example:
        >>> member_seeds(np.random.default_rng(0), 2)
        [1826701614, 1367864806]
    """
    seeds: list[int] = generator.integers(np.iinfo(np.int32).max, size=n).tolist()
    return seeds


def add_path(error: Exception, word: str, step: str) -> None:
    """Put `step` into the path that the message of `error` begins with, as it passes a member by.

    Args:
        error: What a member raised; its message is changed in place, its type stays.
        word: The parameter that was handed down: `"seed"`, `"mask"` or `"probability"`.
        step: Where the member sits: `"['camera']"`, `"[0]"`.

    Example:
        >>> error = ValueError("mask['left'][0]: expected 0 or 1, found 7")
        >>> add_path(error, "mask", "['camera']")
        >>> print(error)
        mask['camera']['left'][0]: expected 0 or 1, found 7
        >>> error = ValueError("too large")
        >>> add_path(error, "mask", "[0]")
        >>> print(error)
        mask[0]: too large
    """
    if not (error.args and isinstance(error.args[0], str)):
        return
    message = error.args[0]
    rest = message[len(word) :]
    # `mask: ...` and `mask[0]...` go on with a path; `mask, probability: ...` or `masks` do not.
    if message.startswith(word) and rest[:1] in {":", "[", "."}:
        message = f"{word}{step}{rest}"
    else:
        message = f"{word}{step}: {message}"
    error.args = (message, *error.args[1:])


def seed_member(space: Space[Any], seed: Any, step: str) -> Any:
    """Seed a member with its share of a nested seed; an error names the path."""
    try:
        return space.seed(seed)
    except Exception as error:
        add_path(error, "seed", step)
        raise


def sample_member(space: Space[Any], word: str, limit: Any, step: str) -> Any:
    """Sample a member with its share of a nested mask or probability; an error names the path.

    Args:
        space: The member.
        word: `"mask"` or `"probability"`.
        limit: The member's mask or probability; None: it is sampled freely.
        step: Where the member sits: `"['camera']"`, `"[0]"`.
    """
    try:
        return space.sample(mask=limit) if word == "mask" else space.sample(probability=limit)
    except Exception as error:
        add_path(error, word, step)
        raise


def columns_from_jsonable(members: Mapping[Any, Space[Any]], sample_n: Any) -> list[list[Any]]:
    """Turn one column for each member back into its values.

    Args:
        members: The members by key or place.
        sample_n: The columns by key or place.

    Raises:
        KeyError, IndexError, TypeError: There is no column for a member.
        ValueError: The columns have different lengths.
    """
    columns: list[list[Any]] = []
    for key, space in members.items():
        try:
            column = sample_n[key]
        except (IndexError, KeyError, TypeError) as error:
            message = (
                f"sample_n: expected a column for each of {list(members)}, as to_jsonable gives "
                f"them, found none for {key!r} in {show_value(sample_n)}"
            )
            raise type(error)(message) from None
        try:
            columns.append(space.from_jsonable(column))
        except Exception as error:
            add_path(error, "sample_n", f"[{key!r}]")
            raise
    lengths = {key: len(column) for key, column in zip(members, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"sample_n: expected columns of one length, found lengths {lengths}")
    return columns


def choose_limit(mask: Any, probability: Any) -> tuple[str, Any]:
    """Tell which of the two was given: `("mask", mask)` or `("probability", probability)`.

    Raises:
        ValueError: Both were given.
    """
    refuse_both(mask, probability)
    return ("probability", probability) if mask is None else ("mask", mask)


def check_limit_tuple(limit: Any, word: str, n: int) -> None:
    """Raise AssertionError unless `limit` is a tuple with an entry for each of `n` members."""
    if not isinstance(limit, tuple):
        raise AssertionError(f"{word}: expected a tuple of {n} entries, found {show_value(limit)}")
    if len(limit) != n:
        raise AssertionError(f"{word}: expected a tuple of {n} entries, found {len(limit)}")


def check_seed_length(seed: Any, n: int, meaning: str) -> None:
    """Raise unless `seed` is a list or tuple of `n` seeds.

    Raises:
        TypeError: `seed` is of another type.
        ValueError: `seed` has another length.
    """
    if not isinstance(seed, (list, tuple)):
        raise TypeError(
            f"seed: expected None, an int, or a list or tuple of {n} seeds {meaning}, "
            f"found {show_value(seed)}"
        )
    if len(seed) != n:
        raise ValueError(f"seed: expected {n} seeds {meaning}, found {len(seed)}")
