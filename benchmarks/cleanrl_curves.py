"""Minutes until CleanRL's `ppo_continuous_action.py` reaches a return, with three vector envs.

    pip install ".[all]" "gymnasium[mujoco]" torch tensorboard tyro
    git clone https://github.com/vwxyzjn/cleanrl
    python -m benchmarks.cleanrl_curves cleanrl/cleanrl/ppo_continuous_action.py --write

The script runs as it is, with Gymnasium's `AsyncVectorEnv`, and with that of vecspaces, in turns,
by the changes of docs/cleanrl.md. The printed returns must be equal: only the time differs. With
`--write` the picture of that page is drawn; its table is printed.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer

from benchmarks.common import versions

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "cleanrl.png"
OURS = "from vecspaces.adapters.gymnasium import AsyncVectorEnv"
CALL = "gym.vector.SyncVectorEnv("
MODE = "autoreset_mode=gym.vector.AutoresetMode.SAME_STEP"
IMPORT = "import gymnasium as gym\n"
# Gymnasium 1.0 and newer want the space of the results; the script is for 0.29.
OLD, NEW = "np.clip(obs, -10, 10))", "np.clip(obs, -10, 10), env.observation_space)"
WAIT = 1e-3
ENV_NUMBER = 16


class WaitingPendulum(gymnasium.Wrapper[Any, Any, Any, Any]):
    """InvertedPendulum-v5 whose step waits for 1 ms, as for a simulator in another process."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("InvertedPendulum-v5"))

    def step(self, action: Any) -> Any:
        """Wait, then step."""
        time.sleep(WAIT)
        return self.env.step(action)


gymnasium.register("WaitingPendulum-v0", WaitingPendulum)

ENV_ID = "benchmarks.cleanrl_curves:WaitingPendulum-v0"
TASK = f"InvertedPendulum-v5, 1 ms per step, {ENV_NUMBER} environments"
STEPS = 100_000
GOAL = 50
COLOURS = {"Gymnasium sync": "#94a3b8", "Gymnasium async": "#dc2626", "vecspaces async": "#2563eb"}


def change(script: str, vector_env: str) -> str:
    """Return the script with another vector env."""
    for text in (IMPORT, CALL, MODE, OLD):
        assert script.count(text) == 1, f"the script is not the expected one: {text!r}"
    script = script.replace(OLD, NEW)
    if vector_env == "Gymnasium async":
        return script.replace(CALL, "gym.vector.AsyncVectorEnv(")
    if vector_env == "vecspaces async":
        script = script.replace(IMPORT, f"{IMPORT}{OURS}\n")
        script = script.replace(MODE, f"{MODE}, num_workers={ENV_NUMBER}")
        return script.replace(CALL, "AsyncVectorEnv(")
    return script


def train(script: str, seed: int) -> dict[str, Any]:
    """Run a script; return its episodes (seconds, steps, return) and the processor's seconds."""
    options = {"env-id": ENV_ID, "total-timesteps": STEPS, "num-envs": ENV_NUMBER, "seed": seed}
    options["num-steps"] = 2048 // ENV_NUMBER  # a batch as large as the script's
    arguments = [f"--{name}={value}" for name, value in options.items()]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    episodes = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "script.py")
        path.write_text(script, "utf-8")
        start = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-u", str(path), *arguments],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if match := re.match(r"global_step=(\d+), episodic_return=\[?([-\d.e]+)", line):
                    elapsed = time.perf_counter() - start
                    episodes.append((elapsed, int(match[1]), float(match[2])))
        assert process.returncode == 0, f"the script ended with {process.returncode}"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"episodes": episodes, "seconds": time.perf_counter() - start, "processor": used}


def curve(run: dict[str, Any]) -> tuple[Any, Any]:
    """Return minutes, and the mean return of the last 20 episodes."""
    seconds, _, returns = np.array(run["episodes"]).T
    return seconds[19:] / 60, np.convolve(returns, np.full(20, 1 / 20), "valid")


def minutes(run: dict[str, Any]) -> float:
    """Return when the mean return reached the goal, in minutes; NaN if never."""
    elapsed, means = curve(run)
    reached = np.flatnonzero(means >= GOAL)
    return float(elapsed[reached[0]]) if reached.size else float("nan")


def draw(runs: list[dict[str, Any]]) -> None:
    """Draw the curves of all runs."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(4.8, 3), dpi=180)
    for run in runs:
        label = run["vector_env"] if run["seed"] == 1 else None
        axes.plot(*curve(run), linewidth=1, color=COLOURS[run["vector_env"]], label=label)
    axes.axhline(GOAL, color="black", linestyle=":", linewidth=1)
    axes.set_title(TASK, fontsize=9, loc="left")
    axes.set(ylabel="mean return of 20 episodes", xlabel="minutes", xlim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, labelspacing=0.2, borderaxespad=0, loc="lower right")
    figure.tight_layout()
    figure.savefig(PICTURE)


def main(
    script: Annotated[Path, typer.Argument(help="CleanRL's ppo_continuous_action.py")],
    seeds: Annotated[int, typer.Option(help="runs of each vector env")] = 2,
    results: Annotated[Path, typer.Option(help="runs that are done, a line each")] = Path(
        "cleanrl_curves.jsonl"
    ),
    write: Annotated[bool, typer.Option("--write", help="draw the picture of the page")] = False,
) -> None:
    """Run what is not in the results yet; print the table, and draw the picture."""
    text = script.read_text("utf-8")
    runs = (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )
    done = {(run["seed"], run["vector_env"]) for run in runs}
    for seed in range(1, seeds + 1):
        for vector_env in COLOURS:
            if (seed, vector_env) in done:
                continue
            run = train(change(text, vector_env), seed)
            runs.append({"seed": seed, "vector_env": vector_env, **run})
            with results.open("a") as file:
                print(json.dumps(runs[-1]), file=file)
    print(f"| {TASK} | minutes to a return of {GOAL}, by seed | processor minutes |")
    print("| --- | --- | --- |")
    first = {run["seed"]: run for run in reversed(runs)}
    for vector_env in COLOURS:
        same = [run for run in runs if run["vector_env"] == vector_env]
        for run in same:
            expected = [episode[1:] for episode in first[run["seed"]]["episodes"]]
            assert [episode[1:] for episode in run["episodes"]] == expected, "returns differ"
        reached = ", ".join(f"{minutes(run):.2f}" for run in same)
        used = ", ".join(f"{run['processor'] / 60:.1f}" for run in same)
        print(f"| {vector_env} | {reached} | {used} |")
    print(versions())
    if write:
        draw(runs)


if __name__ == "__main__":
    typer.run(main)
