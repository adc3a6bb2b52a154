"""A space of one's own: complex matrices, first carried whole, then by their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecspaces import Env, spaces
from vecspaces.layout import Array, Layout, describe
from vecspaces.vector import AsyncVectorEnv


class ComplexMatrix(spaces.Space[np.ndarray]):
    """Matrices of complex numbers, the absolute value of each at most 1."""

    def __init__(self, rows: int, columns: int, seed: int | None = None) -> None:
        super().__init__(shape=(rows, columns), dtype=np.complex64, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> np.ndarray:
        radius, turn = self.np_random.random((2, *self.shape))
        return (np.sqrt(radius) * np.exp(2j * np.pi * turn)).astype(self.dtype)

    def contains(self, x: Any) -> bool:
        right = isinstance(x, np.ndarray) and x.shape == self.shape and x.dtype == self.dtype
        return right and bool((abs(x) <= 1).all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComplexMatrix) and self.shape == other.shape

    def __repr__(self) -> str:
        return f"ComplexMatrix{self.shape}"


class Qubits(Env):
    """Gates that the agent applies to a register; the observation is the matrix so far."""

    observation_space = ComplexMatrix(2, 2)
    action_space = spaces.Discrete(2)
    gates = np.array([[[1, 1], [1, -1]], [[1, 0], [0, 1j]]]) / np.sqrt([[[2]], [[1]]])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.matrix = np.eye(2, dtype=np.complex64)
        return self.matrix, {}

    def step(self, action: int) -> Any:
        self.matrix = self.gates[action] @ self.matrix
        return self.matrix, 0.0, False, False, {}


def register() -> None:
    """Say that a value is its bytes; without this, values are pickled, and all else is the same."""

    @describe.register
    def _(space: ComplexMatrix) -> Array:
        return Array(space.dtype, space.shape)


def roll() -> Any:
    with AsyncVectorEnv([Qubits] * 4, num_workers=2) as envs:
        envs.reset(seed=0)
        for actions in ([0, 0, 1, 1], [0, 1, 0, 1]):
            observations, *_ = envs.step(actions)
    return observations


if __name__ == "__main__":
    print(Layout.compile(ComplexMatrix(2, 2), n=4))
    print("carried whole:", roll()[1].round(2).tolist())
    register()
    print(Layout.compile(ComplexMatrix(2, 2), n=4))
    print("by its bytes: ", roll()[1].round(2).tolist())
