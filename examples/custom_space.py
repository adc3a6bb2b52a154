"""A custom space: complex matrices, first pickled, then stored as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecspaces import Env, spaces
from vecspaces.layout import Array, Layout, describe
from vecspaces.vector import AsyncVectorEnv


class ComplexMatrix(spaces.Space[np.ndarray]):
    """Matrices of complex numbers whose absolute values are at most 1."""

    def __init__(self, rows: int, columns: int, seed: int | None = None) -> None:
        super().__init__(shape=(rows, columns), dtype=np.complex64, seed=seed)
        self.rows, self.columns = rows, columns

    def sample(self, mask: Any = None, probability: Any = None) -> np.ndarray:
        radius, turn = self.np_random.random((2, self.rows, self.columns))
        return np.asarray(np.sqrt(radius) * np.exp(2j * np.pi * turn), dtype=np.complex64)

    def contains(self, x: Any) -> bool:
        right = isinstance(x, np.ndarray) and x.shape == self.shape and x.dtype == self.dtype
        return right and bool((abs(x) <= 1).all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComplexMatrix) and self.shape == other.shape

    def __repr__(self) -> str:
        return f"ComplexMatrix{self.shape}"


class Qubits(Env[np.ndarray, int]):
    """Gates that the agent applies to a register; the observation is their product so far."""

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
    """Store values as arrays; without this they are pickled, and the results are the same."""

    @describe.register
    def _(space: ComplexMatrix) -> Array:
        return Array(np.dtype(np.complex64), (space.rows, space.columns))


def roll() -> Any:
    with AsyncVectorEnv([Qubits] * 4, num_workers=2) as envs:
        envs.reset(seed=0)
        for actions in ([0, 0, 1, 1], [0, 1, 0, 1]):
            observations, *_ = envs.step(actions)
    return observations


if __name__ == "__main__":
    print(Layout.compile(ComplexMatrix(2, 2), n=4))
    print("pickled:  ", roll()[1].round(2).tolist())
    register()
    print(Layout.compile(ComplexMatrix(2, 2), n=4))
    print("as arrays:", roll()[1].round(2).tolist())
