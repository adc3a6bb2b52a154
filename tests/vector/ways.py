"""The ways in and out of a vector env, each under one name, and what a run through one shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vecspaces.vector import infos_as_list

WAYS = ("step", "async", "stream", "some")
# Durations differ from run to run.
_TIMES = ("t", "_t")


def step_by(envs: Any, way: str, actions: Any) -> list[list[Any]]:
    """Step all environments; return what each of them gave: four values and its info."""
    if way == "step":
        return _rows(envs.step(actions), range(envs.num_envs))
    if way == "async":
        envs.step_async(actions)
        return _rows(envs.step_wait(), range(envs.num_envs))
    found: dict[int, list[Any]] = {}
    if way == "some":
        backwards = np.arange(envs.num_envs)[::-1]
        for env_ids in np.array_split(backwards, 2):
            rows = _rows(envs.step(actions[env_ids], env_ids.tolist()), range(len(env_ids)))
            found.update(zip(env_ids.tolist(), rows, strict=True))
        return [found[row] for row in range(envs.num_envs)]
    envs.send(actions)
    while len(found) < envs.num_envs:
        received = envs.recv()
        rows = _rows(received[:5], range(len(received.env_ids)))
        found.update(zip(received.env_ids.tolist(), rows, strict=True))
    return [found[row] for row in range(envs.num_envs)]


def reset_by(envs: Any, way: str, **arguments: Any) -> list[list[Any]]:
    """Reset environments; return what each of them shows: its observation and its info."""
    if way == "async":
        envs.reset_async(**arguments)
        return _rows(envs.reset_wait(), range(envs.num_envs))
    return _rows(envs.reset(**arguments), range(envs.num_envs))


def _rows(result: tuple[Any, ...], rows: range) -> list[list[Any]]:
    *arrays, infos = result
    singles = [_plain(info) for info in infos_as_list(infos, len(rows))]
    return [[*(array[row] for array in arrays), singles[row]] for row in rows]


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
    shown = [reset_by(envs, way, seed=seed)]
    for number in range(steps):
        actions = rng.integers(5, size=envs.num_envs)
        shown.append(step_by(envs, way, actions))
        actions[:] = 0  # nothing keeps the caller's array
        ended = np.array([row[2] or row[3] for row in shown[-1]])
        mask = ended if disabled else np.arange(envs.num_envs) == 0
        if ended.any() if disabled else number == steps // 2:
            options = Frozen(reset_mask=mask.copy())
            shown.append(reset_by(envs, way, seed=seed + number, options=options))
    return shown


class Frozen(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
