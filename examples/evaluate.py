"""Evaluate a policy with seeded episodes; show what happens if the first N that finish are counted.

Run it with `python examples/evaluate.py`; `--plot bias.png` draws the comparison.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from vecspaces import evaluate, make_vec
from vecspaces.wrappers import RecordEpisodeStatistics

ENV = "CartPole-v1"


def lean(observations: np.ndarray) -> np.ndarray:
    """Push the cart to the side to which the pole leans."""
    return (observations[:, 2] > 0).astype(np.int64)


def first_finished(num_envs: int, episodes: int, seed: int) -> float:
    """Do what many programs do: step all environments until enough episodes have ended."""
    made = make_vec(ENV, num_envs, backend="sync")
    with RecordEpisodeStatistics(made, buffer_length=episodes + num_envs) as envs:
        envs.action_space.seed(seed)
        envs.reset(seed=seed * 100_000)
        while envs.episode_count < episodes:
            envs.step(envs.action_space.sample())
        return float(np.mean(list(envs.return_queue)[:episodes]))


def compare(
    widths: Sequence[int], episodes: int, repetitions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean returns of a random policy: the first that finish, and seeded episodes."""
    first, seeded = [], []
    for width in widths:
        first.append([first_finished(width, episodes, seed) for seed in range(repetitions)])
        seeded.append(
            [
                evaluate(
                    "random", ENV, episodes=episodes, seed=seed, num_envs=width, backend="sync"
                ).mean_return
                for seed in range(repetitions)
            ]
        )
    return np.array(first), np.array(seeded)


def plot(
    widths: Sequence[int], first: np.ndarray, seeded: np.ndarray, episodes: int, file: str
) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(4.8, 3.2), layout="constrained")
    for means, label, color in (
        (seeded, f"vecspaces.evaluate, {episodes} episodes", "tab:blue"),
        (first, f"the first {episodes} episodes that finish", "tab:red"),
    ):
        axes.plot(widths, means.mean(axis=1), "o-", color=color, label=label)
        spread = means.std(axis=1)
        axes.fill_between(
            widths,
            means.mean(axis=1) - spread,
            means.mean(axis=1) + spread,
            color=color,
            alpha=0.15,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, [str(width) for width in widths])
    axes.set_xlabel("environments in parallel")
    axes.set_ylabel("mean return")
    axes.set_title(f"{ENV}, the same random policy")
    axes.legend()
    figure.savefig(file, dpi=180)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--plot", metavar="FILE")
    arguments = parser.parse_args()

    results = [evaluate(lean, ENV, episodes=200, seed=0, num_workers=n) for n in (1, 2)]
    assert np.array_equal(results[0].returns, results[1].returns)
    low, high = results[0].confidence_interval()
    print(f"lean: mean return {results[0].mean_return:.2f}, 95 % interval {low:.2f} to {high:.2f}")

    first, seeded = compare(arguments.num_envs, arguments.episodes, arguments.repetitions)
    print("environments  first finished  seeded episodes")
    for width, first_mean, seeded_mean in zip(
        arguments.num_envs, first.mean(axis=1), seeded.mean(axis=1), strict=True
    ):
        print(f"{width:12}  {first_mean:14.2f}  {seeded_mean:15.2f}")
    if arguments.plot:
        plot(arguments.num_envs, first, seeded, arguments.episodes, arguments.plot)


if __name__ == "__main__":
    main()
