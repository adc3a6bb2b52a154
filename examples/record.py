"""Record 64 environments under a policy as a moving picture.

python examples/record.py environments.gif
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt

from vecspaces import make_vec
from vecspaces.wrappers import RecordVideo

Array = npt.NDArray[np.float32]


def balance(observations: Array, noise: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Push the cart below the pole, and the cart to the middle; some actions are random."""
    position, speed, angle, angular_speed = observations.T
    actions = 0.1 * position + 0.2 * speed + 2 * angle + angular_speed > 0
    at_random = rng.random(len(actions)) < noise
    return np.where(at_random, rng.integers(0, 2, len(actions)), actions)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record environments as a moving picture.")
    parser.add_argument("file", help="a .gif or .mp4")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--noise", type=float, default=0.6, help="share of random actions")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    with make_vec("CartPole-v1", options.num_envs, render_mode="rgb_array") as envs:
        video = RecordVideo(envs, options.file, length=options.frames, fps=25, max_size=720)
        observations, _ = video.reset(seed=0)
        ended = 0
        while video.frames_written < options.frames:
            actions = balance(observations, options.noise, rng)
            observations, _, terminations, truncations, _ = video.step(actions)
            ended += int((terminations | truncations).sum())
        video.close()
    print(f"{options.num_envs} environments, {options.frames} frames, {ended} episodes ended")


if __name__ == "__main__":
    main()
