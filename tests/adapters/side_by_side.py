"""One run of a vector env, written down, so that two of them can be compared."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np

# Durations differ from run to run. Toy text tells a probability as 1 or as a float: where both meet
# in one batch, Gymnasium cuts 1/3 down to 0, and we do not (docs/gymnasium.md).
_LEFT_OUT = {"t", "_t", "prob", "_prob"}
MODES = list(gymnasium.vector.AutoresetMode)


def run(envs: Any, *, steps: int, seed: int = 7) -> list[Any]:
    """Reset, step with sampled actions, close.

    In DISABLED mode what has ended is reset with a mask.

    Args:
        envs: A Gymnasium vector env, wrapped or not.
        steps: How many steps.
        seed: The seed of environments and actions.

    Returns:
        Everything that reset and step returned; but for what differs on purpose.
    """
    try:
        return _followed(envs, steps, seed)
    finally:
        envs.close()


def _followed(envs: Any, steps: int, seed: int) -> list[Any]:
    disabled = envs.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.DISABLED
    envs.action_space.seed(seed)
    shown = [_plain(envs.reset(seed=seed))]
    for _ in range(steps):
        result = envs.step(envs.action_space.sample())
        shown.append(_plain(result))
        ended = np.logical_or(np.asarray(result[2]), np.asarray(result[3]))
        if disabled and ended.any():
            shown.append(_plain(envs.reset(options={"reset_mask": ended})))
    return shown


def _plain(result: tuple[Any, ...]) -> list[Any]:
    """A copy, its infos in the order of their keys."""
    *arrays, infos = copy.deepcopy(result)
    return [*map(_as_array, arrays), _sorted(infos)]


def _sorted(infos: Any) -> Any:
    if isinstance(infos, dict):
        kept = {key: _sorted(infos[key]) for key in sorted(infos) if key not in _LEFT_OUT}
        if "final_obs" in kept:
            kept["final_obs"] = _with_numpy_scalars(kept["final_obs"])
        return kept
    if isinstance(infos, list):
        return [_sorted(info) for info in infos]
    return infos


def _with_numpy_scalars(value: Any) -> Any:
    """Gymnasium hands on the int that an environment returned; ours is what its space samples."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_with_numpy_scalars(item) for item in value]
    if isinstance(value, tuple):
        return tuple(map(_with_numpy_scalars, value))
    return np.int64(value) if isinstance(value, int) else value


def _as_array(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value
