"""TimeAwareObservation: the number of steps of the running episode, as part of observations."""

from __future__ import annotations

from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.spaces import Box, Dict, Space, Tuple, flatten_space
from vecspaces.vector import VectorEnv
from vecspaces.vector.utils import batch_space
from vecspaces.vector.vector_env import ActType, ObsType, StepResult
from vecspaces.vector.vector_wrapper import RowChoice
from vecspaces.wrappers.batches import flatten_rows
from vecspaces.wrappers.episodes import EpisodeBounds, EpisodeWrapper

_Array = npt.NDArray[Any]


class TimeAwareObservation(EpisodeWrapper[Any, ActType, ObsType], Generic[ActType, ObsType]):
    """Adds the number of steps of the running episode to observations.

    A Dict gets one more key, a Tuple gets one more member, and any other observation becomes a Dict
    of `"obs"` and `"time"`.

    Args:
        env: The vector env to wrap; its environments have a limit of steps.
        flatten: Whether the result is flattened into one array.
        normalize_time: Whether the time is from 0.0 to 1.0; otherwise it is from 0 to the limit.
        dict_time_key: The key of the time in a Dict.

    Attributes:
        timesteps: The steps of each running episode; shape `(num_envs,)`.
        max_timesteps: The limit of steps.

    Raises:
        ValueError: The environments have no limit of steps (`max_episode_steps`) or different
            limits, or a Dict already has the key.

    Example:
        >>> from vecspaces import make_vec
        >>> with TimeAwareObservation(make_vec("CartPole-v1", 2, backend="sync")) as envs:
        ...     _ = envs.reset(seed=1)
        ...     envs.step(np.array([0, 1]))[0][:, -1].tolist()
        [1.0, 1.0]
    """

    saved_state = ("prev_dones", "timesteps"), ()
    _changes = "observations"

    def __init__(
        self,
        env: VectorEnv[ObsType, ActType, _Array],
        flatten: bool = True,
        normalize_time: bool = False,
        *,
        dict_time_key: str = "time",
    ) -> None:
        super().__init__(env)
        self.flatten = flatten
        self.normalize_time = normalize_time
        self.max_timesteps = _find_limit(env)
        self.timesteps: npt.NDArray[np.int64] = np.zeros(self.num_envs, np.int64)
        self._key = dict_time_key
        time = Box(0.0, 1.0) if normalize_time else Box(0, self.max_timesteps, dtype=np.int32)
        space = env.single_observation_space
        self._nested: Space[Any]
        if isinstance(space, Dict):
            if dict_time_key in space.spaces:
                raise ValueError(
                    f"dict_time_key: expected a key that observations do not have, found "
                    f"{dict_time_key!r} in {space}"
                )
            members = {dict_time_key: time, **space.spaces}
            self._nested = Dict(members, sort_keys=space.sort_keys)
        elif isinstance(space, Tuple):
            self._nested = Tuple((*space.spaces, time))
        else:
            self._nested = Dict(obs=space, time=time)
        self.single_observation_space = flatten_space(self._nested) if flatten else self._nested
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def _begin(
        self, observations: ObsType, infos: dict[str, Any], rows: RowChoice
    ) -> tuple[Any, dict[str, Any]]:
        self.timesteps[rows] = 0
        return self._with_time(observations, self.timesteps), infos

    def _after_load(self, observations: ObsType, env_ids: npt.NDArray[np.int64]) -> Any:
        return self._with_time(observations, self.timesteps[env_ids])

    def _follow(self, result: StepResult, progress: EpisodeBounds) -> StepResult:
        observations, *others, infos = result
        rows = self._numbers[progress.rows]
        timesteps = self.timesteps
        timesteps[rows] += 1
        if progress.begun is not None:
            timesteps[rows[progress.begun]] = 0
        if "_final_obs" in infos:
            infos = self._with_finals(
                infos, lambda batch, ended: self._with_time(batch, timesteps[rows[ended]])
            )
        if self._same_step:
            timesteps[rows[progress.ended]] = 0
        changed = self._with_time(observations, timesteps[rows])
        return changed, others[0], others[1], others[2], infos

    def _with_time(self, observations: Any, timesteps: npt.NDArray[np.int64]) -> Any:
        """Return a batch of observations with the time of each row."""
        if self.normalize_time:
            time: _Array = (timesteps / self.max_timesteps).astype(np.float32)[:, None]
        else:
            time = timesteps.astype(np.int32)[:, None]
        space = self.env.single_observation_space
        if isinstance(space, Dict):
            nested: Any = {self._key: time, **observations}
        elif isinstance(space, Tuple):
            nested = (*observations, time)
        else:
            nested = {"obs": observations, "time": time}
        return flatten_rows(self._nested, nested) if self.flatten else nested


def _find_limit(env: VectorEnv[Any, Any, Any]) -> int:
    """Return the limit of steps of the environments; their own limit overrides that of the spec."""
    limits: set[int | None] = set(env.call(_limit_of)) if hasattr(env, "call") else set()
    if not limits - {None}:
        limits = {getattr(env.spec, "max_episode_steps", None)}
    limit = limits.pop() if len(limits) == 1 else None
    if limit is None:
        raise ValueError(
            "TimeAwareObservation needs environments with one limit of steps: give "
            f"max_episode_steps to make_vec, or wrap each in a TimeLimit; found {limits or None}"
        )
    return limit


def _limit_of(env: Any) -> int | None:
    """Return the limit of steps of one environment, where it runs."""
    limit: int | None = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    while limit is None and env is not None:
        limit = getattr(env, "_max_episode_steps", None)  # Gymnasium's TimeLimit
        env = getattr(env, "env", None)
    return limit
