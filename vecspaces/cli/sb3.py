"""Models of Stable-Baselines3 as policies for `--sb3`, with statistics of VecNormalize."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces.checks import show_value
from vecspaces.interop import require_extra
from vecspaces.sampling import MASK

# What only files of an algorithm contain, by library; a DDPG is saved as a TD3.
_MARKS = {
    "stable_baselines3": {
        "DQN": b"exploration_fraction",
        "SAC": b"target_entropy",
        "TD3": b"policy_delay",
        "PPO": b"n_epochs",
        "A2C": b"gae_lambda",
    },
    "sb3_contrib": {"MaskablePPO": b"common.maskable"},
}


def load_model(path: Path) -> Any:
    """Return a model that Stable-Baselines3 saved; this runs code in the file."""
    try:
        with zipfile.ZipFile(path) as file:
            data = file.read("data")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"--sb3: expected a file that a model was saved to, found {path}: {error}"
        ) from error
    library = "sb3_contrib" if b"sb3_contrib" in data else "stable_baselines3"
    name = next((name for name, mark in _MARKS[library].items() if mark in data), None)
    if name is None:
        raise ValueError(
            f"--sb3: {path} is of none of {', '.join(_MARKS[library])}: write a function that "
            "loads it, and name the function with --policy"
        )
    return getattr(require_extra(library, "sb3"), name).load(path, device="cpu")


def load_statistics(path: Path, model: Any) -> Any:
    """Return what `VecNormalize.save` wrote for a model; this runs code in the file."""
    utils = require_extra("stable_baselines3.common.utils", "sb3")
    try:
        statistics = pickle.loads(path.read_bytes())
        utils.check_shape_equal(statistics.observation_space, model.observation_space)
        return statistics
    except Exception as error:  # a pickle may raise anything
        raise ValueError(
            "--vecnormalize: expected a file that VecNormalize.save wrote for observations of "
            f"{model.observation_space}, found {path}: {error}"
        ) from error


def as_policy(model: Any, statistics: Any = None) -> Callable[..., Any]:
    """Return the deterministic actions of a model, as a `partial` that a journal records."""
    normalize = statistics.normalize_obs if statistics else lambda observations: observations
    choose = _choose_masked if type(model).__name__ == "MaskablePPO" else _choose
    return partial(choose, model, normalize)


def _choose(model: Any, normalize: Any, observations: Any, **masks: Any) -> Any:
    """Return actions; models raise errors of any type for other observations."""
    try:
        return model.predict(normalize(observations), deterministic=True, **masks)[0]
    except Exception as error:
        raise ValueError(
            f"--sb3: the model was trained with observations of {model.observation_space}, and "
            f"cannot take {show_value(observations)} ({type(error).__name__}: {error})"
        ) from error


def _choose_masked(model: Any, normalize: Any, observations: Any, infos: Any) -> Any:
    """Pass on masks as sb3-contrib takes them: one flat row per environment."""
    if not np.all(infos.get(f"_{MASK}", False)):
        raise ValueError(f"--sb3: MaskablePPO needs {MASK!r} in each info, found none")
    masks = infos[MASK]
    if masks.dtype == object:  # the entries of a MultiDiscrete have masks of unequal lengths
        masks = np.array([np.concatenate(mask) for mask in masks])
    return _choose(model, normalize, observations, action_masks=masks.reshape(len(masks), -1))
