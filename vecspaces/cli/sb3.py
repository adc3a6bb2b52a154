"""Models of Stable-Baselines3 as policies for `--sb3`, with statistics of VecNormalize."""

from __future__ import annotations

import importlib
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.evaluation import Evaluation
from vecspaces.interop import require_extra
from vecspaces.sampling import MASK

# The first key that a model's file contains determines its algorithm. DDPG is a TD3 with other
# settings.
_ALGORITHMS = {
    "DQN": "exploration_fraction",
    "SAC": "target_entropy",
    "TD3": "policy_delay",
    "PPO": "n_epochs",
    "A2C": "gae_lambda",
}
# Names that only files of these algorithms of sb3-contrib contain.
_CONTRIB = {
    "MaskablePPO": b"sb3_contrib.common.maskable",
    "RecurrentPPO": b"sb3_contrib.common.recurrent",
}
_HEAD_BYTES = 4096
# A mean return is far below that of training if it is lower by more than the standard deviation
# and by more than this share.
_FAR = 0.1


def load_model(path: Path) -> Any:
    """Return a model that Stable-Baselines3 saved; this runs code in the file."""
    library = require_extra("stable_baselines3", "sb3")
    try:
        with zipfile.ZipFile(path) as file:
            data = file.read("data")
            saved = json.loads(data)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"--sb3: expected a file that a model was saved to, found {path}: {error}"
        ) from error
    for name, module in _CONTRIB.items():
        if module in data:
            try:
                contrib = importlib.import_module("sb3_contrib")
            except ModuleNotFoundError as error:
                raise ImportError(
                    f"--sb3: {path} is of {name}: pip install sb3-contrib", name="sb3_contrib"
                ) from error
            return getattr(contrib, name).load(path, device="cpu")
    # The keys of its other algorithms, such as QRDQN, are among these.
    for name, key in _ALGORITHMS.items() if b"sb3_contrib" not in data else ():
        if key in saved:
            return getattr(library, name).load(path, device="cpu")
    raise ValueError(
        f"--sb3: {path} is of none of {', '.join(_ALGORITHMS)}: load it in a function of your own, "
        "and name that with --policy"
    )


def load_statistics(path: Path, model: Any) -> Any:
    """Return what `VecNormalize.save` wrote for a model; this runs code in the file."""
    library = require_extra("stable_baselines3.common.vec_env", "sb3")
    try:
        with path.open("rb") as file:
            found = pickle.load(file)
    except Exception as error:  # a pickle may raise anything
        raise ValueError(
            f"--vecnormalize: expected a file that VecNormalize.save wrote, found {path}: {error}"
        ) from error
    if not isinstance(found, library.VecNormalize):
        raise ValueError(
            f"--vecnormalize: expected a file that VecNormalize.save wrote, found {path} with an "
            f"object of type {type(found).__name__}"
        )
    wanted, shape = (_shape_of(one.observation_space) for one in (model, found))
    if wanted != shape:
        raise ValueError(
            f"--vecnormalize: expected statistics of observations of shape {wanted}, as the model "
            f"takes them, found {path} of shape {shape}"
        )
    return found


def _shape_of(space: Any) -> Any:
    """Return the shape of a space, or the shapes of a Dict's members by key."""
    if hasattr(space, "spaces"):
        return {key: member.shape for key, member in space.spaces.items()}
    return space.shape


def as_policy(model: Any, statistics: Any = None, rows: int = 1) -> Callable[..., Any]:
    """Return a function of a batch of observations, which it first normalises by the statistics.

    The result is a `partial`, so that a journal records whether there were statistics. A recurrent
    model is always called with this number of `rows`.
    """
    name = type(model).__name__
    normalize = None if statistics is None else statistics.normalize_obs
    if name == "RecurrentPPO":
        memory = _Memory(rows)
        policy = partial(_choose_by_memory, model, normalize, memory)
        vars(policy)["reset"] = memory.reset  # which makes it a policy with a state
        return policy
    return partial(_choose_within_masks if name == "MaskablePPO" else _choose, model, normalize)


def _choose(model: Any, normalize: Any, observations: Any, **masks: Any) -> Any:
    if normalize is not None:
        observations = normalize(observations)
    return model.predict(observations, deterministic=True, **masks)[0]


