"""Other libraries' vector envs, as backends of the benchmark; imported when they are opened."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from vecspaces.cli.benchmark.backends import (
    Backend,
    Runner,
    Stepper,
    Unsuitable,
    no_process,
    one_process_each,
    sample_actions,
)
from vecspaces.cli.benchmark.environments import Workload


def _gymnasium(name: str, workload: Workload, num_envs: int, num_workers: int) -> Runner:
    vector = importlib.import_module("gymnasium.vector")
    envs = getattr(vector, name)([workload.make] * num_envs)
    envs.reset(seed=0)
    actions = sample_actions(envs.single_action_space, num_envs)
    return Stepper(envs.step, actions, envs.close, num_envs)


def _stable_baselines3(name: str, workload: Workload, num_envs: int, num_workers: int) -> Runner:
    vec_env = importlib.import_module("stable_baselines3.common.vec_env")
    # Forked: its default, a fork server, imports PyTorch once for each environment.
    options = {"start_method": "fork"} if name == "SubprocVecEnv" else {}
    envs = getattr(vec_env, name)([workload.make] * num_envs, **options)
    envs.reset()
    actions = sample_actions(envs.action_space, num_envs)
    return Stepper(envs.step, actions, envs.close, num_envs)


def _tianshou(name: str, workload: Workload, num_envs: int, num_workers: int) -> Runner:
    env = importlib.import_module("tianshou.env")
    envs = getattr(env, name)([workload.make] * num_envs)
    envs.reset()
    actions = sample_actions(envs.action_space[0], num_envs)

    def step(batch: Any) -> None:
        _, _, terminated, truncated, _ = envs.step(batch)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):  # its users, or its collector, reset what has ended
            envs.reset(ended)

    return Stepper(step, actions, envs.close, num_envs)


def _pufferlib(workload: Workload, num_envs: int, num_workers: int) -> Runner:
    vector = importlib.import_module("pufferlib.vector")
    emulation = importlib.import_module("pufferlib.emulation")
    if num_envs % num_workers:
        raise Unsuitable("wants as many environments in every worker")

    def make() -> Any:
        return emulation.GymnasiumPufferEnv(env=workload.make())

    envs = vector.make(
        make, backend=vector.Multiprocessing, num_envs=num_envs, num_workers=num_workers
    )
    envs.reset(seed=0)
    actions = sample_actions(envs.single_action_space, num_envs)
    return Stepper(envs.step, actions, envs.close, num_envs)


def _envpool(workload: Workload, num_envs: int, num_workers: int) -> Runner:
    envpool = importlib.import_module("envpool")
    if workload.gymnasium_id not in envpool.list_all_envs():
        raise Unsuitable("has no such environment: its own are written in C++")
    envs = envpool.make_gymnasium(workload.gymnasium_id, num_envs=num_envs, num_threads=num_workers)
    envs.reset()
    actions = sample_actions(envs.action_space, num_envs)
    return Stepper(envs.step, actions, envs.close, num_envs)


def _quietly(open_peer: Callable[..., Runner], *arguments: Any) -> Runner:
    """Open a peer without the greetings and warnings that some print while they are imported."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return open_peer(*arguments)


def _peer(
    name: str,
    module: str,
    open_peer: Callable[..., Runner],
    processes: Callable[[int, int], int],
    cooldown: float = 0.0,
) -> Backend:
    return Backend(name, partial(_quietly, open_peer), module, processes, cooldown)


PEERS = [
    _peer("gymnasium sync", "gymnasium", partial(_gymnasium, "SyncVectorEnv"), no_process),
    _peer("gymnasium async", "gymnasium", partial(_gymnasium, "AsyncVectorEnv"), one_process_each),
    _peer("sb3 dummy", "stable_baselines3", partial(_stable_baselines3, "DummyVecEnv"), no_process),
    _peer(
        "sb3 subproc",
        "stable_baselines3",
        partial(_stable_baselines3, "SubprocVecEnv"),
        one_process_each,
    ),
    _peer("tianshou dummy", "tianshou", partial(_tianshou, "DummyVectorEnv"), no_process),
    _peer("tianshou subproc", "tianshou", partial(_tianshou, "SubprocVectorEnv"), one_process_each),
    _peer("tianshou shmem", "tianshou", partial(_tianshou, "ShmemVectorEnv"), one_process_each),
    # Its workers spin for half a second after a step before they rest.
    _peer("pufferlib", "pufferlib", _pufferlib, lambda n, workers: workers, cooldown=0.7),
    _peer("envpool (C++)", "envpool", _envpool, no_process),
]
