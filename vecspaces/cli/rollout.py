"""`vecspaces rollout`: a random policy in many environments, its speed and its episodes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from vecspaces.cli.console import (
    AutoresetModeOption,
    BackendOption,
    EnvArgOption,
    EnvArgument,
    JsonOption,
    NumEnvsOption,
    StartMethodOption,
    StepTimeoutOption,
    TracebackOption,
    check_picture,
    find_env,
    make_facts,
    output,
    parse_env_args,
    parse_numbers,
    prepare,
    progress_bar,
    vector_options,
    write_json,
)
from vecspaces.cli.errors import refuse
from vecspaces.cli.interrupts import Work
from vecspaces.files import replacing
from vecspaces.make import make_vec
from vecspaces.sampling import MASK, sample_next
from vecspaces.wrappers import RecordEpisodeStatistics, RecordVideo

if TYPE_CHECKING:
    from vecspaces.vector import VectorEnv
    from vecspaces.vector.options import Backend

_STATS_KEY = "vecspaces rollout"  # "episode" may be in the environments' own infos
_REFRESH_SECONDS = 0.2  # drawing the bar costs a millisecond or two: under 1 % of the rollout
_FRAMES = 300  # what a person looks at: six seconds of CartPole


@dataclass
class Summary:
    """Number, mean, least and greatest of the values so far, in constant memory.

    Example:
        >>> summary = Summary()
        >>> summary.add([3.0, 5.0])
        >>> summary.add([1.0])
        >>> summary.count, summary.mean, summary.least, summary.greatest
        (3, 3.0, 1.0, 5.0)
    """

    count: int = 0
    total: float = 0.0
    least: float = math.inf
    greatest: float = -math.inf

    def add(self, values: list[float]) -> None:
        """Take in values, at least one; a list, as NumPy's reductions cost more than a few."""
        self.count += len(values)
        self.total += sum(values)
        self.least = min(self.least, *values)
        self.greatest = max(self.greatest, *values)

    @property
    def mean(self) -> float:
        """The mean of the values; NaN if there are none."""
        return self.total / self.count if self.count else math.nan


class _Recorder(RecordVideo[Any, Any]):
    """Counts the time that it takes, which is no part of the speed of a rollout."""

    seconds = 0.0

    def _record(self) -> None:
        began = time.perf_counter()
        try:
            super()._record()
        finally:
            self.seconds += time.perf_counter() - began


@dataclass
class Outcome:
    """What a rollout did; kept up to date during the rollout, so that Ctrl-C can show it."""

    env: str
    backend: str
    num_envs: int
    num_workers: int
    seed: int | None
    steps: int = 0
    seconds: float = 0.0
    returns: Summary = field(default_factory=Summary)
    lengths: Summary = field(default_factory=Summary)

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second."""
        return self.steps / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return one flat object for JSON; a number that does not exist is None."""
        own = {key: value for key, value in vars(self).items() if not isinstance(value, Summary)}
        flat = {
            **own,
            "steps_per_second": self.steps_per_second,
            "episodes": self.returns.count,
            "mean_return": self.returns.mean,
            "min_return": self.returns.least,
            "max_return": self.returns.greatest,
            "mean_length": self.lengths.mean,
        }
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in flat.items()
        }

    def as_facts(self) -> list[tuple[str, str]]:
        """Return names and values for the terminal."""
        rows: list[tuple[str, int | float]] = [
            ("steps", self.steps),
            ("seconds", self.seconds),
            ("steps/s", round(self.steps_per_second)),
            ("episodes", self.returns.count),
        ]
        for name, summary in (("return", self.returns), ("length", self.lengths)):
            rows.append((f"mean {name}", summary.mean))
            rows.append((f"min {name}", summary.least))
            rows.append((f"max {name}", summary.greatest))
        facts = [(name, _show(value)) for name, value in rows]
        return [*facts, ("workers", f"{self.num_workers} ({self.backend})")]


