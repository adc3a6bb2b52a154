"""The time of every space's `sample` and `contains` next to Gymnasium's, in one run.

    python -m benchmarks.spaces

Both libraries build the space from the same arguments and the same seed, so that they draw the same
samples. The two are timed in turns, round after round, so that a busy machine slows both; a time is
the median of its rounds, in microseconds. The ratio is the speed-up of vecspaces.
"""

from __future__ import annotations

import functools
import platform
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium.spaces
import gymnasium.vector.utils
import numpy as np
import typer

import vecspaces.spaces
import vecspaces.vector.utils
from benchmarks.common import Call, make_table, show, time_in_turns

LIBRARIES = (vecspaces.spaces, gymnasium.spaces)
BATCH = {vecspaces.spaces: vecspaces.vector.utils, gymnasium.spaces: gymnasium.vector.utils}


def robot(lib: Any) -> Any:
    """A nested observation of a robot: two cameras, joints, contacts, a task."""
    camera = {
        "left": lib.Box(0, 255, (84, 84, 3), np.uint8),
        "right": lib.Box(0, 255, (84, 84, 3), np.uint8),
    }
    return lib.Dict(
        camera=lib.Dict(camera),
        joints=lib.Dict(
            position=lib.Box(-3.14, 3.14, (7,)),
            velocity=lib.Box(-np.inf, np.inf, (7,)),
            gripper=lib.Discrete(2),
        ),
        contacts=lib.MultiBinary(6),
        task=lib.Tuple([lib.Discrete(12), lib.Text(16)]),
        seed=0,
    )


SPACES: dict[str, Callable[[Any], Any]] = {
    "Box(0, 255, (84, 84, 4), uint8)": lambda lib: lib.Box(0, 255, (84, 84, 4), np.uint8, seed=0),
    "Box(0, 1, (84, 84, 4), float32)": lambda lib: lib.Box(0, 1, (84, 84, 4), seed=0),
    "Box(-1, 1, (17,), float32)": lambda lib: lib.Box(-1, 1, (17,), seed=0),
    "Box(low[17], high[17], float64)": lambda lib: lib.Box(
        np.linspace(-2, -1, 17), np.linspace(1, 2, 17), dtype=np.float64, seed=0
    ),
    "Box(-inf, inf, (17,), float64)": lambda lib: lib.Box(
        -np.inf, np.inf, (17,), np.float64, seed=0
    ),
    "Box(-5, 5, (8,), int32)": lambda lib: lib.Box(-5, 5, (8,), np.int32, seed=0),
    "Discrete(6)": lambda lib: lib.Discrete(6, seed=0),
    "Discrete(6, start=-2, dtype=int8)": lambda lib: lib.Discrete(6, 0, -2, np.int8),
    "MultiBinary(8)": lambda lib: lib.MultiBinary(8, seed=0),
    "MultiBinary((64, 64))": lambda lib: lib.MultiBinary((64, 64), seed=0),
    "MultiDiscrete([5, 2, 2])": lambda lib: lib.MultiDiscrete([5, 2, 2], seed=0),
    "Text(10)": lambda lib: lib.Text(10, seed=0),
    "Text(200, min_length=100)": lambda lib: lib.Text(200, min_length=100, seed=0),
    "Dict (nested robot observation)": robot,
    "Tuple(Discrete(3), Box(2))": lambda lib: lib.Tuple(
        [lib.Discrete(3), lib.Box(-1, 1, (2,))], seed=0
    ),
    "Sequence(Box(2))": lambda lib: lib.Sequence(lib.Box(-1, 1, (2,)), seed=0),
    "Sequence(Box(2), stack=True)": lambda lib: lib.Sequence(
        lib.Box(-1, 1, (2,)), seed=0, stack=True
    ),
    "Graph(Box(3), Discrete(4))": lambda lib: lib.Graph(
        lib.Box(-1, 1, (3,)), lib.Discrete(4), seed=0
    ),
    "OneOf(Discrete(3), Box(2))": lambda lib: lib.OneOf(
        [lib.Discrete(3), lib.Box(-1, 1, (2,))], seed=0
    ),
    "batch_space(Text(10), 64)": lambda lib: BATCH[lib].batch_space(lib.Text(10, seed=0), 64),
}

LIMITED: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "Discrete(6), mask": (SPACES["Discrete(6)"], {"mask": np.array([1, 0] * 3, np.int8)}),
    "Discrete(6), probability": (SPACES["Discrete(6)"], {"probability": np.full(6, 1 / 6)}),
    "MultiBinary(8), mask": (
        SPACES["MultiBinary(8)"],
        {"mask": np.array([0, 1, 2, 2] * 2, np.int8)},
    ),
    "MultiBinary(8), probability": (SPACES["MultiBinary(8)"], {"probability": np.full(8, 0.3)}),
    "MultiDiscrete, mask": (
        SPACES["MultiDiscrete([5, 2, 2])"],
        {"mask": tuple(np.ones(n, np.int8) for n in (5, 2, 2))},
    ),
    "MultiDiscrete, probability": (
        SPACES["MultiDiscrete([5, 2, 2])"],
        {"probability": tuple(np.full(n, 1 / n) for n in (5, 2, 2))},
    ),
    "Text(10), mask": (SPACES["Text(10)"], {"mask": (None, np.ones(62, np.int8))}),
    "Text(10), probability": (SPACES["Text(10)"], {"probability": (8, np.full(62, 1 / 62))}),
}


def measure(rounds: int) -> list[tuple[str, str, float, float]]:
    """Return rows of (operation, space, vecspaces' time, Gymnasium's time)."""
    rows = []
    for operation in ("sample", "contains"):
        for name, make in SPACES.items():
            pair = [make(lib) for lib in LIBRARIES]
            calls: tuple[Call, ...] = tuple(space.sample for space in pair)
            if operation == "contains":
                calls = tuple(functools.partial(space.contains, space.sample()) for space in pair)
            ours, theirs = time_in_turns(calls, rounds)
            rows.append((operation, name, ours, theirs))
    for name, (make, limit) in LIMITED.items():
        calls = tuple(functools.partial(make(lib).sample, **limit) for lib in LIBRARIES)
        ours, theirs = time_in_turns(calls, rounds)
        rows.append(("sample", name, ours, theirs))
    return rows


def main(rounds: int = 101) -> None:
    """Time everything, in so many rounds."""
    warnings.simplefilter("ignore")  # Gymnasium warns of every value that it has to cast
    table = make_table(
        platform.machine(), "operation", "space", "vecspaces, µs", "Gymnasium, µs", "ratio", left=2
    )
    for operation, name, ours, theirs in measure(rounds):
        ratio = theirs / ours
        style = "green" if ratio >= 2 else "red" if ratio < 0.95 else ""
        table.add_row(operation, name, f"{ours:.2f}", f"{theirs:.2f}", f"{ratio:.1f}x", style=style)
    show(table)


if __name__ == "__main__":
    typer.run(main)
