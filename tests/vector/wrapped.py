"""Wrappers around vector envs, each with what it does to one row of `tests.vector.model`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vecspaces.adapters.gymnasium import as_gymnasium
from vecspaces.vector import (
    VectorActionWrapper,
    VectorEnv,
    VectorObservationWrapper,
    VectorRewardWrapper,
    VectorWrapper,
)
from vecspaces.wrappers import (
    ClipReward,
    DtypeObservation,
    FlattenObservation,
    RecordEpisodeStatistics,
    TransformAction,
)


class Halved(VectorObservationWrapper[Any, Any, Any, Any]):
    def observations(self, observations: Any) -> Any:
        return observations / 2


class Shifted(VectorActionWrapper[Any, Any, Any, Any]):
    def actions(self, actions: Any) -> Any:
        return (actions + 1) % 5


class Negative(VectorRewardWrapper[Any, Any, Any]):
    def rewards(self, rewards: Any) -> Any:
        return -rewards


class Whole(VectorWrapper[Any, Any, Any, Any, Any]):
    """Overrides `step` and `reset` alone, as wrappers written for Gymnasium do."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observations, infos = super().reset(seed=seed, options=options)
        return observations * 2, infos

    def step(self, actions: Any) -> Any:
        observations, *rest = self.env.step(following(actions))
        return observations * 2, *rest


class Halves(VectorWrapper[Any, Any, Any, Any, Any]):
    """Overrides what `step` and `reset` consist of."""

    def reset_wait(self, timeout: float | None = None) -> Any:
        observations, infos = super().reset_wait(timeout)
        return observations * 2, infos

    def step_async(self, actions: Any) -> None:
        super().step_async(following(actions))

    def step_wait(self, timeout: float | None = None) -> Any:
        observations, *rest = super().step_wait(timeout)
        return observations * 2, *rest


class Everything(Halves):
    """Overrides every way."""

    def send(self, actions: Any, env_ids: Any = None) -> None:
        self.env.send(following(actions), env_ids)  # type: ignore[attr-defined]  # not all have it

    def recv(self, count: int | None = None, timeout: float | None = None) -> Any:
        received = self.env.recv(count, timeout)  # type: ignore[attr-defined]  # not all have it
        return received._replace(observations=received.observations * 2)


def following(action: Any) -> Any:
    """The next action of a ledger."""
    return (action + 1) % 5


def stacked(envs: VectorEnv[Any, Any, Any]) -> Any:
    return RecordEpisodeStatistics(Halved(Negative(Shifted(envs))))


def flattened(envs: VectorEnv[Any, Any, Any]) -> Any:
    envs = DtypeObservation(FlattenObservation(envs), np.float64)
    return ClipReward(TransformAction(envs, following), 0.3, 2.2)


@dataclass
class Wrapped:
    """A wrapper; what it does to a row; whether it counts episodes; which ways it refuses.

    Args:
        around: Wraps a vector env.
        row: The arguments of `Row`.
        counts: Whether infos tell episodes' returns and lengths.
        streams: Whether there are `send` and `recv`.
        some: Whether there is `step(env_ids=...)`.
        defers: Whether `step_wait` calls `step`, and takes no timeout.
    """

    around: Callable[[Any], Any]
    row: dict[str, Any] = field(default_factory=dict)
    counts: bool = False
    streams: bool = True
    some: bool = True
    defers: bool = False


FOUR = {
    "act": following,
    "see": lambda observation, time: observation / 2,
    "pay": lambda reward: -reward,
}
DOUBLED = {"act": following, "see": lambda observation, time: observation * 2, "finals": False}
FLAT = {
    "act": following,
    "see": lambda observation, time: observation.astype(np.float64),
    "pay": lambda reward: min(max(reward, 0.3), 2.2),
}
STEP = {"streams": False, "some": False, "defers": True}
WRAPPERS = {
    "none": Wrapped(lambda envs: envs),
    "plain": Wrapped(VectorWrapper),
    "four": Wrapped(stacked, FOUR, counts=True),
    "step": Wrapped(Whole, DOUBLED, **STEP),
    "step around statistics": Wrapped(
        lambda envs: Whole(RecordEpisodeStatistics(envs)), DOUBLED, counts=True, **STEP
    ),
    "statistics around step": Wrapped(
        lambda envs: RecordEpisodeStatistics(Whole(envs)), DOUBLED, counts=True, **STEP
    ),
    "step_wait": Wrapped(Halves, DOUBLED, streams=False, some=False),
    "all": Wrapped(Everything, DOUBLED, some=False),
    "without a state": Wrapped(flattened, FLAT),
    "gymnasium": Wrapped(lambda envs: as_gymnasium(stacked(envs)), FOUR, counts=True),
    "gymnasium around step": Wrapped(lambda envs: as_gymnasium(Whole(envs)), DOUBLED, **STEP),
}