def _show(value: int | float) -> str:
    """Write a number; one that does not exist as a dash."""
    if isinstance(value, float) and not math.isfinite(value):
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def rollout(
    env: EnvArgument,
    env_arg: EnvArgOption = None,
    num_envs: NumEnvsOption = 8,
    steps: Annotated[
        int, typer.Option(min=1, help="Environment steps, summed over the environments.")
    ] = 100_000,
    backend: BackendOption = "async",
    num_workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Worker processes (async) or actors (ray).",
            show_default="one per usable core",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of environments and policy.", show_default="fresh entropy"),
    ] = None,
    autoreset_mode: AutoresetModeOption = None,
    step_timeout: StepTimeoutOption = None,
    context: StartMethodOption = None,
    json_file: JsonOption = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=check_picture,
            help=f"Record the first {_FRAMES} steps as a picture: .gif or .mp4.",
        ),
    ] = None,
    shown: Annotated[
        str | None,
        typer.Option(
            "--envs",
            metavar="0,1,2,3",
            help="The environments to record.",
            show_default="the first four",
        ),
    ] = None,
    traceback: TracebackOption = False,
) -> None:
    """Roll out a random policy in many environments; show its speed and its episodes."""
    if shown is not None and record is None:
        refuse("--envs: expected --record FILE with it, found none")
    vector_kwargs = vector_options(
        backend,
        num_workers=num_workers,
        context=context,
        step_timeout=step_timeout,
        autoreset_mode=autoreset_mode,
    )
    prepare(env)
    env_kwargs = parse_env_args(env_arg)
    if record is not None:
        env_kwargs["render_mode"] = "rgb_array"
    find_env(env, **env_kwargs)
    envs: VectorEnv[Any, Any, Any] = make_vec(
        env,
        num_envs,
        backend=cast("Backend", backend),
        vector_kwargs=vector_kwargs,
        env_kwargs=env_kwargs,
    )
    result = Outcome(env, backend, envs.num_envs, getattr(envs, "num_workers", None) or 0, seed)
    recording = _recorded(envs, record, shown)
    with recording as envs, Work() as work, envs, progress_bar(steps) as update:
        _step(envs, result, steps, update)
    console = output(json_file)
    console.print(make_facts(f"{result.num_envs} × {env}", result.as_facts()))
    write_json(json_file, {**result.as_json(), "interrupted": not work.finished})
    if isinstance(envs, RecordVideo):
        console.print(f"{envs.frames_written} frames in {record}", markup=False, soft_wrap=True)
    work.conclude(console)


@contextlib.contextmanager
def _recorded(
    envs: VectorEnv[Any, Any, Any], path: Path | None, shown: str | None
) -> Iterator[VectorEnv[Any, Any, Any]]:
    """Wrap a vector env so that its first steps are recorded; close it where that cannot be."""
    if path is None:
        yield envs
        return
    with replacing(path) as file:
        try:
            env_ids = list(range(min(4, envs.num_envs)))
            if shown is not None:
                env_ids = parse_numbers("--envs", shown, 0, envs.num_envs - 1)
            recorder = _Recorder(envs, file, env_ids=env_ids, length=_FRAMES)
        except BaseException:
            envs.close()
            raise
        yield recorder


def _step(
    envs: VectorEnv[Any, Any, Any], result: Outcome, steps: int, update: Callable[..., None]
) -> None:
    """Step, with a few NumPy calls for all environments besides."""
    counted = RecordEpisodeStatistics(envs, stats_key=_STATS_KEY)
    started = shown = time.perf_counter()

    def stepped_for(now: float) -> float:
        recording = envs.seconds if isinstance(envs, _Recorder) else 0.0
        return now - started - recording

    try:
        envs.action_space.seed(result.seed)
        rng = np.random.default_rng(result.seed)
        last: Any = counted.reset(seed=result.seed)
        while result.steps < steps:
            resets = int(counted.prev_dones.sum())  # what follows the end of an episode
            masked = MASK in last[-1]
            actions = sample_next(envs, last, rng) if masked else envs.action_space.sample()
            last = counted.step(actions)
            infos = last[-1]
            result.steps += result.num_envs - resets
            if _STATS_KEY in infos:
                ended = infos[f"_{_STATS_KEY}"]
                result.returns.add(infos[_STATS_KEY]["r"][ended].tolist())
                result.lengths.add(infos[_STATS_KEY]["l"][ended].tolist())
            now = time.perf_counter()
            if now - shown >= _REFRESH_SECONDS:
                shown, result.seconds = now, stepped_for(now)
                speed, episodes = result.steps_per_second, result.returns.count
                text = f"{result.steps:,} steps  {speed:,.0f} steps/s  {episodes:,} episodes"
                update(completed=result.steps, description=text)
    finally:
        result.seconds = stepped_for(time.perf_counter())
