"""EpisodeWrapper: the base of wrappers with a state per episode."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.errors import StepTimeoutError
from vecspaces.vector import AutoresetMode, VectorEnv, VectorWrapper
from vecspaces.vector.vector_env import ActType, ObsType, StepResult
from vecspaces.vector.vector_wrapper import ALL, Mask, RowChoice, WrapperObsType


class EpisodeBounds(NamedTuple):
    """Which rows of a result begin and end an episode."""

    rows: RowChoice
    begun: Mask | None  # rows with the first observation of an episode, and no step; None: no row
    fresh: Mask | None  # those of them that the caller reset, not an autoreset
    ended: Mask  # rows with the last step of an episode
    gone: Mask | None = None  # rows of agents that are gone, which are zero


class EpisodeWrapper(
    VectorWrapper[WrapperObsType, ActType, ObsType, ActType, npt.NDArray[Any]],
    Generic[WrapperObsType, ActType, ObsType],
):
    """A wrapper that knows when the episodes of its rows begin and end, in every autoreset mode.

    Derived classes override `_begin` and `_follow`, which compute the next state and end with plain
    assignments of it, so an interrupt leaves either the old state or the new one.
    """

    def __init__(self, env: VectorEnv[ObsType, ActType, npt.NDArray[Any]]) -> None:
        super().__init__(env)
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._same_step = AutoresetMode.of(mode) is AutoresetMode.SAME_STEP
        self.prev_dones: Mask = np.zeros(self.num_envs, dtype=np.bool_)
        # Environments whose first observation `recv` has not returned yet.
        self._fresh: Mask = np.zeros(self.num_envs, dtype=np.bool_)
        # Those of them whose first observation `reset` has already returned.
        self._shown: Mask = np.zeros(self.num_envs, dtype=np.bool_)
        self._numbers = np.arange(self.num_envs)
        # If rows are agents: those whose next action will be used.
        self._alive: Mask | None = None
        if getattr(env, "agent_layout", None) == "rows":
            self._alive = np.ones(self.num_envs, dtype=np.bool_)

    def _begin(
        self, observations: ObsType, infos: dict[str, Any], rows: RowChoice
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        """Change what a reset of some environments returned, with the rows of all."""
        raise NotImplementedError

    def _follow(self, result: StepResult, progress: EpisodeBounds) -> StepResult:
        """Change what `step`, `step_wait` or `recv` returned."""
        raise NotImplementedError

    def _note_sent(self, rows: RowChoice, error: BaseException | None) -> None:
        begun = None if error is None else self._begun
        if begun is not None:
            self._fresh &= np.isin(self._numbers, [*begun])
        elif isinstance(error, StepTimeoutError) or not isinstance(error, Exception):
            self._fresh[rows] = False

    def _note_sent_reset(self, rows: RowChoice) -> None:
        self._fresh[rows], self._shown[rows], self.prev_dones[rows] = True, False, False

    def _after_reset(
        self, observations: ObsType, infos: dict[str, Any], mask: Mask | None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        rows = ALL if mask is None else np.flatnonzero(mask)
        dones, fresh, shown = self.prev_dones.copy(), self._fresh.copy(), self._shown.copy()
        dones[rows], fresh[rows], shown[rows] = False, True, True
        alive = self._alive_after(infos, rows, dones[rows])
        changed = self._begin(observations, infos, rows)
        self.prev_dones, self._fresh, self._shown, self._alive = dones, fresh, shown, alive
        return changed

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        return self._advance(result, ALL if env_ids is None else env_ids, None)

    def _after_recv(self, result: StepResult, env_ids: npt.NDArray[np.int64]) -> StepResult:
        return self._advance(result, env_ids, self._fresh[env_ids])

    def _alive_after(self, infos: dict[str, Any], rows: RowChoice, dones: Mask) -> Mask | None:
        """Return which rows of agents are alive once some were reset or stepped."""
        if self._alive is None:
            return None
        alive = self._alive.copy()
        alive[rows] = True if self._same_step else ~dones
        if "alive" in infos:  # which environments of one agent do not report
            at = rows if len(dones) < len(infos["alive"]) else ALL
            alive[rows] = np.where(infos["_alive"][at], infos["alive"][at], alive[rows])
        return alive

    def _advance(self, result: StepResult, rows: RowChoice, fresh: Mask | None) -> StepResult:
        """Process what some environments returned; those that are `fresh` were only reset."""
        dones = result[2] | result[3]
        begun = before = fresh
        if self._alive is not None:  # the action of an agent that is gone is not used
            before = ~self._alive[rows]
        elif not self._same_step:  # the step after an end resets
            before = self.prev_dones[rows]
        if before is not None:
            begun = before if fresh is None else before | fresh
        ended = dones
        if begun is not None:
            if np.count_nonzero(begun):
                ended = dones & ~begun
            else:
                begun = fresh = None
        if rows is ALL:
            prev_dones, still_fresh = dones, np.zeros(len(dones), np.bool_)
        else:
            prev_dones, still_fresh = self.prev_dones.copy(), self._fresh.copy()
            prev_dones[rows], still_fresh[rows] = dones, False
        alive = self._alive_after(result[4], rows, dones)
        gone = None
        if alive is not None:
            gone = ~alive[rows] if self._same_step else ~alive[rows] & ~ended
        changed = self._follow(result, EpisodeBounds(rows, begun, fresh, ended, gone))
        self.prev_dones, self._fresh, self._alive = prev_dones, still_fresh, alive
        return changed
