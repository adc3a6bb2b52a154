"""The ring of slots: the slot of the next step, and the end of a rollout."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.vector.exchange.buffers import Buffers


class Rollout(NamedTuple):
    """T steps of all environments, in time order.

    Attributes:
        observations: As `single_observation_space`, each leaf of shape `(T + 1, num_envs, ...)`;
            the last is the bootstrap observation.
        rewards: Shape `(T, num_envs)`, float64; entry t follows observation t.
        terminations: Shape `(T, num_envs)`, bool.
        truncations: Shape `(T, num_envs)`, bool.
        infos: For each key of the `info_space`, the values of shape `(T + 1, num_envs, ...)` that
            belong to the observations, and under `_key` a mask of the environments that returned
            it; empty without an info_space.
    """

    observations: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    infos: dict[str, Any]

    def __repr__(self) -> str:
        # Printing the values would fill many screens.
        parts = ", ".join(f"{name}={_show(getattr(self, name))}" for name in self._fields)
        return f"Rollout({parts})"


def _show(value: Any) -> str:
    """Write a nested value with dtypes and shapes in place of its arrays."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_show(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_show, value))})"
    return f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


class SlotRing:
    """The order in which steps write the slots; the engine changes it.

    Attributes:
        after: The slot that a step writes, for each slot that has the last observations.
    """

    def __init__(self, buffers: int, slots: int) -> None:
        self._buffers = buffers
        # One more than `buffers` if workers are restarted, so that incomplete rows of a dying
        # worker are never returned. A list, since a call would take time in each step.
        self.after = [*range(1, slots), 0]
        self.current = 0  # the slot with the last observations
        self.steps = 0  # since `reset`, or since the last rollout began
        self.begins_rollout = False  # whether the next step begins a rollout
        self.is_mixed = False  # whether the rollout has steps of only some environments

    def begin_rollout(self, buffers: Buffers) -> None:
        """Copy the bootstrap observation of a rollout to the beginning of the next rollout."""
        buffers.copy_slot(0, self.current)
        self.current, self.steps = 0, 0
        self.begins_rollout = self.is_mixed = False

    @property
    def rollout_steps(self) -> int:
        """The number of steps of a complete rollout; a ValueError if there is none now."""
        expected = self._buffers - 1
        if expected < 1:
            raise ValueError("rollout_view() needs buffers=T + 1 for rollouts of T steps, found 1")
        if self.is_mixed:
            raise ValueError(
                "rollout_view() needs steps of all environments together, but some were "
                "stepped alone (env_ids, send) since reset or the last rollout_view"
            )
        if self.steps != expected:
            raise ValueError(
                f"rollout_view() needs {expected} steps (buffers - 1) since reset or the last "
                f"rollout_view, found {self.steps}"
            )
        return expected
