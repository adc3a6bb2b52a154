"""Two versions of vecspaces in turns: what a change of the code costs.

    python -m benchmarks.trees OLD NEW --cases 'CartPole/robot Dict' --rounds 9

OLD and NEW are folders with a package `vecspaces`. Each has one process per case, and the processes
step in turns, so that other programs slow down both. Shown are microseconds per step of all
environments, as medians of the rounds, and the median of the ratios NEW / OLD of each round: above
1, NEW is slower.
"""

from __future__ import annotations

import os
import pickle
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import cloudpickle
import typer

from benchmarks.common import make_table, show
from benchmarks.environments import find_environment
from vecspaces.vector import AsyncVectorEnv


class Case(NamedTuple):
    """Environments of one kind, by a name of `benchmarks.environments`."""

    env: str
    num_envs: int = 64
    num_workers: int = 2


CASES = {
    "nothing 8": Case("nothing", 8),
    "nothing 64": Case("nothing"),
    "CartPole": Case("CartPole-v1"),
    "HalfCheetah": Case("HalfCheetah-v5"),
    "infos": Case("infos"),
    "robot Dict": Case("robot"),
    "image": Case("image"),
    "nothing, 16 workers": Case("nothing", 16, 16),
    "CartPole, 16 workers": Case("CartPole-v1", 64, 16),
    "nothing, 64 workers": Case("nothing", 64, 64),
}


def serve(case: str) -> None:
    """Step for as many seconds as each line of the input says; print microseconds per step.

    The first line is the factory, so that both versions do the same work.
    """
    _, num_envs, num_workers = CASES[case]
    env_fns = [pickle.loads(bytes.fromhex(sys.stdin.readline()))] * num_envs
    with AsyncVectorEnv(env_fns, num_workers=num_workers, context="fork") as envs:
        envs.reset(seed=0)
        envs.action_space.seed(0)
        actions = envs.action_space.sample()
        print("ready", flush=True)
        for line in sys.stdin:
            seconds, count, began = float(line), 0, time.perf_counter()
            while (elapsed := time.perf_counter() - began) < seconds:
                envs.step(actions)
                count += 1
            print(1e6 * elapsed / count, flush=True)


def start(folder: Path, case: str, factory: Any) -> subprocess.Popen[str]:
    """Start the process of a version."""
    code = f"import runpy; runpy.run_path({__file__!r})['serve']({case!r})"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(folder.resolve())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{cloudpickle.dumps(factory).hex()}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    return process


def ask(process: subprocess.Popen[str], seconds: float) -> float:
    """Return the microseconds per step of one round."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(folders: list[Path], case: str, rounds: int, seconds: float) -> list[list[float]]:
    """Return the microseconds per step of each version, by round."""
    factory = find_environment(CASES[case].env)
    processes = [start(folder, case, factory) for folder in folders]
    try:
        for process in processes:
            ask(process, 1.0)
        costs = [[ask(process, seconds) for process in processes] for _ in range(rounds)]
        return [list(column) for column in zip(*costs, strict=True)]
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def main(
    old: Path,
    new: Path,
    cases: Annotated[str, typer.Option(help="Names, separated by /.")] = "/".join(CASES),
    rounds: int = 9,
    seconds: Annotated[float, typer.Option(help="Of each round and version.")] = 0.3,
) -> None:
    """Print one line per case."""
    table = make_table("us per step", "case", "old", "new", "new / old", left=1)
    for case in cases.split("/"):
        before, after = measure([old, new], case, rounds, seconds)
        ratio = statistics.median(b / a for a, b in zip(before, after, strict=True))
        medians = map(statistics.median, (before, after))
        table.add_row(case, *(f"{median:,.0f}" for median in medians), f"{ratio:.2f}")
    show(table)
    print(f"load of the last minute: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    typer.run(main)
