"""Videos of an evaluation's episodes, which are played again from their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vecspaces.evaluation.policies import Policy, adapt_policy
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
    agents: Literal["dict"] | None = None,
) -> int:
    """Play episodes of an evaluation again, record them in a GIF or MP4, and count its frames.

    If an episode differs from before, a ValueError is raised and an existing file stays.
    """
    rendering = {**(env_kwargs or {}), "render_mode": "rgb_array"}
    envs = make_vec(
        env, backend="sync", autoreset_mode="Disabled", env_kwargs=rendering, agents=agents
    )
    with replacing(path) as file, envs, RecordVideo(envs, file) as recorded:
        adapter = adapt_policy(policy, envs, batch_size)
        for k in episodes:
            seed, total, length = int(result.seeds[k]), np.float64(0.0), 0
            observations, infos = recorded.reset(seed=[seed])
            adapter.begin([0], [seed])
            terminated = truncated = False
            while not (terminated or truncated) and length < result.lengths[k]:
                actions = adapter.act(observations, infos, [0])
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
