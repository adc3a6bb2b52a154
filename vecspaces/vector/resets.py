"""What the arguments of `reset` mean: which environments, with which seeds and options."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Options = Mapping[str, Any]


class ResetPlan(NamedTuple):
    """One reset, spelled out.

    Attributes:
        rows: The environments to reset.
        seeds: One per environment, reset or not.
        options: One mapping or None per environment.
        keep_options: Whether autoresets get them too.
    """

    rows: npt.NDArray[np.intp]
    seeds: list[int | None]
    options: list[Options | None]
    keep_options: bool


def plan_reset(seed: Any, options: Any, num_envs: int) -> ResetPlan:
    """Spell out the arguments of `reset`.

    Args:
        seed: None, an int (environment i gets seed + i), one int or None per environment, or a
            `numpy.random.SeedSequence`, which is spawned so that runs never overlap.
        options: None, one mapping for all, or one mapping or None per environment. The key
            `"reset_mask"` of one mapping chooses the environments to reset.
        num_envs: The number of environments.

    Returns:
        The plan; the caller's mapping is left as it is.

    Raises:
        TypeError: A seed or mask of the wrong type.
        ValueError: A wrong number of seeds or options, or a mask of the wrong shape.
    """
    seeds = spread_seeds(seed, num_envs)
    rows = np.arange(num_envs, dtype=np.intp)
    if options is None:
        return ResetPlan(rows, seeds, [None] * num_envs, False)
    if isinstance(options, Mapping):
        if "reset_mask" in options:
            rows = _masked_rows(options["reset_mask"], num_envs)
            options = {key: value for key, value in options.items() if key != "reset_mask"}
        return ResetPlan(rows, seeds, [options] * num_envs, False)
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise TypeError(
            f"options must be a mapping, or a sequence of one mapping or None per environment, "
            f"found {type(options).__name__}"
        )
    if len(options) != num_envs:
        raise ValueError(f"expected {num_envs} options, one per environment, found {len(options)}")
    for number, given in enumerate(options):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(
                f"options[{number}] must be a mapping or None, found {type(given).__name__}"
            )
        if given is not None and "reset_mask" in given:
            raise ValueError(
                f"options[{number}] holds a reset_mask, which belongs to all environments: give "
                "one mapping of options, or reset all environments"
            )
    return ResetPlan(rows, seeds, list(options), True)


def spread_seeds(seed: Any, num_envs: int) -> list[int | None]:
    """Give each environment its seed.

    Example:
        >>> spread_seeds(7, 3)
        [7, 8, 9]
    """
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, np.random.SeedSequence):
        return [int(child.generate_state(1)[0]) for child in seed.spawn(num_envs)]
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + number for number in range(num_envs)]
    if not isinstance(seed, (Sequence, np.ndarray)) or isinstance(seed, (str, bytes)):
        raise TypeError(
            "seed must be None, an int, a sequence of one int or None per environment, or a "
            f"numpy.random.SeedSequence, found {type(seed).__name__}"
        )
    if len(seed) != num_envs:
        raise ValueError(f"expected {num_envs} seeds, one per environment, found {len(seed)}")
    return [None if one is None else _as_seed(one, number) for number, one in enumerate(seed)]


def _as_seed(seed: Any, number: int) -> int:
    """Take an integer, of Python or NumPy, and nothing that would have to be rounded."""
    try:
        return operator.index(seed)
    except TypeError:
        raise TypeError(
            f"seed[{number}] must be an int or None, found {type(seed).__name__}"
        ) from None


def _masked_rows(mask: Any, num_envs: int) -> npt.NDArray[np.intp]:
    """Check a mask as Gymnasium does, and give the rows that it chooses."""
    what = "options['reset_mask']"
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"{what} must be a numpy array, found {type(mask).__name__}")
    if mask.shape != (num_envs,):
        raise ValueError(f"{what} must have shape ({num_envs},), found {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"{what} must have dtype bool, found {mask.dtype}")
    if not mask.any():
        raise ValueError(f"{what} must choose at least one environment, found none")
    return np.flatnonzero(mask)
