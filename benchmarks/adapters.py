"""What the adapters cost: a step through them, and a step of the vector env itself, in one run.

    python -m benchmarks.adapters

Each pair takes turns, call by call, so that a busy machine slows both; a time is the median, in
microseconds for one step of all environments. Gymnasium's interface to a vector env is compared
with that vector env: the share says how much of the native speed is left. Stable-Baselines3's is
compared with its own vector envs, where Stable-Baselines3 is installed.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from typing import Any

import numpy as np
import typer

from benchmarks.common import Call, cart_pole, make_table, show
from vecspaces import vector
from vecspaces.adapters.gymnasium import as_gymnasium


def stepper(envs: Any) -> Call:
    """Return a step with one batch of actions, drawn once, so that sampling is not timed."""
    actions = np.random.default_rng(0).integers(0, 2, envs.num_envs)
    return lambda: envs.step(actions)


def time_in_turns_by_call(first: Call, second: Call, calls: int) -> tuple[float, float]:
    """Return the medians of two calls that take turns, in microseconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(calls):
        pair = ((first, times[0]), (second, times[1]))
        for call, durations in pair if number % 2 else reversed(pair):
            began = time.perf_counter()
            call()
            durations.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times[0]), statistics.median(times[1])


def compare_gymnasium(calls: int) -> None:
    table = make_table("as_gymnasium", "", "adapter µs", "native µs", "share of native speed")
    for num_envs in (1, 8, 64):
        for make in (vector.SyncVectorEnv, vector.AsyncVectorEnv):
            with make([cart_pole] * num_envs) as envs:
                adapter = as_gymnasium(envs)
                adapter.reset(seed=0)
                adapted, native = time_in_turns_by_call(stepper(adapter), stepper(envs), calls)
            name = f"{num_envs:3} × {make.__name__}"
            table.add_row(name, f"{adapted:.1f}", f"{native:.1f}", f"{native / adapted:.1%}")
    show(table)


def compare_stable_baselines3(calls: int) -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    from vecspaces.adapters.stable_baselines3 import as_vec_env

    pairs = ((vector.SyncVectorEnv, DummyVecEnv), (vector.AsyncVectorEnv, SubprocVecEnv))
    table = make_table("as_vec_env, next to", "", "vecspaces µs", "SB3 µs", "times as fast")
    for num_envs in (8, 64):
        for make, peer in pairs:
            ours = as_vec_env(make([cart_pole] * num_envs, autoreset_mode="SameStep"))
            theirs = peer([cart_pole] * num_envs)
            for envs in (ours, theirs):
                envs.reset()
            ours_us, theirs_us = time_in_turns_by_call(stepper(ours), stepper(theirs), calls)
            name = f"{num_envs:3} × {peer.__name__}"
            table.add_row(name, f"{ours_us:.1f}", f"{theirs_us:.1f}", f"{theirs_us / ours_us:.2f}")
            ours.close()
            theirs.close()
    show(table)


def main(calls: int = 2000) -> None:
    """Time every pair and show the tables."""
    compare_gymnasium(calls)
    if importlib.util.find_spec("stable_baselines3") is None:
        print("as_vec_env: Stable-Baselines3 is not installed")
    else:
        compare_stable_baselines3(calls)


if __name__ == "__main__":
    typer.run(main)
