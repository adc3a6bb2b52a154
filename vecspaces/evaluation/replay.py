"""Pictures of episodes that an evaluation counted: they are played again, from their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces.evaluation.policies import Policy, make_player
from vecspaces.evaluation.result import Evaluation
from vecspaces.files import replacing
from vecspaces.make import Factory, make_vec
from vecspaces.wrappers import RecordVideo


def record_episodes(
    result: Evaluation,
    episodes: Sequence[int],
    path: Path,
    policy: Policy | str,
    env: str | Factory,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
) -> int:
    """Record episodes of an evaluation, one after the other, into a GIF or MP4.

    Args:
        result: The evaluation.
        episodes: Their numbers.
        path: The file; one that is there is replaced once the new one is complete.
        policy: What played them.
        env: The environment.
        env_kwargs: Its arguments.
        batch_size: How many rows the policy was asked for.

    Returns:
        The number of frames.

    Raises:
        ValueError: There is no such episode, or one went otherwise than before, and there is no
            picture: then the policy or the environment depends on more than the seed.
    """
    for k in episodes:
        if not 0 <= k < result.episodes:
            raise ValueError(f"episode: expected 0 to {result.episodes - 1}, found {k}")
    rendering = {**(env_kwargs or {}), "render_mode": "rgb_array"}
    envs = make_vec(env, backend="sync", autoreset_mode="Disabled", env_kwargs=rendering)
    with replacing(path) as file, envs, RecordVideo(envs, file) as recorded:
        player = make_player(policy, envs, batch_size)
        for k in episodes:
            seed, total, length = int(result.seeds[k]), np.float64(0.0), 0
            observations, infos = recorded.reset(seed=[seed])
            player.begin([0], [seed])
            terminated = truncated = False
            while not (terminated or truncated) and length < result.lengths[k]:
                actions = player.act(observations, infos, [0])
                observations, rewards, *flags, infos = recorded.step(actions)
                terminated, truncated = (bool(flag[0]) for flag in flags)
                total, length = total + rewards[0], length + 1
            found = total, length, terminated
            counted = result.returns[k], result.lengths[k], result.terminated[k]
            if not np.array_equal(found, counted, equal_nan=True):
                raise ValueError(
                    f"episode {k} with seed {seed} {_tell(*found)} as it was recorded, and "
                    f"{_tell(*counted)} before: policy or environment depend on more than the seed"
                )
    return recorded.frames_written


def _tell(total: float, length: int, terminated: bool) -> str:
    return f"returned {total:g} in {length} steps, {'' if terminated else 'not '}terminated,"
