"""Contenders of other libraries for the measurements of this folder.

They are imported when they are opened.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from benchmarks.contenders import Contender, Runner, make_runner, prepare_actions

Make = Callable[[], Any]
LIBRARIES = ("stable-baselines3", "tianshou", "pufferlib", "envpool", "torch")


def _open_stable_baselines3(kind: str, make: Make, num_envs: int, num_workers: int) -> Runner:
    vec_env = importlib.import_module("stable_baselines3.common.vec_env")
    # Forked: its default, a fork server, imports PyTorch once per environment.
    options = {"start_method": "fork"} if kind == "SubprocVecEnv" else {}
    envs = getattr(vec_env, kind)([make] * num_envs, **options)
    envs.reset()
    actions = prepare_actions(envs.action_space, num_envs)

    def close() -> None:
        if getattr(
            envs, "waiting", False
        ):  # after Ctrl-C, close would wait for replies that were read
            for process in envs.processes:
                process.terminate()
        envs.close()

    return make_runner(envs.step, actions, close, num_envs)


def _open_tianshou(kind: str, make: Make, num_envs: int, num_workers: int) -> Runner:
    env = importlib.import_module("tianshou.env")
    envs = getattr(env, kind)([make] * num_envs)
    envs.reset()
    actions = prepare_actions(envs.action_space[0], num_envs)

    def step(batch: Any) -> None:
        _, _, terminated, truncated, _ = envs.step(batch)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):  # Tianshou's collector resets environments that ended
            envs.reset(ended)

    return make_runner(step, actions, envs.close, num_envs)


def _open_pufferlib(make: Make, num_envs: int, num_workers: int) -> Runner:
    vector = importlib.import_module("pufferlib.vector")
    emulation = importlib.import_module("pufferlib.emulation")
    if num_envs % num_workers:
        raise ValueError("PufferLib needs as many environments in every worker")

    def make_puffer() -> Any:
        return emulation.GymnasiumPufferEnv(env=make())

    envs = vector.make(
        make_puffer, backend=vector.Multiprocessing, num_envs=num_envs, num_workers=num_workers
    )
    envs.reset(seed=0)
    actions = prepare_actions(envs.single_action_space, num_envs)
    return make_runner(envs.step, actions, envs.close, num_envs)


def _open_envpool(task: str, make: Make, num_envs: int, num_workers: int) -> Runner:
    envpool = importlib.import_module("envpool")
    envs = envpool.make_gymnasium(task, num_envs=num_envs, num_threads=num_workers)
    envs.reset()
    actions = prepare_actions(envs.action_space, num_envs)
    return make_runner(envs.step, actions, envs.close, num_envs)


def _quietly(open_peer: Callable[..., Runner], *arguments: Any) -> Runner:
    """Open a library without the text that it prints."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return open_peer(*arguments)


def envpool_task(task: str) -> Contender:
    """Return EnvPool with its own environment of this name, which is written in C++."""
    return Contender(
        "envpool (C++)",
        partial(_quietly, partial(_open_envpool, task)),
        lambda num_envs, num_workers: 0,  # it has threads
        module="envpool",
    )


def _process_per_env(
    name: str, module: str, open_peer: Callable[..., Runner], kind: str
) -> Contender:
    """Return a class of a library that starts one process per environment."""
    opener = partial(_quietly, partial(open_peer, kind))
    return Contender(name, opener, lambda num_envs, num_workers: num_envs, module)


#: What steps any environment of Gymnasium.
PEERS = [
    _process_per_env("sb3 subproc", "stable_baselines3", _open_stable_baselines3, "SubprocVecEnv"),
    _process_per_env("tianshou subproc", "tianshou", _open_tianshou, "SubprocVectorEnv"),
    _process_per_env("tianshou shmem", "tianshou", _open_tianshou, "ShmemVectorEnv"),
    # Its workers busy-poll for half a second after a step before they sleep.
    Contender("pufferlib", partial(_quietly, _open_pufferlib), module="pufferlib", cooldown=0.7),
]


def versions() -> dict[str, str]:
    """Return the versions of those libraries that are installed."""
    installed = {}
    for library in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[library] = metadata.version(library)
    return installed
