"""The gallery of docs/examples.md: a picture of each example, and how long each takes.

    pip install ".[all,sb3,pettingzoo]" sb3-contrib mpe2 tensorboard
    python -m benchmarks.gallery                   # draw all pictures
    python -m benchmarks.gallery ppo long_run      # ... those of some examples
    python -m benchmarks.gallery --times ppo       # run examples; write their times into the page

All times need `ray`, `minari[hdf5]` and `lerobot` too. The pictures of `record.py` and
`evaluate.py` are what these programs write themselves.
"""

from __future__ import annotations

import ast
import csv
import importlib
import io
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from vecspaces import collect, make_vec
from vecspaces.interop import require_extra
from vecspaces.layout import Layout

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PICTURES = ROOT / "docs" / "images" / "gallery"
PAGE = ROOT / "docs" / "examples.md"
ARGUMENTS = {"record": ["environments.gif"], "sharded_learners": ["--local"]}
BLUE, RED, GREY = "#2563eb", "#dc2626", "#94a3b8"


def run_example(name: str, *arguments: str) -> str:
    """Run an example in a folder that is removed afterwards; return what it printed."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / f"{name}.py")]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, *(arguments or ARGUMENTS.get(name, []))],
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return done.stdout


def draw_training(axes: Any, name: str) -> None:
    """Draw the mean returns that a program prints, by its steps."""
    lines = re.findall(r"steps +([\d,]+) .*?return.*?(-?\d+\.\d)", run_example(name))
    done, returns = zip(*[(int(n.replace(",", "")), float(mean)) for n, mean in lines], strict=True)
    axes.plot(done, returns, color=BLUE)
    axes.set(xlabel="steps", ylabel="mean return")
    axes.locator_params(axis="x", nbins=5)


def draw_monitored(axes: Any, vec_env: Any, train: Callable[[Any], Any]) -> None:
    """Draw the mean return of 100 episodes while Stable-Baselines3 trains."""
    from stable_baselines3.common.vec_env import VecMonitor

    with tempfile.TemporaryDirectory() as folder:
        monitored = VecMonitor(vec_env, f"{folder}/log")
        train(monitored)
        monitored.close()
        _, *lines = Path(folder, "log.monitor.csv").read_text("utf-8").splitlines()
    rows = [(float(row["r"]), int(row["l"])) for row in csv.DictReader(lines)]
    returns, lengths = np.array(rows).T
    means = np.convolve(returns, np.ones(100) / 100, "valid")
    axes.plot(np.cumsum(lengths)[99:], means, color=BLUE)
    axes.set(xlabel="steps", ylabel="mean return")
    axes.locator_params(axis="x", nbins=5)


def sb3_ppo(axes: Any) -> None:
    example = importlib.import_module("sb3_ppo")
    draw_monitored(axes, example.ours(8), partial(example.train, timesteps=60_000, seed=1))


def masked_ppo(axes: Any) -> None:
    example = importlib.import_module("masked_ppo")
    vec_env = example.as_vec_env(make_vec(example.Maze, 64, autoreset_mode="SameStep"))
    train = partial(example.train, example.MaskablePPO, timesteps=60_000, seed=1)
    draw_monitored(axes, vec_env, train)


def multi_agent(axes: Any) -> None:
    """Draw the first frame: three agents, and the three landmarks that they are to cover."""
    from mpe2 import simple_spread_v3

    env = simple_spread_v3.parallel_env(render_mode="rgb_array")
    env.reset(seed=0)
    axes.imshow(env.render())
    axes.set_axis_off()
    env.close()


def sharded_learners(axes: Any) -> None:
    """Draw who talks to whom."""

    def box(x: float, y: float, text: str, colour: str) -> None:
        axes.text(x, y, text, ha="center", va="center", bbox={"fc": colour, "ec": GREY, "pad": 7})

    for shard in (-1, 1):
        axes.plot([0, shard, shard - 0.5], [2, 1, 0], color=GREY, zorder=0)
        axes.plot([shard, shard + 0.5], [1, 0], color=GREY, zorder=0)
        box(shard, 1, "learner", "#dbeafe")
        box(shard - 0.5, 0, "node", "#dcfce7")
        box(shard + 0.5, 0, "node", "#dcfce7")
    box(0, 2, "policy: sums gradients", "white")
    axes.set(xlim=(-2, 2), ylim=(-0.4, 2.4))
    axes.set_axis_off()


def rollout(axes: Any) -> None:
    with make_vec("CartPole-v1", 64, backend="sync") as envs:
        envs.reset(seed=0)
        envs.action_space.seed(0)
        angles = [envs.step(envs.action_space.sample())[0][:, 2] for _ in range(60)]
    axes.imshow(np.transpose(angles), cmap="RdBu", aspect="auto")
    axes.set(xlabel="step", ylabel="environment")
    axes.set_title("angles of 64 poles", fontsize=13)


def async_rollout(axes: Any) -> None:
    """Draw when each environment steps, a hundred times as slowly as in the program."""
    example = importlib.import_module("async_rollout")

    class Timed(example.Uneven):  # type: ignore[name-defined, misc]
        def reset(self, **options: Any) -> Any:
            return super().reset(**options)[0], {"began": time.perf_counter(), "took": 0.0}

        def step(self, action: int) -> Any:
            began = time.perf_counter()
            time.sleep(2.0 if self.np_random.random() < 0.05 else 0.1)
            infos = {"began": began, "took": time.perf_counter() - began}
            return self.position, 0.0, False, False, infos

    n, seconds = 8, 15
    for below in (False, True):
        with example.AsyncVectorEnv([Timed] * n, num_workers=n, batch_size=n // 2) as envs:
            envs.reset(seed=0)
            start = began = time.perf_counter()
            while began < start + seconds:
                if below:
                    *_, infos, rows = envs.recv()
                    envs.send(np.ones(len(rows), np.int64), rows)
                else:
                    infos, rows = envs.step(np.ones(n, np.int64))[4], np.arange(n)
                began = infos["began"].max()
                heights = rows + (n + 2) * below
                axes.barh(heights, infos["took"], 0.8, infos["began"] - start, color=BLUE)
    axes.set(xlabel="seconds", yticks=[3.5, 13.5], yticklabels=["step", "recv,\nsend"])
    axes.set(xlim=(0, seconds), ylim=(18, -1))


def action_chunks(axes: Any) -> None:
    lines = re.findall(r"(\w+) .*?([\d.]+) images per step", run_example("action_chunks"))
    bars = axes.bar(
        [name for name, _ in lines], [float(images) for _, images in lines], 0.5, color=BLUE
    )
    axes.bar_label(bars)
    axes.set(ylabel="images per step", ylim=(0, 1.2))


def dict_observations(axes: Any) -> None:
    """Draw how many bytes each leaf of an observation has."""
    example = importlib.import_module("dict_observations")
    leaves = Layout.compile(example.Robot.observation_space, 1).leaves
    names = [".".join(map(str, leaf.path)) for leaf in leaves]
    bars = axes.barh(names, [leaf.nbytes for leaf in leaves], color=BLUE)
    axes.bar_label(bars, padding=2)
    axes.set(xscale="log", xlabel="bytes per environment", xlim=(1, 1e6))
    axes.invert_yaxis()


def restart_after_crash(axes: Any) -> None:
    """Draw the walks of all environments, and where a crash ended them."""
    example = importlib.import_module("restart_after_crash")
    actions = np.random.default_rng(1)
    places, crashes = [], []
    with example.AsyncVectorEnv(
        [example.FragileWalk] * 8, num_workers=4, on_worker_death="restart", max_restarts=100
    ) as envs:
        envs.reset(seed=1)
        for step in range(500):
            observations, *_, infos = envs.step(actions.integers(2, size=8))
            places.append(observations[:, 0])
            lost = infos.get("worker_restarted", np.zeros(8, np.bool_))
            crashes += [(step, place) for place in observations[lost, 0]]
    axes.plot(places, color=GREY, linewidth=0.8)
    axes.plot(
        *np.transpose(crashes), "x", color=RED, markersize=9, markeredgewidth=2.5, label="crash"
    )
    axes.set(xlabel="step", ylabel="8 random walks")
    axes.legend(frameon=False, loc="upper right")


def long_run(axes: Any) -> None:
    """Draw the table that all workers read, and where the episodes of each task begin."""
    example = importlib.import_module("long_run")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "heights.npy"
        example.write_map(path)
        axes.imshow(np.load(path)[::20, ::20], extent=(0, 2_000, 2_000, 0), cmap="gray")
        with make_vec(example.Hike, 8, backend="sync", env_kwargs={"path": path}) as envs:
            for task in range(8):
                places, _ = envs.reset(seed=task, options={"task": task})
                axes.plot(places[:, 1], places[:, 0], ".", label=f"task {task}")
    axes.set(xticks=[], yticks=[])
    axes.legend(frameon=False, fontsize=10, loc="center left", bbox_to_anchor=(1, 0.5))


def log_run(axes: Any) -> None:
    lines = re.findall(
        r"step +([\d,]+) .*restarts ([\d.]+) lost_episodes ([\d.]+)", run_example("log_run")
    )
    steps, restarts, lost = np.array([[float(n.replace(",", "")) for n in row] for row in lines]).T
    axes.step(steps, lost, color=RED, where="post", label="lost episodes")
    axes.step(steps, restarts, color=BLUE, where="post", label="restarts")
    axes.set(xlabel="steps")
    axes.legend(frameon=False)


def custom_space(axes: Any) -> None:
    space = importlib.import_module("custom_space").ComplexMatrix(20, 20, seed=0)
    samples = space.sample()
    axes.plot(samples.real, samples.imag, ".", color=BLUE, markersize=3)
    axes.set(xlabel="real part", ylabel="imaginary part", aspect="equal")


def conversations(axes: Any) -> None:
    printed = run_example("conversations", "--step-timeout", "5")
    complete = int(re.findall(r"(\d+) complete", printed)[0])
    counts = {"complete": complete, **ast.literal_eval(printed.rpartition("lost: ")[2])}
    bars = axes.barh(list(counts), list(counts.values()), color=[BLUE] + [RED] * (len(counts) - 1))
    axes.bar_label(bars, padding=2)
    axes.set(xlabel="conversations", xlim=(0, 1.2 * complete))
    axes.invert_yaxis()


def draw_episodes(axes: Any, env: str, episodes: int, policy: Any, read: Any, label: str) -> None:
    for episode in collect(policy, env, episodes=episodes, seed=0):
        axes.plot(read(episode.observations), color=BLUE, alpha=0.5, linewidth=0.8)
    axes.set(xlabel="step", ylabel=label)


def minari_dataset(axes: Any) -> None:
    def lean(observations: Any) -> Any:
        return (observations[:, 2] > 0).astype(np.int64)

    draw_episodes(
        axes, "CartPole-v1", 12, lean, lambda seen: np.rad2deg(seen[:, 2]), "angle, 12 episodes, °"
    )


def lerobot_dataset(axes: Any) -> None:
    def swing(observations: Any) -> Any:
        return 2.0 * np.sign(observations[:, 2:])

    draw_episodes(axes, "Pendulum-v1", 3, swing, lambda seen: seen[:, 0], "height, 3 episodes")


DRAW: dict[str, Callable[[Any], None]] = {
    "rollout": rollout,
    "ppo": partial(draw_training, name="ppo"),
    "overlapped_ppo": partial(draw_training, name="overlapped_ppo"),
    "cleanrl_style_ppo": partial(draw_training, name="cleanrl_style_ppo"),
    "sb3_ppo": sb3_ppo,
    "masked_ppo": masked_ppo,
    "multi_agent": multi_agent,
    "sharded_learners": sharded_learners,
    "async_rollout": async_rollout,
    "action_chunks": action_chunks,
    "dict_observations": dict_observations,
    "restart_after_crash": restart_after_crash,
    "long_run": long_run,
    "log_run": log_run,
    "custom_space": custom_space,
    "conversations": conversations,
    "minari_dataset": minari_dataset,
    "lerobot_dataset": lerobot_dataset,
}


def draw(name: str) -> None:
    """Draw the picture of an example, small and with few colours."""
    matplotlib = require_extra("matplotlib", "plot")
    matplotlib.use("agg")
    pyplot = require_extra("matplotlib.pyplot", "plot")
    image = require_extra("PIL.Image", "plot")
    with pyplot.rc_context({"font.size": 13, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = pyplot.subplots(figsize=(4.8, 3), layout="constrained")
        DRAW[name](axes)
        png = io.BytesIO()
        figure.savefig(png, dpi=130)
        pyplot.close(figure)
    image.open(png).convert("RGB").quantize(64, kmeans=1).save(
        PICTURES / f"{name}.png", optimize=True
    )


def write_time(name: str) -> None:
    """Run an example as the page says, and write how long it took into its row."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    run_example(name)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name:20} {took:6.1f} s, {computed:6.1f} s of processor time", flush=True)
    written = f"{took / 60:.0f} min" if took > 90 else f"{max(1.0, float(f'{took:.1g}')):.0f} s"
    text = PAGE.read_text("utf-8")
    row = rf"^(\|.*\[{name}\.py\].*\| )[^|]*( \|)$"
    PAGE.write_text(re.sub(row, rf"\g<1>{written}\2", text, flags=re.MULTILINE), "utf-8")


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Examples; all by default.")] = None,
    times: Annotated[bool, typer.Option("--times", help="Measure and write times.")] = False,
) -> None:
    """Draw the pictures of examples, or measure how long they take."""
    sys.path.insert(0, str(EXAMPLES))
    every = [path.stem for path in sorted(EXAMPLES.glob("*.py"))] if times else list(DRAW)
    for name in names or every:
        write_time(name) if times else draw(name)


if __name__ == "__main__":
    typer.run(main)
