"""`vecspaces rollout`: a random policy in many environments, its speed and its episodes."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from vecspaces.cli import options
from vecspaces.cli.console import Show, make_facts, output, progress_bar
from vecspaces.cli.errors import refuse
from vecspaces.cli.interrupts import Work
from vecspaces.files import replacing
from vecspaces.make import make_vec
from vecspaces.sampling import MASK, sample_next
from vecspaces.wrappers import RecordEpisodeStatistics, RecordVideo

if TYPE_CHECKING:
    from vecspaces.vector import VectorEnv
    from vecspaces.vector.agents import AgentLayout
    from vecspaces.vector.options import Backend

_STATS_KEY = "vecspaces rollout"  # "episode" may be in the environments' own infos
_FRAMES = 300  # six seconds of CartPole


@dataclass
class Summary:
    """Number, mean, minimum and maximum of the values so far, in constant memory."""

    count: int = 0
    total: float = 0.0
    min: float = math.inf
    max: float = -math.inf

    def add(self, values: list[float]) -> None:
        """Add a list of values, at least one; NumPy's reductions take longer for a few values."""
        self.count += len(values)
        self.total += sum(values)
        self.min = min(self.min, *values)
        self.max = max(self.max, *values)

    @property
    def mean(self) -> float:
        """The mean of the values; NaN if there are none."""
        return self.total / self.count if self.count else math.nan


class _TimedRecorder(RecordVideo[Any, Any]):
    """Measures the time of recording, which is not counted as time of the rollout."""

    seconds = 0.0

    def _record(self) -> None:
        began = time.perf_counter()
        try:
            super()._record()
        finally:
            self.seconds += time.perf_counter() - began


