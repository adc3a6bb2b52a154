"""`vecspaces profile`: the bottleneck, slow environments and workers, and a timeline."""

from __future__ import annotations

import time
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from vecspaces.cli import options
from vecspaces.cli.console import announce, make_table, output, progress_bar, write_json
from vecspaces.cli.contenders import prepare_actions
from vecspaces.cli.interrupts import Work
from vecspaces.cli.playing import find_policy
from vecspaces.cli.timeline import TimelineRecorder, Traced, chrome_trace
from vecspaces.evaluation.policies import adapt_policy
from vecspaces.sampling import MASK, sample_next
from vecspaces.vector import AsyncVectorEnv, AutoresetMode
from vecspaces.vector.exchange.stats import Stats

_SHOWN = 10
# The maximum number of spans in a trace, so that its file has at most a few hundred megabytes.
_SPANS = 500_000


def profile(
    env: options.Env,
    env_arg: options.EnvArg = None,
    num_envs: options.NumEnvs = options.NUM_ENVS,
    seconds: Annotated[float, typer.Option(min=1e-3, help="Duration of the run.")] = 5.0,
    num_workers: options.NumWorkers = None,
    autoreset_mode: options.AutoresetMode = None,
    step_timeout: options.StepTimeout = None,
    context: options.StartMethod = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="The policy, which is called as evaluate calls it.",
            show_default="actions drawn beforehand",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=options.check_file(),
            help="Write a timeline in Chrome's trace format (Perfetto).",
        ),
    ] = None,
    traceback: options.Traceback = False,
) -> None:
    """Step with random actions or a policy; find the bottleneck, slow environments and workers."""
    options.prepare(policy)
    played_by = None if policy is None else find_policy(policy)
    make: Any = options.find_env(env, **options.parse_env_args(env_arg))
    given = options.vector_options(
        "async",
        num_workers=num_workers,
        context=context,
        step_timeout=step_timeout,
        autoreset_mode=autoreset_mode,
    )
    if trace is not None:
        make = Traced(make, limit=_SPANS // num_envs)
    with AsyncVectorEnv([make] * num_envs, stats=True, **given) as envs:
        announce(f"Stepping {num_envs} environments for {seconds:g} s.")
        recorder = TimelineRecorder(_SPANS)
        timeline = None
        with Work() as work:
            _step(envs, played_by, recorder, seconds)
            if trace is not None:
                timeline = chrome_trace(envs, recorder.spans)
        stats = envs.stats()
    console = output()
    console.print(_workers_table(stats))
    console.print(_environments_table(env, stats))
    for finding in [stats.bottleneck, *_findings(stats)]:
        console.print(finding, soft_wrap=True)
    work.conclude(console, None, {})
    if trace is not None:
        write_json(trace, timeline, indent=None)
        console.print(f"{trace}: open it in https://ui.perfetto.dev", style="dim", soft_wrap=True)


def _step(
    envs: AsyncVectorEnv[Any, Any], policy: Any, recorder: TimelineRecorder, seconds: float
) -> None:
    """Step until the time is up, with the actions of a policy if there is one."""
    reset = recorder.timed("reset", envs.reset)
    send = recorder.timed("step_async", envs.step_async)
    wait = recorder.timed("step_wait", envs.step_wait)
    prepared = cycle(prepare_actions(envs.single_action_space, envs.num_envs))
    rng = np.random.default_rng(0)
    rows = range(envs.num_envs)
    result: Any = reset(seed=0)
    adapter = None if policy is None else adapt_policy(policy, envs)
    begin = np.ones(envs.num_envs, dtype=np.bool_)  # the rows that begin an episode
    ended = ~begin
    is_same_step = envs.autoreset_mode is AutoresetMode.SAME_STEP
    end = time.perf_counter() + seconds
    with progress_bar() as show:
        for turn in count(1):
            if adapter is not None:
                if begin.any():
                    begun = np.flatnonzero(begin).tolist()
                    adapter.begin(begun, begun)
                send(adapter.act(result[0], result[-1], rows))
            else:
                masked = MASK in result[-1]
                send(sample_next(envs, result, rng) if masked else next(prepared))
            result = wait()
            former, ended = ended, result[2] | result[3]
            begin = ended if is_same_step else former
            show(partial(_describe, turn * envs.num_envs))
            if time.perf_counter() >= end:
                return


def _describe(steps: int) -> tuple[None, str]:
    return None, f"{steps:,} steps"


def _workers_table(stats: Stats) -> Table:
    table = make_table("workers", "worker", "environments", "at work", "waiting", left=2)
    for worker, rows in enumerate(stats.worker_envs):
        waiting = stats.worker_waiting[worker]
        span = f"{rows.start} to {rows.stop - 1}"
        table.add_row(str(worker), span, f"{1 - waiting:.0%}", f"{waiting:.0%}")
    return table


def _environments_table(env: str, stats: Stats) -> Table:
    count = len(stats.steps)
    title = f"{env}: the {_SHOWN} slowest of {count}" if count > _SHOWN else env
    columns = ("env", "steps", "step, mean", "step, p99", "resets", "reset, mean")
    table = make_table(title, *columns, left=0)
    for row in np.argsort(-stats.step_mean, kind="stable")[:_SHOWN]:
        table.add_row(
            str(row),
            f"{stats.steps[row]:,}",
            f"{stats.step_mean[row] * 1e6:,.1f} us",
            f"{stats.step_p99[row] * 1e6:,.1f} us",
            f"{stats.resets[row]:,}",
            f"{stats.reset_mean[row] * 1e6:,.1f} us" if stats.resets[row] else "-",
        )
    return table


def _findings(stats: Stats) -> list[str]:
    """Return the findings in the tables, as sentences."""
    findings = []
    usual = float(np.median(stats.step_mean))
    slow = [int(row) for row in np.flatnonzero(stats.step_mean > 2 * usual)]
    for row in slow[:_SHOWN]:
        times = stats.step_mean[row] / usual
        findings.append(f"environment {row} takes {times:.1f} times as long as the usual one")
    if len(stats.worker_waiting) > 1:
        least, most = float(stats.worker_waiting.min()), float(stats.worker_waiting.max())
        if most - least > 0.2:
            findings.append(
                f"worker {int(stats.worker_waiting.argmax())} waits {most:.0%} of its time, "
                f"worker {int(stats.worker_waiting.argmin())} {least:.0%}: mix slow and fast "
                "environments in env_fns, or use send and recv with a batch_size"
            )
    jitter = float(np.median(stats.step_p99 / np.maximum(stats.step_mean, 1e-12)))
    if jitter > 5:
        findings.append(
            f"one step in a hundred takes {jitter:.0f} times the mean: with batch_size, "
            "recv does not wait for it"
        )
    return findings
