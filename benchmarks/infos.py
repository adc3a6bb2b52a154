"""What infos cost: a mask of 16 flags and two numbers per environment and step.

    python -m benchmarks.infos

The environments do nothing else. In turns: no infos at all, the infos with an `info_space`, the
same without one, and Gymnasium's vector env. Medians of the rounds, of their differences and of
their ratios; and the least of the rounds, which a busy machine disturbs less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer

from benchmarks.common import make_table, show
from vecspaces.adapters.gymnasium import to_gymnasium
from vecspaces.spaces import Box, Dict, MultiBinary
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

SPACE = Dict(
    action_mask=MultiBinary(16),
    cost=Box(-np.inf, np.inf, (), np.float64),
    distance=Box(-np.inf, np.inf, (), np.float32),
)
# The targets: microseconds more than no infos, and times Gymnasium's steps per second.
MOST_ADDED, LEAST_RATIO = 25.0, 30.0


class Masked(gymnasium.Env[Any, Any]):
    """Does nothing; its infos are an action mask, a cost and a progress.

    Args:
        informs: Whether it has infos.
        declares: Whether it has an info_space.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(16)

    def __init__(self, informs: bool, declares: bool) -> None:
        self.observation = np.zeros(4, np.float32)
        self.mask = np.ones(16, np.bool_)
        self.informs = informs
        if declares:
            self.info_space = to_gymnasium(SPACE)

    def info(self) -> dict[str, Any]:
        if not self.informs:
            return {}
        return {"action_mask": self.mask, "cost": 0.5, "distance": 1.25}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.observation, self.info()

    def step(self, action: Any) -> Any:
        return self.observation, 0.0, False, False, self.info()


def microseconds(envs: Any, actions: Any, seconds: float) -> float:
    """Step for some time, and return the median time of a step."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or times[-1] < end:
        times.append(time.perf_counter())
        infos = envs.step(actions)[4]
        infos.get("action_mask")  # as a policy does
    # The first steps after a pause wake processes.
    return float(np.median(np.diff(times)[len(times) // 5 :])) * 1e6


def main(
    num_envs: int = 64,
    num_workers: int = 2,
    rounds: int = 20,
    seconds: float = 0.1,
    backend: Annotated[str, typer.Option(help="async or sync")] = "async",
) -> None:
    """Measure all of them in one run."""
    ours: Callable[..., Any] = SyncVectorEnv
    theirs: Callable[..., Any] = gymnasium.vector.SyncVectorEnv
    if backend == "async":
        ours = partial(AsyncVectorEnv, num_workers=num_workers)
        theirs = gymnasium.vector.AsyncVectorEnv
    contenders: list[tuple[str, Callable[..., Any], bool, bool]] = [
        ("no infos", ours, False, False),
        ("infos with info_space", ours, True, True),
        ("infos without", ours, True, False),
        (f"Gymnasium {backend}", theirs, True, False),
    ]
    actions = np.zeros(num_envs, np.int64)
    with ExitStack() as stack:
        made = []
        for _, make, informs, declares in contenders:
            envs = make([partial(Masked, informs, declares)] * num_envs)
            stack.callback(envs.close)
            envs.reset(seed=0)
            made.append(envs)
        samples = [[microseconds(envs, actions, seconds) for envs in made] for _ in range(rounds)]
    title = f"{num_envs} environments, {backend}"
    columns = ("us per step", "more than no infos", "of Gymnasium", "least us", "more")
    table = make_table(title, "", *columns)
    least = [min(column) for column in zip(*samples, strict=True)]
    for place, (name, *_) in enumerate(contenders):
        times = [row[place] for row in samples]
        added = statistics.median(row[place] - row[0] for row in samples)
        ratio = statistics.median(row[-1] / row[place] for row in samples)
        table.add_row(
            name,
            f"{statistics.median(times):.1f}",
            f"{added:.1f}",
            f"{ratio:.1f}x",
            f"{least[place]:.1f}",
            f"{least[place] - least[0]:.1f}",
        )
    show(table)
    if backend == "async":
        print(f"Targets: less than {MOST_ADDED:g} us more, at least {LEAST_RATIO:g}x.")


if __name__ == "__main__":
    typer.run(main)
