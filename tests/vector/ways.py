"""The ways in and out of a vector env, each under one name, and what a run through one shows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from vecspaces.vector import infos_as_list

WAYS = ("step", "async", "stream", "some")
# Durations differ from run to run.
_TIMES = ("t", "_t")


def step_by(envs: Any, way: str, actions: Any) -> list[list[Any]]:
    """Step all environments; return what each of them gave: four values and its info."""
    parts = []
    if way == "step":
        parts = [(np.arange(envs.num_envs), envs.step(actions))]
    elif way == "async":
        envs.step_async(actions)
        parts = [(np.arange(envs.num_envs), envs.step_wait())]
    elif way == "some":
        for env_ids in np.array_split(np.arange(envs.num_envs)[::-1], 2):
            parts.append((env_ids, envs.step(actions[env_ids], env_ids.tolist())))
    else:
        envs.send(actions)
        while sum(len(env_ids) for env_ids, _ in parts) < envs.num_envs:
            received = envs.recv()
            parts.append((received.env_ids, received[:5]))
    shown_by_row = {
        row: shown
        for env_ids, result in parts
        for row, shown in zip(env_ids.tolist(), _rows(result, len(env_ids)), strict=True)
    }
    return [shown_by_row[row] for row in range(envs.num_envs)]


def _reset_by(envs: Any, way: str, **arguments: Any) -> list[list[Any]]:
    if way != "async":
        return _rows(envs.reset(**arguments), envs.num_envs)
    envs.reset_async(**arguments)
    return _rows(envs.reset_wait(), envs.num_envs)


def _rows(result: tuple[Any, ...], count: int) -> list[list[Any]]:
    *arrays, infos = result
    singles = [_plain(info) for info in infos_as_list(infos, count)]
    return [[*(array[row] for array in arrays), singles[row]] for row in range(count)]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value) if key not in _TIMES}
    return value


def run_by(envs: Any, way: str, *, steps: int = 9, seed: int = 3) -> list[list[list[Any]]]:
    """Reset, step, and reset a part now and then; return what every environment showed.

    Finished environments are reset with a mask where nothing else does it, and in the other modes
    environment 0 is reset with a mask in the middle of the run.
    """
    disabled = envs.metadata["autoreset_mode"].value == "Disabled"
    rng = np.random.default_rng(seed)
    shown = [_reset_by(envs, way, seed=seed)]
    for number in range(steps):
        actions = rng.integers(5, size=envs.num_envs)
        shown.append(step_by(envs, way, actions))
        actions[:] = 0  # nothing keeps the caller's array
        ended = np.array([row[2] or row[3] for row in shown[-1]])
        mask = ended if disabled else np.arange(envs.num_envs) == 0
        if ended.any() if disabled else number == steps // 2:
            options = MappingProxyType({"reset_mask": mask.copy()})  # a mapping that is no dict
            shown.append(_reset_by(envs, way, seed=seed + number, options=options))
    return shown
