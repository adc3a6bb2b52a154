"""Time what the adapters cost: a step through them and a step of the vector env itself, in one run.

    python -m benchmarks.adapters

Each pair takes turns, call by call, so that a busy machine slows both; a time is the median, in
microseconds for one step of all environments. For Gymnasium's face of ours the
other is ours itself: the share says how much of the native speed is left. Stable-Baselines3's face
is compared with its own vector envs, where Stable-Baselines3 is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console
from rich.table import Table

from vecspaces import vector
from vecspaces.adapters.gymnasium import as_gymnasium

ENV_ID = "CartPole-v1"
Step = Callable[[], Any]


def cart_pole() -> Any:
    """What every row steps."""
    return gymnasium.make(ENV_ID)


def stepper(envs: Any, step: Callable[[Any], Any]) -> Step:
    """A step with one action batch, drawn once: sampling is not what is timed."""
    actions = np.random.default_rng(0).integers(0, 2, envs.num_envs)
    return lambda: step(actions)


def median_microseconds(one: Step, other: Step, calls: int) -> tuple[float, float]:
    """Time two calls in turns, one by one: both see the same moments of a busy machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(calls):
        pair = ((one, times[0]), (other, times[1]))
        for call, found in pair if number % 2 else reversed(pair):
            began = time.perf_counter()
            call()
            found.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times[0]), statistics.median(times[1])


def gymnasium_rows(num_envs: int, calls: int) -> list[tuple[str, float, float]]:
    """Ours through Gymnasium's face, and ours itself: one and the same vector env."""
    rows = []
    for name, make in (
        ("SyncVectorEnv", vector.SyncVectorEnv),
        ("AsyncVectorEnv", vector.AsyncVectorEnv),
    ):
        with make([cart_pole] * num_envs) as envs:
            face = as_gymnasium(envs)
            face.reset(seed=0)
            pair = stepper(face, face.step), stepper(envs, envs.step)
            rows.append((f"{num_envs:3} × {name}", *median_microseconds(*pair, calls)))
    return rows


def sb3_rows(num_envs: int, calls: int) -> list[tuple[str, float, float]]:
    """Ours through Stable-Baselines3's face, and its own vector env."""
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    from vecspaces.adapters.stable_baselines3 import as_vec_env

    rows = []
    for make, peer in (
        (vector.SyncVectorEnv, DummyVecEnv),
        (vector.AsyncVectorEnv, SubprocVecEnv),
    ):
        ours = as_vec_env(make([cart_pole] * num_envs, autoreset_mode="SameStep"))
        theirs = peer([cart_pole] * num_envs)
        for envs in (ours, theirs):
            envs.reset()
        pair = stepper(ours, ours.step), stepper(theirs, theirs.step)
        rows.append((f"{num_envs:3} × {peer.__name__}", *median_microseconds(*pair, calls)))
        ours.close()
        theirs.close()
    return rows


def main() -> None:
    """Time every pair and show the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2000)
    timing = vars(parser.parse_args())
    console = Console()
    console.print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, "
        f"Gymnasium {version('gymnasium')}"
    )
    table = Table("as_gymnasium", "face µs", "ours µs", "share of native speed")
    for num_envs in (1, 8, 64):
        for name, face, own in gymnasium_rows(num_envs, **timing):
            table.add_row(name, f"{face:.1f}", f"{own:.1f}", f"{own / face:.1%}")
    console.print(table)
    if importlib.util.find_spec("stable_baselines3") is None:
        console.print("as_vec_env: Stable-Baselines3 is not installed")
        return
    table = Table("as_vec_env, next to", "ours µs", "theirs µs", "times as fast")
    for num_envs in (8, 64):
        for name, ours, theirs in sb3_rows(num_envs, **timing):
            table.add_row(name, f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
