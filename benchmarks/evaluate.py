"""`vecspaces.evaluate` against Stable-Baselines3's `evaluate_policy`, and how busy its workers are.

    python -m benchmarks.evaluate               # both parts: about two minutes
    python -m benchmarks.evaluate --part speed
    python -m benchmarks.evaluate --part busy

speed: 500 episodes each, two workers: CartPole, and an environment as cheap whose episodes last 20
to 200 steps. Both ask the same function for actions. Rounds of both take turns; the ratio is the
median of the rounds' ratios. The time of `evaluate` includes the start of its workers, that of
`evaluate_policy` does not; the row "with its workers" adds it. SubprocVecEnv has one environment
per worker, as it cannot have more. Without Stable-Baselines3 its rows are left out.

busy: the share of the workers' time in which an environment steps or resets, by `stats()`,
from the first reset to the end of the last episode, where lengths vary tenfold too. A step is a
fixed amount of Python that takes 0.1, 0.3 or 1 ms where nothing else runs, or it sleeps, as one
does that waits for a simulator elsewhere. Where there are as many workers as cores, the caller
takes its time from the workers that compute, and a step that is interrupted counts as busy. So the
last column compares the steps per second with those of as many processes that do nothing else.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import typer

from benchmarks.common import cart_pole, make_table, repeat, show
from vecspaces import evaluate
from vecspaces.evaluation.episodes import EpisodeQueue
from vecspaces.evaluation.play import choose_num_envs, make_seeds
from vecspaces.evaluation.policies import adapt_policy
from vecspaces.vector import AsyncVectorEnv

SHORTEST, LONGEST = 20, 200
PACES = (100e-6, 300e-6, 1e-3)  # seconds
LIMIT_SECONDS = 0.5


def lean(observations: Any) -> Any:
    return (observations[:, 2] > 0).astype(np.int64)


def compute(loops: int) -> None:
    for _ in range(loops):
        pass


class Uneven(gymnasium.Env[Any, Any]):
    """Episodes of 20 to 200 steps; a step costs next to nothing, or `work` that is called."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, work: Callable[[], object] | None = None) -> None:
        self._work = work
        self._observation = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(SHORTEST, LONGEST + 1))
        return self._observation, {}

    def step(self, action: Any) -> Any:
        if self._work is not None:
            self._work()
        self._left -= 1
        return self._observation, 1.0, self._left == 0, False, {}


class Model:
    """A model for `evaluate_policy`."""

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


def measure_busy(
    work: Callable[[], object], episodes: int, num_envs: int, workers: int
) -> tuple[float, float]:
    """Return the mean share of busy time of the workers, and the steps per second."""
    queue = EpisodeQueue(make_seeds(0, episodes))
    with AsyncVectorEnv(
        [partial(Uneven, work)] * num_envs,
        num_workers=workers,
        autoreset_mode="Disabled",
        stats=True,
    ) as envs:
        playing = queue.play(envs, adapt_policy(lean, envs), in_turns=True)
        lengths: list[int] = []
        took = timed(lambda: lengths.extend(episode.length for episode in playing))
        busy = float(envs.stats().worker_busy.mean())
    return busy, sum(lengths) / took


def measure_limit(work: Callable[[], object], workers: int) -> float:
    """Return the steps per second of plain loops in processes that exchange no data."""
    with ProcessPoolExecutor(workers) as pool:
        return sum(pool.map(measure_alone, [work] * workers))


def measure_alone(work: Callable[[], object]) -> float:
    """Return the steps per second of this process."""
    return repeat(lambda _: work(), LIMIT_SECONDS)


def show_speed(episodes: int, rounds: int, workers: int, widths: list[int]) -> None:
    """Time both in turns."""
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
                evaluation = evaluate(
                    lean, env_fn, episodes=episodes, seed=0, num_envs=width, num_workers=workers
                )
                times.setdefault(f"evaluate, num_envs={width}", []).append(evaluation.seconds)
        first = next(iter(times.values()))
        for way, seconds in times.items():
            ratio = statistics.median(
                base / took for base, took in zip(first, seconds, strict=True)
            )
            table.add_row(name, way, f"{statistics.median(seconds):.2f}", f"{ratio:.1f}")
    show(table)


def show_busy(episodes: int, workers: int, widths: list[int]) -> None:
    """Show how busy workers are with environments that compute, and with some that sleep."""
    title = f"{episodes} episodes of 20 to 200 steps, {workers} workers"
    table = make_table(title, "a step", "ms", "num_envs", "busy", "of the limit", left=2)
    loops_per_second = 10_000 * measure_alone(partial(compute, 10_000))
    for pace in PACES:
        works = {
            "computes": partial(compute, round(pace * loops_per_second)),
            "sleeps": partial(time.sleep, pace),
        }
        for kind, work in works.items():
            for width in widths:
                limit = measure_limit(work, workers)
                busy, speed = measure_busy(work, episodes, width, workers)
                share = f"{speed / limit:.1%}"
                table.add_row(kind, f"{pace * 1e3:g}", str(width), f"{busy:.1%}", share)
    show(table)


def main(
    part: Annotated[
        Literal["speed", "busy", "both"], typer.Option(help="What to measure.")
    ] = "both",
    episodes: int = 500,
    rounds: int = 5,
    workers: int = 2,
    num_envs: Annotated[
        str | None,
        typer.Option(
            help="Numbers of environments for `evaluate`, with commas.",
            show_default="8, 32, 128 and evaluate's own choice; for busy the latter alone",
        ),
    ] = None,
) -> None:
    """Measure the speed of `evaluate`, and how busy its workers are."""
    default, _ = choose_num_envs(None, workers, "async", episodes)
    numbers = (num_envs or f"8,32,{default},128").split(",")
    widths = list(dict.fromkeys(map(int, numbers)))
    if part != "busy":
        show_speed(episodes, rounds, workers, widths)
    if part != "speed":
        show_busy(episodes, workers, widths if num_envs else [default])


if __name__ == "__main__":
    typer.run(main)
