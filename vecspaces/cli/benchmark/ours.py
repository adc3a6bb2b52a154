"""The vector envs of this library, as backends of the benchmark."""

from __future__ import annotations

from typing import Any

from vecspaces.cli.benchmark.backends import (
    BATCHES,
    Backend,
    Runner,
    Stepper,
    no_process,
    sample_actions,
)
from vecspaces.cli.benchmark.environments import Workload
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


def _sync(workload: Workload, num_envs: int, num_workers: int) -> Runner:
    envs: SyncVectorEnv[Any, Any] = SyncVectorEnv([workload.make] * num_envs)
    envs.reset(seed=0)
    return Stepper(
        envs.step, sample_actions(envs.single_action_space, num_envs), envs.close, num_envs
    )


def _async(workload: Workload, num_envs: int, num_workers: int, copy: bool = True) -> Runner:
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [workload.make] * num_envs, copy=copy, num_workers=num_workers
    )
    envs.reset(seed=0)
    return Stepper(
        envs.step, sample_actions(envs.single_action_space, num_envs), envs.close, num_envs
    )


def _async_views(workload: Workload, num_envs: int, num_workers: int) -> Runner:
    return _async(workload, num_envs, num_workers, copy=False)


class _FirstReady:
    """Steps whichever half of the environments is ready first."""

    def __init__(self, workload: Workload, num_envs: int, num_workers: int) -> None:
        envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
            [workload.make] * num_envs, num_workers=num_workers, batch_size=max(1, num_envs // 2)
        )
        self._envs, self.close = envs, envs.close
        envs.reset(seed=0)
        self._actions = sample_actions(envs.single_action_space, envs.batch_size)
        envs.send(sample_actions(envs.single_action_space, num_envs)[0])
        self._halves = 2 if num_envs > 1 else 1

    def run(self, batches: int) -> int:
        """Receive and send until as many steps are made."""
        envs, actions, halves = self._envs, self._actions, batches * self._halves
        for turn in range(halves):
            ready = envs.recv()
            envs.send(actions[turn % BATCHES], ready.env_ids)
        return halves * envs.batch_size


OURS = [
    Backend("vecspaces sync", _sync, processes=no_process),
    Backend("vecspaces async", _async),
    Backend("vecspaces async, copy=False", _async_views),
    Backend("vecspaces async, first ready", _FirstReady, waiting_only=True),
]
