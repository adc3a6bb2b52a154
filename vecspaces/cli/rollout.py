"""`vecspaces rollout`: a random policy in many environments, its speed and its episodes."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from typing import Annotated, Any

import numpy as np

from vecspaces.cli import options
from vecspaces.cli.console import Show, make_facts, output, progress_bar, write_json
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
    file = None
    with contextlib.ExitStack() as stack:
        if record is not None:
            file = stack.enter_context(replacing(record))
        stack.enter_context(envs)
        show, played = stack.enter_context(progress_bar(steps)), envs
        if file is not None:
            env_ids = range(min(_PICTURES, envs.num_envs))
            played = RecordVideo.to_file(envs, file, env_ids=env_ids, length=_FRAMES)
            stack.enter_context(played)
        numbers = _play(played, steps, seed, show, agents == "rows")
    console = output(json_file)
    facts = [*numbers.items(), ("workers", f"{num_workers} ({backend})")]
    console.print(make_facts(f"{envs.num_envs} × {env}", facts))
    if isinstance(played, RecordVideo):
        written = f"{played.frames_written} frames in {record}"
        console.print(written, markup=False, soft_wrap=True)
    named = {"env": env, "backend": backend, "num_envs": envs.num_envs}
    write_json(json_file, {**named, "num_workers": num_workers, "seed": seed, **numbers})


def _play(
    envs: VectorEnv[Any, Any, Any], steps: int, seed: int | None, show: Show, agents_are_rows: bool
) -> dict[str, int | float | None]:
    """Step with random actions; return speed and episodes, with None for statistics of none."""
    counted = RecordEpisodeStatistics(envs, buffer_length=sys.maxsize, stats_key=_STATS_KEY)
    envs.action_space.seed(seed)
    rng = np.random.default_rng(seed)
    began, stepped = time.perf_counter(), 0
    last: Any = counted.reset(seed=seed)
    while stepped < steps:
        infos = last[-1]
        # These rows are reset, not stepped, or their agents are gone.
        idle = ~infos["alive"] if agents_are_rows else counted.prev_dones
        now = envs.num_envs - int(idle.sum())
        is_masked = MASK in infos
        last = counted.step(
            sample_next(envs, last, rng) if is_masked else envs.action_space.sample()
        )
        stepped += now
        show(stepped, f"{stepped:,} steps  {len(counted.return_queue):,} episodes")
    seconds = time.perf_counter() - began
    numbers: dict[str, int | float | None] = {
        "steps": stepped,
        "seconds": seconds,
        "steps_per_second": stepped / seconds,
        "episodes": len(counted.return_queue),
    }
    for name, values in (("return", counted.return_queue), ("length", counted.length_queue)):
        for statistic in ("mean", "min", "max"):
            value = float(getattr(np, statistic)(values)) if values else math.nan
            numbers[f"{statistic}_{name}"] = value if math.isfinite(value) else None
    return numbers
