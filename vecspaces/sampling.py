"""Random actions within masks: for many rows with their merged infos, or for one environment."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import Path, check_count, mismatch, show_value
from vecspaces.interop import foreign_values, native_space
from vecspaces.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from vecspaces.vector import AutoresetMode, VectorEnv, infos_as_list
from vecspaces.vector.utils import concatenate

#: The key of infos, and of an `info_space`, under which environments give their masks.
MASK = "action_mask"


def sample_actions(
    single_action_space: Any,
    num_rows: int,
    infos: Mapping[str, Any] | None = None,
    *,
    rng: np.random.Generator | None = None,
) -> Any:
    """Draw a batch of random actions that respects `infos["action_mask"]`.

    Args:
        single_action_space: The action space of one environment, of vecspaces or of Gymnasium.
        num_rows: The number of actions.
        infos: The infos that `reset`, `step` or `recv` returned for these rows. Row i of
            `infos["action_mask"]` is a mask as the space's `sample(mask=)` takes it, of any dtype:
            for a Discrete, zeros and ones of shape `(n,)`; for a MultiDiscrete, one such mask per
            entry, or all of them in one flat array; for a MultiBinary, an array of its shape, with
            2 for entries that are free; for a Dict or Tuple, a mask for each member, or for some.
            Other spaces have no masks. Rows in which `infos["_action_mask"]` is False are not
            masked. Without the key `action_mask`, no row is masked.
        rng: The generator to draw from; None: the generators of `single_action_space`.

    Returns:
        The actions, as a vector env takes them.

    Raises:
        TypeError: `infos` is not a dict, or `rng` is not a generator.
        ValueError: A mask has another form, or allows no action (the message names the row); or
            `infos["_action_mask"]` is not an array of one bool per row.

    Example:
        >>> from vecspaces.spaces import Discrete
        >>> masks = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0]])
        >>> has_mask = np.array([True, True, False])  # the last row has no mask
        >>> infos = {"action_mask": masks, "_action_mask": has_mask}
        >>> sample_actions(Discrete(3), 3, infos, rng=np.random.default_rng(5))
        array([2, 1, 2])
        >>> sample_actions(Discrete(3), 3, {"action_mask": masks})
        Traceback (most recent call last):
            ...
        ValueError: row 2: action_mask: expected a 1 for an action that is allowed, found [0 0 0]
    """
    space = native_space(single_action_space)
    count = check_count("num_rows", num_rows, least=0)
    if infos is not None and not isinstance(infos, Mapping):
        raise TypeError(
            f"infos: expected a dict, as a vector env returns it, found {show_value(infos)}"
        )
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng: expected a numpy.random.Generator, found {show_value(rng)}")
    has_mask = (infos or {}).get(f"_{MASK}")
    if has_mask is not None and not (
        isinstance(has_mask, np.ndarray)
        and has_mask.dtype == np.bool_
        and has_mask.shape == (count,)
    ):
        expected = f"a bool array of shape ({count},)"
        raise ValueError(f"infos['_{MASK}']: expected {expected}, found {show_value(has_mask)}")
    if rng is None and space is not single_action_space:
        # The conversion has a copy of the state, from which each call would draw the same.
        rng = single_action_space.np_random
    infos = infos or {}
    actions = _draw_indices(space, count, infos, rng) if isinstance(space, Discrete) else None
    if actions is None:
        if rng is not None:
            space = copy.deepcopy(space)
            space.seed(int(rng.integers(2**31)))
        masks = enumerate(masks_as_list(infos, count))
        drawn = [draw_action(space, info, f"row {row}") for row, info in masks]
        actions = concatenate(space, drawn, None)
    translate = foreign_values(single_action_space)
    return actions if translate is None else translate(actions)


def masks_as_list(infos: Mapping[str, Any], num_rows: int) -> list[dict[str, Any]]:
    """Return one info per row, which contains nothing but the row's mask, if there is a mask."""
    rows = infos_as_list({MASK: infos[MASK]} if MASK in infos else {}, num_rows)
    has_mask = infos.get(f"_{MASK}")
    if has_mask is None:
        return rows
    # Not left to `infos_as_list`: the caller may exclude rows that a nested dict still includes.
    return [row if there else {} for row, there in zip(rows, has_mask, strict=True)]


def draw_action(space: Space[Any], info: Any, where: str) -> Any:
    """Draw the action of one environment within the mask in its info; errors begin with `where`."""
    try:
        mask = fit_mask(space, info)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return space.sample() if mask is None else space.sample(mask=mask)


def fit_mask(space: Space[Any], info: Any) -> Any:
    """Return a copy of the mask in an info, as `space.sample` takes it; None if it has none."""
    return _fit(space, info.get(MASK), ()) if isinstance(info, Mapping) else None


def sample_next(
    envs: VectorEnv[Any, Any, Any], result: tuple[Any, ...], rng: np.random.Generator
) -> Any:
    """Draw the actions that follow what `reset`, `step` or `recv` returned."""
    count, infos = envs.num_envs, result[-1]
    if len(result) > 2:
        _, rewards, terminations, truncations, _ = result
        count = len(rewards)
        # In NEXT_STEP mode, the action of rows whose episode has ended is ignored, and a final
        # state may allow none. In SAME_STEP mode, their mask is that of the next episode.
        if MASK in infos and envs.metadata["autoreset_mode"] != AutoresetMode.SAME_STEP:
            has_mask = infos[f"_{MASK}"] & ~(terminations | truncations)
            infos = {MASK: infos[MASK], f"_{MASK}": has_mask}
    return sample_actions(envs.single_action_space, count, infos, rng=rng)


