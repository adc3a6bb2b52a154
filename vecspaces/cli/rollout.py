"""`vecspaces rollout`: a random policy in many environments, its speed and its episodes."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np

from vecspaces.cli import options
from vecspaces.cli.console import Show, make_facts, output, progress_bar
from vecspaces.cli.interrupts import Work
from vecspaces.cli.options import option
from vecspaces.files import replacing
from vecspaces.make import make_vec
from vecspaces.sampling import MASK, sample_next
from vecspaces.vector import VectorEnv
from vecspaces.wrappers import RecordEpisodeStatistics, RecordVideo

_STATS_KEY = "vecspaces rollout"  # "episode" may be in the environments' own infos
_FRAMES = 300  # six seconds of CartPole
_PICTURES = 4  # environments in it


def rollout(
    env: options.Env,
    env_arg: options.EnvArg = None,
    num_envs: options.NumEnvs = options.NUM_ENVS,
    steps: Annotated[
        int, option("Environment steps, summed over the environments.", min=1)
    ] = 100_000,
    backend: options.Backend = "async",
    num_workers: options.NumWorkers = None,
    seed: options.Seed = None,
    agents: options.Agents = None,
    step_timeout: options.StepTimeout = None,
    context: options.StartMethod = None,
    json_file: options.Json = None,
    record: options.Record = None,
    traceback: options.Traceback = False,
) -> None:
    """Run a random policy; show its speed and its episodes."""
    vector_kwargs = options.vector_options(
        backend, num_workers=num_workers, context=context, step_timeout=step_timeout
    )
    env_kwargs = options.parse_env_args(env_arg)
    if record is not None:
        env_kwargs["render_mode"] = "rgb_array"
    options.find_env(env, agents, **env_kwargs)
    arguments: Any = {"env_kwargs": env_kwargs, "vector_kwargs": vector_kwargs, "agents": agents}
    make: Any = make_vec  # of any backend
    envs: VectorEnv[Any, Any, Any] = make(env, num_envs, backend=backend, **arguments)
    num_workers = getattr(envs, "num_workers", None) or 0
    played, written = _Played(agents == "rows"), ""
    with contextlib.ExitStack() as stack:
        file = None if record is None else stack.enter_context(replacing(record))
        with Work() as work, envs, progress_bar(steps) as show:
            if file is None:
                played.step(envs, steps, seed, show)
            else:
                env_ids = range(min(_PICTURES, envs.num_envs))
                with RecordVideo.to_file(envs, file, env_ids=env_ids, length=_FRAMES) as recorded:
                    played.step(recorded, steps, seed, show)
                written = f"{recorded.frames_written} frames in {record}"
    console, numbers = output(json_file), played.numbers()
    facts = [*numbers.items(), ("workers", f"{num_workers} ({backend})")]
    console.print(make_facts(f"{envs.num_envs} × {env}", facts))
    if written:
        console.print(written, markup=False, soft_wrap=True)
    named = {"env": env, "backend": backend, "num_envs": envs.num_envs}
    work.conclude(
        console, json_file, {**named, "num_workers": num_workers, "seed": seed, **numbers}
    )


class _Played:
    """Speed and episodes, always up to date, so that Ctrl-C can show them."""

    def __init__(self, agents_are_rows: bool) -> None:
        self._agents_are_rows, self._steps, self._seconds = agents_are_rows, 0, 0.0
        self._episodes: dict[str, Sequence[float]] = {"return": (), "length": ()}

    def numbers(self) -> dict[str, int | float | None]:
        """Return speed and episodes; None for statistics of no episodes."""
        numbers: dict[str, int | float | None] = {
            "steps": self._steps,
            "seconds": self._seconds,
            "steps_per_second": self._steps / self._seconds if self._seconds else 0.0,
            "episodes": len(self._episodes["return"]),
        }
        for name, values in self._episodes.items():
            for statistic in ("mean", "min", "max"):
                value = float(getattr(np, statistic)(values)) if values else math.nan
                numbers[f"{statistic}_{name}"] = value if math.isfinite(value) else None
        return numbers

    def step(
        self, envs: VectorEnv[Any, Any, Any], steps: int, seed: int | None, show: Show
    ) -> None:
        """Step with random actions; episodes are counted by a few NumPy calls for all rows."""
        counted = RecordEpisodeStatistics(envs, buffer_length=sys.maxsize, stats_key=_STATS_KEY)
        self._episodes = {"return": counted.return_queue, "length": counted.length_queue}
        envs.action_space.seed(seed)
        rng = np.random.default_rng(seed)
        began = time.perf_counter()
        last: Any = counted.reset(seed=seed)
        try:
            while self._steps < steps:
                infos, episodes = last[-1], len(counted.return_queue)
                # These rows are reset, not stepped, or their agents are gone.
                idle = ~infos["alive"] if self._agents_are_rows else counted.prev_dones
                stepped = envs.num_envs - int(idle.sum())
                is_masked = MASK in infos
                last = counted.step(
                    sample_next(envs, last, rng) if is_masked else envs.action_space.sample()
                )
                self._steps += stepped
                show(partial(_describe, self._steps, episodes))
        finally:
            self._seconds = time.perf_counter() - began


def _describe(steps: int, episodes: int) -> tuple[float, str]:
    return steps, f"{steps:,} steps  {episodes:,} episodes"
