"""Wall-clock time of PPO to a return, with the vector envs of three libraries in turns.

    python -m benchmarks.end_to_end [--tasks CartPole] [--ways vecspaces,Gymnasium] [--rounds 3]

Needs PyTorch; Stable-Baselines3 and ALE where their rows are wanted. Every way trains the same
network with the same hyperparameters, by the PPO of `examples/cleanrl_style_ppo.py` (Gymnasium and
vecspaces) on one thread of PyTorch. Stable-Baselines3's vector envs feed the same training loop, so
that what is compared is the vector env and not the algorithm. With one seed all of them make the
same steps, and only the time differs. Time counts from the first reset.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer

from benchmarks.common import make_table, show
from benchmarks.overlap import spin
from vecspaces.adapters import gymnasium as ours

SAME_STEP = gymnasium.vector.AutoresetMode.SAME_STEP


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Computes for one millisecond more in each step."""

    def step(self, action: Any) -> Any:
        spin(0.001)
        return self.env.step(action)


def slow_cart_pole() -> Any:
    return Slow(gymnasium.make("CartPole-v1"))


def breakout() -> Any:
    env = gymnasium.make("ale_py:ALE/Breakout-v5", obs_type="ram")
    space = gymnasium.spaces.Box(0, 1, (128,), np.float32)
    return gymnasium.wrappers.TransformObservation(env, _as_float, space)


def _as_float(observation: Any) -> Any:
    return observation.astype(np.float32) / 255


# Task -> factory, number of environments, the return to reach (None: all steps), most steps.
TASKS: dict[str, tuple[Callable[[], Any], int, float | None, int]] = {
    "CartPole to 195": (partial(gymnasium.make, "CartPole-v1"), 16, 195.0, 400_000),
    "CartPole + 1 ms to 50": (slow_cart_pole, 16, 50.0, 200_000),
    "Breakout, 12,288 steps": (breakout, 16, None, 12_288),
}


class OfSB3(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector env of Stable-Baselines3 with Gymnasium's interface, in SAME_STEP mode."""

    def __init__(self, kind: str, factories: list[Callable[[], Any]]) -> None:
        module = importlib.import_module("stable_baselines3.common.vec_env")
        self._envs = getattr(module, kind)(factories)
        self.num_envs = len(factories)
        self.single_observation_space = self._envs.observation_space
        self.single_action_space = self._envs.action_space
        self.metadata = {"autoreset_mode": SAME_STEP}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._envs.seed(seed)
        return self._envs.reset(), {}

    def step(self, actions: Any) -> Any:
        observations, rewards, dones, infos = self._envs.step(actions)
        cut = np.array([info["TimeLimit.truncated"] for info in infos])
        last = np.array([info.get("terminal_observation") for info in infos], dtype=object)
        return observations, rewards, dones & ~cut, cut, {"final_obs": last}

    def close_extras(self, **kwargs: Any) -> None:
        self._envs.close()


WAYS: dict[str, Callable[[list[Any]], Any]] = {
    "Gymnasium sync": partial(gymnasium.vector.SyncVectorEnv, autoreset_mode=SAME_STEP),
    "Gymnasium async": partial(gymnasium.vector.AsyncVectorEnv, autoreset_mode=SAME_STEP),
    "SB3 DummyVecEnv": partial(OfSB3, "DummyVecEnv"),
    "SB3 SubprocVecEnv": partial(OfSB3, "SubprocVecEnv"),
    "vecspaces sync": partial(ours.SyncVectorEnv, autoreset_mode=SAME_STEP),
    "vecspaces async": partial(ours.AsyncVectorEnv, autoreset_mode=SAME_STEP),
}


class Reached(Exception):  # noqa: N818 - the end of a training, not an error
    """Raised when the mean return of the last episodes reaches the target."""


class Target(gymnasium.vector.VectorWrapper):
    """Ends a training once the mean return of the last 100 episodes reaches a target."""

    def __init__(self, env: Any, target: float | None) -> None:
        super().__init__(env)
        self._target = target
        self._running = np.zeros(env.num_envs)
        self._returns: list[float] = []
        self.steps, self.began = 0, 0.0

    def reset(self, **arguments: Any) -> Any:
        self.began = time.perf_counter()
        return self.env.reset(**arguments)

    def step(self, actions: Any) -> Any:
        result = self.env.step(actions)
        self.steps += self.num_envs
        self._running += result[1]
        over = result[2] | result[3]
        if over.any():
            self._returns = (self._returns + self._running[over].tolist())[-100:]
            self._running[over] = 0.0
            enough = self._target is not None and len(self._returns) == 100
            if enough and statistics.mean(self._returns) >= self._target:
                raise Reached
        return result


def train(example: Any, task: str, way: str, seed: int) -> tuple[float, int]:
    """Return the seconds and the steps that a training took; NaN if it missed the target."""
    factory, count, target, most = TASKS[task]
    made: list[Target] = []

    def make_vec(*_: Any, **__: Any) -> Target:
        made.append(Target(WAYS[way]([factory] * count), target))
        return made[0]

    example.make_vec = make_vec
    arguments = ["--num-envs", str(count), "--total-timesteps", str(most), "--seed", str(seed)]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            example.train(example.parse(arguments))
        reached = target is None
    except Reached:
        reached = True
    seconds = time.perf_counter() - made[0].began
    made[0].close()
    return seconds if reached else float("nan"), made[0].steps


def load_example() -> Any:
    path = Path(__file__).parents[1] / "examples" / "cleanrl_style_ppo.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def main(
    tasks: Annotated[str, typer.Option(help="Beginnings of names; all: leave it out.")] = "",
    ways: Annotated[str, typer.Option(help="Beginnings of names; all: leave it out.")] = "",
    seed: int = 1,
    rounds: int = 3,
) -> None:
    """Train with each way in turns."""
    example = load_example()
    chosen = [way for way in WAYS if way.startswith(tuple(ways.split(",")))]
    if importlib.util.find_spec("stable_baselines3") is None:
        chosen = [way for way in chosen if not way.startswith("SB3")]
    table = make_table(
        f"PPO, seconds: the median of {rounds}",
        *("task", "vector env", "median", "least", "most", "steps"),
        left=2,
    )
    for task in [task for task in TASKS if task.startswith(tuple(tasks.split(",")))]:
        times_of: dict[str, list[float]] = {way: [] for way in chosen}
        steps_of: dict[str, int] = {}
        for _ in range(rounds):
            for way in chosen:
                seconds, steps = train(example, task, way, seed)
                times_of[way].append(seconds)
                steps_of[way] = steps
                print(f"{task}, {way}: {seconds:.1f} s, {steps:,} steps", flush=True)
        for way, times in times_of.items():
            shown = statistics.median(times), min(times), max(times)
            table.add_row(task, way, *(f"{value:.1f}" for value in shown), f"{steps_of[way]:,}")
    show(table)


if __name__ == "__main__":
    typer.run(main)
