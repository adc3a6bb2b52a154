"""Wrappers for what every rollout needs, around any vector env of vecspaces."""

from __future__ import annotations

from vecspaces.wrappers.record_episode_statistics import RecordEpisodeStatistics
from vecspaces.wrappers.record_video import RecordVideo

__all__ = ["RecordEpisodeStatistics", "RecordVideo"]