def _draw_indices(
    space: Discrete[Any], count: int, infos: Mapping[str, Any], rng: np.random.Generator | None
) -> Any:
    """Draw the actions of a Discrete for all rows at once; None if this is not possible."""
    rng = space.np_random if rng is None else rng
    number = int(space.n)
    if MASK not in infos:
        return rng.integers(number, size=count, dtype=space.dtype) + space.start
    masks, has_mask = infos[MASK], infos.get(f"_{MASK}")
    if not (isinstance(masks, np.ndarray) and masks.shape == (count, number)):
        return None
    if masks.dtype.kind not in "biu" or (masks.dtype != np.bool_ and np.any((masks >> 1) != 0)):
        return None
    allowed = masks.astype(np.bool_)
    if has_mask is not None:
        allowed |= ~has_mask[:, None]
    places = allowed.cumsum(axis=1)
    if count and not places[:, -1].all():
        return None  # row by row, the error names the first
    chosen = rng.integers(places[:, -1])  # which of those that are allowed
    return (places > chosen[:, None]).argmax(axis=1).astype(space.dtype) + space.start


def _fit(space: Space[Any], mask: Any, path: Path) -> Any:
    """Return a mask in the form that `space.sample` takes; None if it masks nothing."""
    if mask is None:
        return None
    if isinstance(space, Discrete):
        return _fit_choice(int(space.n), mask, path)
    if isinstance(space, MultiDiscrete):
        if isinstance(mask, np.ndarray) and mask.dtype != object and mask.ndim == 1:
            mask = _split(space.nvec, mask, path)
        return _fit_entries(space.nvec, mask, path)
    if isinstance(space, MultiBinary):
        return _fit_array(mask, space.shape, 2, path)
    if isinstance(space, Dict):
        if not isinstance(mask, Mapping) or mask.keys() - space.spaces.keys():
            expected = f"a dict with keys of {list(space.spaces)}"
            actual = f"the keys {list(mask)}" if isinstance(mask, Mapping) else show_value(mask)
            raise ValueError(mismatch(MASK, expected, actual, path))
        members = space.spaces.items()
        return {key: _fit(member, mask.get(key), (*path, key)) for key, member in members}
    if isinstance(space, Tuple):
        return _fit_members(_fit, space.spaces, mask, path)
    return None


def _fit_members(fit: Any, parts: Any, mask: Any, path: Path) -> tuple[Any, ...]:
    """Return `fit(part, its mask, its path)` for each part of a space."""
    is_sequence = isinstance(mask, (tuple, list)) or (isinstance(mask, np.ndarray) and mask.ndim)
    if not is_sequence or len(mask) != len(parts):
        raise ValueError(mismatch(MASK, f"{len(parts)} masks", show_value(mask), path))
    pairs = enumerate(zip(parts, mask, strict=True))
    return tuple(fit(part, its, (*path, i)) for i, (part, its) in pairs)


def _fit_entries(nvec: npt.NDArray[Any], mask: Any, path: Path) -> Any:
    """Return the masks of the entries of a MultiDiscrete in tuples, nested as its axes are."""
    if np.ndim(nvec) == 0:
        return _fit_choice(int(nvec), mask, path)
    return _fit_members(_fit_entries, nvec, mask, path)


def _split(nvec: npt.NDArray[Any], mask: npt.NDArray[Any], path: Path) -> Any:
    """Split a flat mask, as sb3-contrib has it, into one per entry, nested as the axes are."""
    if len(mask) != nvec.sum():
        raise ValueError(mismatch(MASK, f"{nvec.sum()} zeros and ones", show_value(mask), path))
    parts: list[Any] = np.split(mask, np.cumsum(nvec)[:-1])
    for length in reversed(nvec.shape[1:]):
        parts = [parts[begin : begin + length] for begin in range(0, len(parts), length)]
    return parts


def _fit_choice(count: int, mask: Any, path: Path) -> npt.NDArray[np.int8]:
    """Return the mask of `count` values, one of which will be drawn."""
    fitted = _fit_array(mask, (count,), 1, path)
    if not fitted.any():
        raise ValueError(mismatch(MASK, "a 1 for an action that is allowed", str(fitted), path))
    return fitted


def _fit_array(mask: Any, shape: tuple[int, ...], largest: int, path: Path) -> npt.NDArray[np.int8]:
    """Return a mask as int8, if its shape and its values allow it."""
    try:
        array = np.asarray(mask)
    except Exception:  # of unequal lengths, or with an `__array__` that may raise anything
        array = np.zeros(0, dtype=object)
    if array.dtype.kind not in "biuf" or array.shape != shape:
        expected = f"an array of numbers of shape {shape}"
        raise ValueError(mismatch(MASK, expected, show_value(mask), path))
    inside = (array >= 0) & (array <= largest)  # NaN is not
    fitted = np.where(inside, array, 0).astype(np.int8)
    if not (inside & (fitted == array)).all():
        raise ValueError(mismatch(MASK, f"integers from 0 to {largest}", str(mask), path))
    return fitted
