"""Episode: all steps of one episode; Tracks: the steps of the episodes that are being played."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vecspaces.evaluation.policies import ActionRows, pick_infos
from vecspaces.evaluation.result import EpisodeResult
from vecspaces.spaces import Dict, Space
from vecspaces.spaces.batch_values import pick
from vecspaces.vector import AsyncVectorEnv, RayVectorEnv, SyncVectorEnv, Transition
from vecspaces.vector.utils import concatenate, create_empty_array

#: The vector envs that play episodes.
AnyVectorEnv: TypeAlias = (
    SyncVectorEnv[Any, Any] | AsyncVectorEnv[Any, Any] | RayVectorEnv[Any, Any]
)


@dataclass(frozen=True, eq=False, repr=False)
class Episode:
    """All T steps of an episode, as `collect` yields it; nothing else refers to its arrays.

    Values that are not arrays, such as those of Text, Graph or Sequence, are in a tuple.

    Attributes:
        observations: The first observation and the one after each step: `(T + 1, ...)` for each
            leaf.
        actions: `(T, ...)` for each leaf, in the dtype of the action space.
        rewards: `(T,)`, float64.
        terminations: `(T,)`, bool: True in the last step if the environment ended the episode.
        truncations: `(T,)`, bool: True in the last step if the episode was cut off.
        infos: For each key one value per observation, and under `_key` a bool array `(T + 1,)`,
            True where the info had the key. The values of a key that an `info_space` declares are
            an array `(T + 1, ...)`, zero where the key was missing, or a dict of these; the values
            of any other key are a list, with None where it was missing.
        seed: The seed that the episode was reset with.
        number: The index of the seed in the order of the seeds.
        observation_space: The space of one observation.
        action_space: The space of one action.
    """

    observations: Any
    actions: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    infos: dict[str, Any]
    seed: int
    number: int
    observation_space: Space[Any]
    action_space: Space[Any]

    def __repr__(self) -> str:
        steps, total = len(self.rewards), self.rewards.sum()
        return f"<Episode {self.number} with seed {self.seed}: {steps} steps, return {total:.6g}>"


class Tracks:
    """The steps of the episodes that are being played, by their numbers.

    Each value is copied, because a row of a batch would keep the whole batch in memory.
    """

    envs: AnyVectorEnv

    def __init__(self) -> None:
        # By episode: observations, actions, rewards with both flags, declared and other infos.
        self._tracks: dict[int, dict[str, list[Any]]] = {}

    def open(self, envs: AnyVectorEnv) -> None:
        """Begin to store the episodes of a vector env."""
        self.envs = envs
        self._actions = ActionRows(envs.single_action_space, envs.num_envs)

    def take(
        self, received: Transition, playing: Sequence[int | None], begun: Collection[int]
    ) -> None:
        """Store the results of rows: the episode of each (None: lost), and which were begun."""
        space, row_infos = self.envs.single_observation_space, received.row_infos
        keys = () if self.envs.info_space is None else self.envs.info_space.spaces
        names = {name for key in keys for name in (key, f"_{key}")}
        declared = {name: received.infos[name] for name in names & received.infos.keys()}
        for number, k in enumerate(playing):
            if k is None:
                continue
            if k in begun:
                self._tracks[k] = defaultdict(list)
            track = self._tracks[k]
            if k not in begun:
                flags = received.terminations[number], received.truncations[number]
                track["results"].append((received.rewards[number], *flags))
            track["observations"].append(_copy_row(space, received.observations, number))
            track["declared"].append(pick_infos(declared, [number]))
            track["others"].append(row_infos[number])  # a copy

    def note_actions(self, playing: Sequence[int], actions: Any) -> None:
        """Note a batch of actions, one of each of these episodes, as the environments get them."""
        space, cast = self.envs.single_action_space, self._actions.cast(actions, len(playing))
        for number, k in enumerate(playing):
            self._tracks[k]["actions"].append(_copy_row(space, cast, number))

    def finish(self, result: EpisodeResult) -> Episode:
        """Return a finished episode, and remove it."""
        envs, track = self.envs, self._tracks.pop(result.episode)
        rewards, terminations, truncations = map(np.array, zip(*track["results"], strict=True))
        truncations[-1] |= not terminations[-1]  # by `max_episode_steps`
        return Episode(
            concatenate(envs.single_observation_space, track["observations"], None),
            concatenate(envs.single_action_space, track["actions"], None),
            rewards,
            terminations,
            truncations,
            _over_time(track["declared"], track["others"], envs.info_space),
            result.seed,
            result.episode,
            envs.single_observation_space,
            envs.single_action_space,
        )


def _copy_row(space: Space[Any], batch: Any, number: int) -> Any:
    """Return one value of a batch, whose arrays are no views of the batch."""
    return pick(space, pick(space, batch, [number]), 0)


def _over_time(
    declared: Sequence[Mapping[str, Any]],
    others_by_time: Sequence[Mapping[str, Any]],
    space: Dict[Any] | None,
) -> dict[str, Any]:
    """Return the infos of an episode by key: arrays of declared keys, and lists of others.

    `declared` are merged infos of one row, and `others_by_time` the other keys of its infos,
    which are not merged, because merging depends on the other rows.
    """
    merged: dict[str, Any] = {}
    members = {} if space is None else space.spaces
    others = {key for info in others_by_time for key in info} - members.keys()
    masks = {f"_{key}" for key in (*members, *others)}
    for key in (*members, *sorted(others - masks, key=str)):
        member = members.get(key)
        present = [key in info for info in (others_by_time if member is None else declared)]
        if not any(present):
            continue
        if member is None:
            merged[key] = [info.get(key) for info in others_by_time]
        else:
            values: Any = create_empty_array(member, len(present))
            for time in np.flatnonzero(present).tolist():
                values[time] = declared[time][key][0]
            merged[key] = values
        merged[f"_{key}"] = np.array(present)
    return merged
