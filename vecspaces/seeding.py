"""Seeded random number generators: the one place where a seed becomes a stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecspaces.errors import VecspacesError


def np_random(seed: int | None = None) -> tuple[np.random.Generator, Any]:
    """Make a generator from a seed; the stream is that of `gymnasium.utils.seeding.np_random`.

    Args:
        seed: A non-negative Python integer, or None for fresh entropy from the operating system.

    Returns:
        The generator, and the seed that repeats it: `seed` itself, or the entropy that was drawn.

    Raises:
        VecspacesError: `seed` is negative or is no Python integer.

    Example:
        >>> generator, seed = np_random(42)
        >>> seed, generator.integers(10, size=5).tolist()
        (42, [0, 7, 6, 4, 4])
    """
    if seed is not None:
        if not isinstance(seed, int):
            raise VecspacesError(
                f"seed: expected a Python int or None, found {seed!r} of type "
                f"{type(seed).__name__}; convert it with int(seed)"
            )
        if seed < 0:
            raise VecspacesError(f"seed: expected an int that is not negative, found {seed}")
    sequence = np.random.SeedSequence(seed)
    return np.random.Generator(np.random.PCG64(sequence)), sequence.entropy