class _Memory:
    """The states of a recurrent model, by the environments' rows, and which episodes begin."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.states: dict[int, Any] = {}  # by the first row of each batch
        self.begins: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    def reset(self, rows: npt.NDArray[Any]) -> None:
        """Note that episodes begin in some rows, the first time in all."""
        if not len(self.begins):
            self.begins = np.zeros(len(rows), np.bool_)
        self.begins[rows] = True


def _choose_by_memory(model: Any, normalize: Any, memory: _Memory, observations: Any) -> Any:
    """Choose the actions of all rows; results vary with the batch size, which is always one."""
    if normalize is not None:
        observations = normalize(observations)
    count, actions = len(memory.begins), []
    for first in range(0, count, memory.size):
        at = np.minimum(np.arange(first, first + memory.size), count - 1)
        is_dict = isinstance(observations, dict)
        chosen, memory.states[first] = model.predict(
            {key: part[at] for key, part in observations.items()} if is_dict else observations[at],
            state=memory.states.get(first),
            episode_start=memory.begins[at],
            deterministic=True,
        )
        actions.append(chosen)
    memory.begins[:] = False
    return np.concatenate(actions)[:count]


def _choose_within_masks(model: Any, normalize: Any, observations: Any, infos: Any) -> Any:
    return _choose(model, normalize, observations, action_masks=_flat_masks(infos))


def _flat_masks(infos: Any) -> Any:
    """Return the masks of a batch as sb3-contrib takes them: one flat row per environment."""
    given = infos.get(f"_{MASK}")
    if given is None or not given.all():
        raise ValueError(
            f"--sb3: MaskablePPO needs a mask for every action: expected {MASK!r} in each info "
            "that reset and step return, found none (a method action_masks is not called)"
        )
    masks = infos[MASK]
    if masks.dtype == object:  # the entries of a MultiDiscrete have masks of unequal lengths
        masks = np.array([np.concatenate(mask) for mask in masks])
    return masks.reshape(len(masks), -1)


def warnings_before(path: Path, env: str, model: Any, statistics: Any) -> Iterator[str]:
    """Yield reasons why a model's observations may differ from those of its training."""
    normalized = _was_under_vecnormalize(model)
    if statistics is not None:
        if normalized is False and statistics.norm_obs:
            yield f"{path} was trained without VecNormalize: leave --vecnormalize out"
    elif normalized is not False:
        files = [str(file) for file in _statistics_beside(path, env)]
        if normalized:
            found = f" ({', '.join(files)} beside it)" if files else ""
            yield (
                f"{path} was trained under VecNormalize, whose statistics are not applied here: "
                f"pass --vecnormalize FILE that VecNormalize.save wrote{found}"
            )
        elif files:
            yield (
                f"{path} may have been trained under VecNormalize, as {', '.join(files)} beside it "
                f"shows: if so, pass --vecnormalize {files[0]}"
            )


def warnings_after(model: Any, result: Evaluation) -> Iterator[str]:
    """Yield a warning if the mean return is far below that of the model's training."""
    trained = [episode["r"] for episode in model.ep_info_buffer or ()]
    if trained:
        mean, spread = float(np.mean(trained)), max(float(np.std(trained)), result.std_return)
        if mean - result.mean_return > max(spread, _FAR * abs(mean)):
            yield (
                f"the mean return of the last {len(trained)} episodes of training was {mean:,.2f}: "
                "what differs is the environment, its arguments, wrappers around it, or the "
                "statistics of VecNormalize (--vecnormalize)"
            )


def _was_under_vecnormalize(model: Any) -> bool | None:
    """Return whether a model was trained under VecNormalize; None if that is unknown."""
    seen, original = (getattr(model, name, None) for name in ("_last_obs", "_last_original_obs"))
    if seen is None:
        return None
    if hasattr(model, "gae_lambda"):  # on-policy models keep the original under VecNormalize only
        return original is not None
    # Off-policy models always keep it, so check whether their observations are outside of their
    # space.
    space = model.observation_space
    if not isinstance(seen, dict):
        return None if _holds(space, seen) else True
    return None if all(_holds(space[key], part) for key, part in seen.items()) else True


def _holds(space: Any, batch: Any) -> bool:
    """Whether a space contains each row of a batch; VecNormalize changes the dtype to float32."""
    return batch.dtype == space.dtype and all(space.contains(row) for row in batch)


def _statistics_beside(path: Path, env: str) -> Iterator[Path]:
    """Yield pickles of VecNormalize in the usual places, without unpickling them."""
    for folder in dict.fromkeys((path.parent, path.parent / path.stem, path.parent / env)):
        for file in sorted(folder.glob("*.pkl")):
            with file.open("rb") as content:
                if b"vec_normalize" in content.read(_HEAD_BYTES):
                    yield file