@dataclass
class Statistics:
    """Speed and episodes of a rollout, always up to date, so that Ctrl-C can show them."""

    env: str
    backend: str
    num_envs: int
    num_workers: int
    seed: int | None
    agents: AgentLayout | None = None
    steps: int = 0
    seconds: float = 0.0
    returns: Summary = field(default_factory=Summary)
    lengths: Summary = field(default_factory=Summary)

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second."""
        return self.steps / self.seconds if self.seconds else 0.0

    def numbers(self) -> dict[str, int | float | None]:
        """Return speed and episodes; None for statistics of no episodes."""
        numbers: dict[str, int | float | None] = {
            "steps": self.steps,
            "seconds": self.seconds,
            "steps_per_second": self.steps_per_second,
            "episodes": self.returns.count,
        }
        for name, summary in (("return", self.returns), ("length", self.lengths)):
            for statistic in ("mean", "min", "max"):
                value = getattr(summary, statistic)
                numbers[f"{statistic}_{name}"] = value if math.isfinite(value) else None
        return numbers

    def as_json(self) -> dict[str, Any]:
        """Return one flat object for JSON."""
        own = ("env", "backend", "num_envs", "num_workers", "seed")
        return {**{name: getattr(self, name) for name in own}, **self.numbers()}

    def as_facts(self) -> list[tuple[str, str]]:
        """Return names and values for the terminal, with a dash for None."""
        numbers = {**self.numbers(), "steps_per_second": round(self.steps_per_second)}
        facts = []
        for name, value in numbers.items():
            form = "," if isinstance(value, int) else ",.2f"
            shown = "-" if value is None else format(value, form)
            facts.append((name.replace("_per_second", "/s").replace("_", " "), shown))
        return [*facts, ("workers", f"{self.num_workers} ({self.backend})")]


def rollout(
    env: options.Env,
    env_arg: options.EnvArg = None,
    num_envs: options.NumEnvs = options.NUM_ENVS,
    steps: Annotated[
        int, typer.Option(min=1, help="Environment steps, summed over the environments.")
    ] = 100_000,
    backend: options.Backend = "async",
    num_workers: options.NumWorkers = None,
    seed: options.Seed = None,
    autoreset_mode: options.AutoresetMode = None,
    agents: options.Agents = None,
    step_timeout: options.StepTimeout = None,
    context: options.StartMethod = None,
    json_file: options.Json = None,
    record: options.Record = None,
    shown: Annotated[
        str | None,
        typer.Option(
            "--envs",
            metavar="0,1,2,3",
            help=f"The environments to record, in the first {_FRAMES} steps.",
            show_default="the first four",
        ),
    ] = None,
    traceback: options.Traceback = False,
) -> None:
    """Run a random policy; show its speed and its episodes."""
    if shown is not None and record is None:
        refuse("--envs: expected --record FILE with it, found none")
    vector_kwargs = options.vector_options(
        backend,
        num_workers=num_workers,
        context=context,
        step_timeout=step_timeout,
        autoreset_mode=autoreset_mode,
    )
    env_kwargs = options.parse_env_args(env_arg)
    if record is not None:
        env_kwargs["render_mode"] = "rgb_array"
    options.find_env(env, agents, **env_kwargs)
    envs: VectorEnv[Any, Any, Any] = make_vec(
        env,
        num_envs,
        backend=cast("Backend", backend),
        vector_kwargs=vector_kwargs,
        env_kwargs=env_kwargs,
        agents=agents,
    )
    workers = getattr(envs, "num_workers", None) or 0
    result = Statistics(env, backend, envs.num_envs, workers, seed, agents)
    with contextlib.ExitStack() as stack:
        if record is not None:
            envs = _record(envs, stack.enter_context(replacing(record)), shown)
        with Work() as work, envs, progress_bar(steps) as show:
            _step(envs, result, steps, show)
    console = output(json_file)
    console.print(make_facts(f"{result.num_envs} × {env}", result.as_facts()))
    if isinstance(envs, RecordVideo):
        console.print(f"{envs.frames_written} frames in {record}", markup=False, soft_wrap=True)
    work.conclude(console, json_file, result.as_json())


def _record(envs: VectorEnv[Any, Any, Any], file: Path, shown: str | None) -> _TimedRecorder:
    """Wrap a vector env so that its first steps are recorded; close it after an error."""
    try:
        env_ids = list(range(min(4, envs.num_envs)))
        if shown is not None:
            env_ids = options.parse_numbers("--envs", shown, 0, envs.num_envs - 1)
        return _TimedRecorder(envs, file, env_ids=env_ids, length=_FRAMES)
    except BaseException:
        envs.close()
        raise


def _step(envs: VectorEnv[Any, Any, Any], result: Statistics, steps: int, show: Show) -> None:
    """Step, and record statistics by a few NumPy calls for all environments."""
    counted = RecordEpisodeStatistics(envs, stats_key=_STATS_KEY)
    began = time.perf_counter()

    def take_time() -> None:
        recording = envs.seconds if isinstance(envs, _TimedRecorder) else 0.0
        result.seconds = time.perf_counter() - began - recording

    def describe() -> tuple[float, str]:
        take_time()
        speed, episodes = result.steps_per_second, result.returns.count
        text = f"{result.steps:,} steps  {speed:,.0f} steps/s  {episodes:,} episodes"
        return result.steps, text

    try:
        envs.action_space.seed(result.seed)
        rng = np.random.default_rng(result.seed)
        last: Any = counted.reset(seed=result.seed)
        while result.steps < steps:
            infos = last[-1]
            # These rows are reset, not stepped, or their agents are gone.
            idle = ~infos["alive"] if result.agents == "rows" else counted.prev_dones
            resets = int(idle.sum())
            masked = MASK in infos
            actions = sample_next(envs, last, rng) if masked else envs.action_space.sample()
            last = counted.step(actions)
            infos = last[-1]
            result.steps += result.num_envs - resets
            if _STATS_KEY in infos:
                ended = infos[f"_{_STATS_KEY}"]
                result.returns.add(infos[_STATS_KEY]["r"][ended].tolist())
                result.lengths.add(infos[_STATS_KEY]["l"][ended].tolist())
            show(describe)
    finally:
        take_time()
