"""`vecspaces.evaluate` against Stable-Baselines3's `evaluate_policy`, and how busy its workers are.

    python -m benchmarks.evaluate

500 episodes each, two workers: CartPole, and an environment as cheap whose episodes last 20 to 200
steps. Both ask the same function for actions. Rounds of both take turns; the ratio is the median of
the rounds' ratios. The time of `evaluate` includes the start of its workers, that of
`evaluate_policy` does not; the row "with its workers" adds it. SubprocVecEnv has one environment
per worker, as it cannot have more. Without Stable-Baselines3 its rows are left out.

The second table shows the share of the workers' time in which an environment steps or resets, as
`stats()` tells it, from the first reset to the end of the last episode, where lengths vary tenfold
too, and steps sleep for 2 or 5 ms.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer

from benchmarks.common import cart_pole, make_table, show
from vecspaces import evaluate
from vecspaces.evaluation.episodes import EpisodeQueue
from vecspaces.evaluation.policies import make_player
from vecspaces.evaluation.run import make_seeds
from vecspaces.vector import AsyncVectorEnv

SHORTEST, LONGEST = 20, 200
PACES = (0.002, 0.005)  # seconds


def lean(observations: Any) -> Any:
    return (observations[:, 2] > 0).astype(np.int64)


class Uneven(gymnasium.Env[Any, Any]):
    """Episodes of 20 to 200 steps; a step costs next to nothing, or `seconds`."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._observation = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(SHORTEST, LONGEST + 1))
        return self._observation, {}

    def step(self, action: Any) -> Any:
        if self._seconds:
            time.sleep(self._seconds)
        self._left -= 1
        return self._observation, 1.0, self._left == 0, False, {}


class Model:
    """What `evaluate_policy` asks for actions."""

    def predict(self, observations: Any, state: Any = None, **_: Any) -> Any:
        return lean(observations), state


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def time_peer(env_fn: Callable[[], Any], episodes: int, workers: int) -> tuple[float, float]:
    """Return the seconds of `evaluate_policy`, and with the start of the workers."""
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import SubprocVecEnv

    began = time.perf_counter()
    envs = SubprocVecEnv([env_fn] * workers, start_method="fork")
    envs.seed(0)
    model: Any = Model()
    alone = timed(lambda: evaluate_policy(model, envs, n_eval_episodes=episodes, warn=False))
    envs.close()
    return alone, time.perf_counter() - began


def busy_share(seconds: float, episodes: int, num_envs: int, workers: int) -> float:
    """Return the share of its time in which a worker steps and resets, the mean of all workers."""
    queue = EpisodeQueue(
        make_seeds(0, episodes),
        max_episode_steps=None,
        max_retries=0,
        journal=None,
        progress=None,
    )
    with AsyncVectorEnv(
        [partial(Uneven, seconds)] * num_envs,
        num_workers=workers,
        autoreset_mode="Disabled",
        stats=True,
    ) as envs:
        queue.play(envs, make_player(lean, envs), in_turns=True)
        return float(1 - envs.stats().worker_waiting.mean())


def main(
    episodes: int = 500,
    rounds: int = 5,
    workers: int = 2,
    num_envs: Annotated[
        str, typer.Option(help="Numbers of environments for `evaluate`, with commas.")
    ] = "8,32,128",
    busy_episodes: Annotated[int, typer.Option(help="For the second table.")] = 200,
) -> None:
    """Time both in turns."""
    widths = [int(width) for width in num_envs.split(",")]
    peer = find_spec("stable_baselines3") is not None
    table = make_table(
        f"{episodes} episodes, {workers} workers", "", "", "seconds", "ratio", left=2
    )
    for name, env_fn in (("CartPole-v1", cart_pole), ("20 to 200 steps", Uneven)):
        times: dict[str, list[float]] = {}
        for _ in range(rounds):
            if peer:
                alone, started = time_peer(env_fn, episodes, workers)
                times.setdefault("evaluate_policy", []).append(alone)
                times.setdefault("evaluate_policy with its workers", []).append(started)
            for width in widths:
                own = evaluate(
                    lean, env_fn, episodes=episodes, seed=0, num_envs=width, num_workers=workers
                )
                times.setdefault(f"evaluate, num_envs={width}", []).append(own.seconds)
        first = next(iter(times.values()))
        for way, seconds in times.items():
            ratio = statistics.median(base / own for base, own in zip(first, seconds, strict=True))
            table.add_row(name, way, f"{statistics.median(seconds):.2f}", f"{ratio:.1f}")
    show(table)
    title = f"{busy_episodes} episodes of 20 to 200 steps, {workers} workers"
    table = make_table(title, "a step", "num_envs", "busy")
    for pace in PACES:
        for width in widths[:2]:
            share = busy_share(pace, busy_episodes, width, workers)
            table.add_row(f"{pace * 1e3:g} ms", str(width), f"{share:.1%}")
    show(table)


if __name__ == "__main__":
    typer.run(main)
