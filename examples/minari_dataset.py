"""Write the episodes of a policy as a data set of Minari, a part at a time, and load it again.

Needs `pip install "minari[hdf5]"`. Run it with `python examples/minari_dataset.py`.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np
from minari import MinariDataset, create_dataset_from_buffers, load_dataset
from minari.data_collector import EpisodeBuffer

from vecspaces import Episode, collect
from vecspaces.adapters.gymnasium import to_gymnasium

ENV = "CartPole-v1"


def lean(observations: np.ndarray) -> np.ndarray:
    """Push the cart to the side to which the pole leans."""
    return (observations[:, 2] > 0).astype(np.int64)


def as_buffer(episode: Episode) -> EpisodeBuffer:
    """Convert an episode; Minari stores infos that are arrays, such as those of an info_space."""
    infos = {
        key: values
        for key, values in episode.infos.items()
        if isinstance(values, np.ndarray) and values.dtype != object
    }
    return EpisodeBuffer(
        id=episode.number,
        seed=episode.seed,
        observations=as_lists(episode.observations),
        actions=as_lists(episode.actions),
        rewards=episode.rewards.tolist(),
        terminations=episode.terminations.tolist(),
        truncations=episode.truncations.tolist(),
        infos=infos or None,
    )


def as_lists(batch: Any) -> Any:
    """Return a batch whose values without arrays, such as those of a Text, are lists."""
    if isinstance(batch, dict):
        return {key: as_lists(part) for key, part in batch.items()}
    is_values = isinstance(batch, tuple) and not any(
        isinstance(part, (np.ndarray, dict, tuple)) for part in batch
    )
    return list(batch) if is_values else batch


def make_dataset(
    name: str, policy: Any, env: Any, *, episodes: int, seed: int, chunk_size: int = 100
) -> MinariDataset:
    """Collect episodes, of which at most `chunk_size` are in memory besides those under way."""
    dataset = None
    played = collect(policy, env, episodes=episodes, seed=seed, ordered=True)
    while part := list(itertools.islice(played, chunk_size)):
        buffers = [as_buffer(episode) for episode in part]
        if dataset is not None:
            dataset.update_dataset_from_buffer(buffers)
            continue
        dataset = create_dataset_from_buffers(
            name,
            buffers,
            env=env if isinstance(env, str) else None,
            observation_space=to_gymnasium(part[0].observation_space),
            action_space=to_gymnasium(part[0].action_space),
            jpeg_encoding=False,
        )
    assert dataset is not None
    return dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--name", default="cartpole/lean-v0")
    arguments = parser.parse_args()

    make_dataset(arguments.name, lean, ENV, episodes=arguments.episodes, seed=0)
    dataset = load_dataset(arguments.name)
    print(f"{arguments.name}: {dataset.total_episodes} episodes, {dataset.total_steps} steps")


if __name__ == "__main__":
    main()
