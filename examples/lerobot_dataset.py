"""Write the episodes of a policy as a data set of LeRobot, without its hub, and load it again.

Needs `pip install lerobot`. Run it with `python examples/lerobot_dataset.py --out FOLDER`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from vecspaces import Episode, collect

ENV = "Pendulum-v1"


def swing(observations: np.ndarray) -> np.ndarray:
    """Push the pendulum to where it moves."""
    return 2.0 * np.sign(observations[:, 2:])


def frames(episode: Episode) -> Iterator[dict[str, Any]]:
    """Yield one frame per step, with the observation before it; the last one is left out.

    The observation is an array, which becomes `observation.state`, or a Dict of arrays; those of
    bytes with three axes, `(height, width, channels)`, are images.
    """
    observations = episode.observations
    if not isinstance(observations, dict):
        observations = {"state": observations}
    for step in range(len(episode.rewards)):
        over = episode.terminations[step] or episode.truncations[step]
        yield {
            **{f"observation.{key}": part[step] for key, part in observations.items()},
            "action": np.atleast_1d(episode.actions[step]),
            "next.reward": np.array([episode.rewards[step]], np.float32),
            "next.done": np.array([over]),
        }


def describe(frame: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the features of a frame."""
    features = {}
    for name, value in frame.items():
        is_image = value.dtype == np.uint8 and value.ndim == 3
        dtype = "image" if is_image else str(value.dtype)
        names = ["height", "width", "channels"] if is_image else None
        features[name] = {"dtype": dtype, "shape": value.shape, "names": names}
    return features


def make_dataset(
    folder: str, policy: Any, env: Any, *, task: str, fps: int, episodes: int, seed: int
) -> None:
    """Collect episodes and write each; only those under way are in memory."""
    dataset = None
    for episode in collect(policy, env, episodes=episodes, seed=seed, ordered=True):
        for frame in frames(episode):
            if dataset is None:
                features = describe(frame)
                dataset = LeRobotDataset.create(
                    "local/collected", fps, features, root=folder, use_videos=False
                )
            dataset.add_frame({**frame, "task": task})
        assert dataset is not None
        dataset.save_episode()
    if dataset is not None:
        dataset.finalize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--out", default="pendulum", help="a new folder")
    arguments = parser.parse_args()

    settings: Any = {"task": "swing up", "fps": 20, "episodes": arguments.episodes, "seed": 0}
    make_dataset(arguments.out, swing, ENV, **settings)
    dataset = LeRobotDataset("local/collected", root=arguments.out)
    print(f"{arguments.out}: {dataset.num_episodes} episodes, {dataset.num_frames} frames")


if __name__ == "__main__":
    main()
