"""The ring of observation slots: which slot a step writes, and when a rollout is whole."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Rollout(NamedTuple):
    """T steps of all environments, in time order.

    Attributes:
        observations: As `single_observation_space`, each leaf of shape `(T + 1, num_envs, ...)`;
            the last is the bootstrap observation.
        rewards: Shape `(T, num_envs)`, float64; entry t follows observation t.
        terminations: Shape `(T, num_envs)`, bool.
        truncations: Shape `(T, num_envs)`, bool.
    """

    observations: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]


class Ring:
    """Counts slots.

    Args:
        buffers: The slots that the caller sees.
        slots: The slots that there are: one more where a dying worker may tear one.
    """

    def __init__(self, buffers: int, slots: int) -> None:
        self._buffers = buffers
        self._slots = slots
        self._taken = 0
        self.current = 0
        self.begins_rollout = False

    def begin(self) -> None:
        """Start with the first slot, which a full reset writes."""
        self._taken = 0
        self.begins_rollout = False
        self.current = 0

    def turn(self) -> int:
        """Give the slot after the current one."""
        return (self.current + 1) % self._slots

    def commit(self, slot: int) -> None:
        """The slot is written: it is the current one."""
        if slot != self.current or self._slots == 1:
            self._taken += 1
        self.current = slot

    @property
    def rollout_steps(self) -> int:
        """The number of steps of the rollout that is whole now; a ValueError if none is."""
        steps = self._buffers - 1
        if steps < 1:
            raise ValueError("rollout_view() needs buffers=T + 1 for rollouts of T steps, found 1")
        if self._taken != steps:
            raise ValueError(
                f"rollout_view() needs {steps} steps (buffers - 1) since reset or the last "
                f"rollout_view, found {self._taken}"
            )
        return steps

    def begin_rollout(self) -> None:
        """The current observation was copied into the first slot."""
        self.begin()
