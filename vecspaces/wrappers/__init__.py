"""Wrappers around any vector env of vecspaces."""

from __future__ import annotations

from vecspaces.wrappers.normalize import NormalizeObservation, NormalizeReward, RunningMeanStd
from vecspaces.wrappers.record_episode_statistics import RecordEpisodeStatistics
from vecspaces.wrappers.record_video import RecordVideo
from vecspaces.wrappers.transform_action import ClipAction, RescaleAction, TransformAction
from vecspaces.wrappers.transform_observation import (
    DtypeObservation,
    FilterObservation,
    FlattenObservation,
    RescaleObservation,
    TransformObservation,
)
from vecspaces.wrappers.transform_reward import ClipReward, TransformReward

__all__ = [
    "ClipAction",
    "ClipReward",
    "DtypeObservation",
    "FilterObservation",
    "FlattenObservation",
    "NormalizeObservation",
    "NormalizeReward",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RescaleAction",
    "RescaleObservation",
    "RunningMeanStd",
    "TransformAction",
    "TransformObservation",
    "TransformReward",
]


def __dir__() -> list[str]:
    return __all__
