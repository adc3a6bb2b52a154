"""EpisodeWrapper: the base of wrappers with a state per episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.vector import AutoresetMode, VectorEnv, VectorWrapper
from vecspaces.vector.vector_env import ActType, ObsType, StepResult
from vecspaces.vector.vector_wrapper import ALL, Mask, RowChoice, WrapperObsType


class EpisodeBounds(NamedTuple):
    """Which rows of a result begin and end an episode."""

    rows: RowChoice
    begun: Mask | None  # rows with the first observation of an episode, and no step; None: no row
    reset: Mask | None  # of these rows, those that the caller reset, not an autoreset
    ended: Mask  # rows with the last step of an episode
    gone: Mask | None = None  # rows of agents that are gone, which are zero


class EpisodeWrapper(
    VectorWrapper[WrapperObsType, ActType, ObsType, ActType, npt.NDArray[Any]],
    Generic[WrapperObsType, ActType, ObsType],
):
    """A wrapper that knows when the episodes of its rows begin and end, in every autoreset mode.

    Derived classes override `_begin`, which replaces the state of rows, and
    `_follow`, which changes it.
    """

    saved_state: ClassVar[tuple[Sequence[str], Sequence[str]] | None] = (("prev_dones",), ())

    def __init__(self, env: VectorEnv[ObsType, ActType, npt.NDArray[Any]]) -> None:
        super().__init__(env)
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._same_step = AutoresetMode.of(mode) is AutoresetMode.SAME_STEP
        self.prev_dones: Mask = np.zeros(self.num_envs, dtype=np.bool_)
        self._numbers = np.arange(self.num_envs)
        # If rows are agents: those whose next action will be used.
        self._alive: Mask | None = None
        if getattr(env, "agent_layout", None) == "rows":
            self._alive = np.ones(self.num_envs, dtype=np.bool_)

    def _save_rows(self, env_ids: npt.NDArray[np.int64]) -> dict[str, Any]:
        saved = super()._save_rows(env_ids)
        return saved if self._alive is None else {**saved, "_alive": self._alive[env_ids]}

    def _begin(
        self, observations: ObsType, infos: dict[str, Any], rows: RowChoice
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        """Change what a reset of some environments returned, with the rows of all."""
        raise NotImplementedError

    def _follow(self, result: StepResult, progress: EpisodeBounds) -> StepResult:
        """Change what `step`, `step_wait` or `recv` returned."""
        raise NotImplementedError

    def _after_reset(
        self, observations: ObsType, infos: dict[str, Any], mask: Mask | None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        rows = ALL if mask is None else np.flatnonzero(mask)
        self.prev_dones[rows] = False
        self._alive = self._alive_after(infos, rows, self.prev_dones[rows])
        return self._begin(observations, infos, rows)

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        return self._advance(result, ALL if env_ids is None else env_ids, None)

    def _after_recv(
        self, result: StepResult, env_ids: npt.NDArray[np.int64], begins: Sequence[bool] | Mask
    ) -> StepResult:
        reset = np.asarray(begins, np.bool_) if len(begins) else None
        return self._advance(result, env_ids, reset)

    def _alive_after(self, infos: dict[str, Any], rows: RowChoice, dones: Mask) -> Mask | None:
        """Return which rows of agents are alive once some were reset or stepped."""
        if self._alive is None:
            return None
        alive = self._alive.copy()
        alive[rows] = True if self._same_step else ~dones
        if "alive" in infos:  # which environments of one agent do not report
            index = rows if len(dones) < len(infos["alive"]) else ALL
            alive[rows] = np.where(infos["_alive"][index], infos["alive"][index], alive[rows])
        return alive

    def _advance(self, result: StepResult, rows: RowChoice, reset: Mask | None) -> StepResult:
        """Process what some environments returned; those of `reset` were only reset."""
        dones = result[2] | result[3]
        begun = before = reset
        if self._alive is not None:  # the action of an agent that is gone is not used
            before = ~self._alive[rows]
        elif not self._same_step:  # the step after an end resets
            before = self.prev_dones[rows]
        if before is not None:
            begun = before if reset is None else before | reset
        ended = dones
        if begun is not None:
            if np.count_nonzero(begun):
                ended = dones & ~begun
            else:
                begun = reset = None
        alive = self._alive_after(result[4], rows, dones)
        gone = None
        if alive is not None:
            gone = ~alive[rows] if self._same_step else ~alive[rows] & ~ended
        changed = self._follow(result, EpisodeBounds(rows, begun, reset, ended, gone))
        self.prev_dones[rows], self._alive = dones, alive
        return changed
