"""How one seed becomes a seed per environment, and the seed of an environment in a restart."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from vecspaces.seeding import derive_seed


def spread_seeds(seed: Any, num_envs: int) -> list[int | None]:
    """Return one seed or None per environment.

    Example:
        >>> spread_seeds(7, 3)
        [7, 8, 9]
    """
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, np.random.SeedSequence):
        return [derive_seed(child) for child in seed.spawn(num_envs)]
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + number for number in range(num_envs)]
    is_array = isinstance(seed, np.ndarray) and seed.ndim > 0
    if not (is_array or isinstance(seed, Sequence)) or isinstance(seed, (str, bytes)):
        raise TypeError(
            "seed must be None, an int, a sequence of one int or None per environment, or a "
            f"numpy.random.SeedSequence, found {type(seed).__name__}"
        )
    if len(seed) != num_envs:
        raise ValueError(f"expected {num_envs} seeds, one per environment, found {len(seed)}")
    return [None if value is None else _as_seed(value, number) for number, value in enumerate(seed)]


def _as_seed(seed: Any, number: int) -> int:
    """Return an integer of Python or NumPy as an int; floats are refused, not rounded."""
    try:
        return operator.index(seed)
    except TypeError:
        raise TypeError(
            f"seed[{number}] must be an int or None, found {type(seed).__name__}"
        ) from None


def restart_seed(seed: int | None, count: int) -> int | None:
    """Return the seed of an environment's restart number `count`, counted from 1."""
    if seed is None:
        return None
    return derive_seed(np.random.SeedSequence(seed, spawn_key=(count,)))
