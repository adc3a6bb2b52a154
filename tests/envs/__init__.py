"""Environments that tests step: those of the contract, and some that our own tests alone need."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces import Env, spaces
from vecspaces.testing.envs import (
    Drift,
    Echo,
    Failing,
    Ledger,
    Noted,
    Passing,
    Reusing,
    Sampler,
    Unlike,
    failing,
    ledger_vector,
    ledgers,
    observing,
    rewarding,
    talking,
    wrapped_ledger,
)

__all__ = [
    "Boasting",
    "Drift",
    "Echo",
    "Failing",
    "Gated",
    "Global",
    "Ledger",
    "Noted",
    "Parent",
    "Passing",
    "Patient",
    "Placing",
    "Reusing",
    "Sampler",
    "Unlike",
    "failing",
    "ledger_vector",
    "ledgers",
    "observing",
    "put",
    "rewarding",
    "talking",
    "telling",
    "wrapped_ledger",
]

_GATE_SECONDS = 30.0


class Boasting(Sampler):
    """Observes nothing, and has an info of so many bytes."""

    def __init__(self, action_space: Any, size: int) -> None:
        super().__init__(spaces.Discrete(1), action_space, shortest=99)
        self._size = size

    def _talk(self) -> dict[str, Any]:
        return {"boast": b"!" * self._size}


class Gated(Ledger):
    """A ledger that waits in step at the action 4, until a file exists.

    Any other step takes longer than a worker gathers steps for before it reports them.
    """

    def __init__(self, gate: Path, number: int, **arguments: Any) -> None:
        super().__init__(number, **arguments)
        self._gate = gate

    def step(self, action: Any) -> Any:
        give_up = time.monotonic() + _GATE_SECONDS
        time.sleep(0.0005)
        while action == 4 and not self._gate.exists() and time.monotonic() < give_up:
            time.sleep(0.002)
        return super().step(action)


class Global(Env[Any, Any]):
    """Observes the next numbers of the global generators, as careless environments do."""

    observation_space = spaces.Box(0, 1, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        return self._observe(), 0.0, False, False, {}

    def _observe(self) -> Any:
        import random

        return np.array([random.random(), np.random.random()])


class Parent(Ledger):
    """A ledger that starts a process of its own when it is called."""

    def child(self) -> int:
        """Start a process, wait for it, and give its exit code."""
        import multiprocessing

        process = multiprocessing.get_context("spawn").Process(target=os.getpid)
        process.start()
        process.join(20)
        code = process.exitcode
        process.close()
        assert code is not None
        return code


class Patient(Ledger):
    """A ledger whose steps take as many milliseconds as their actions say."""

    action_space = spaces.Discrete(1000)

    def step(self, action: Any) -> Any:
        time.sleep(action / 1000)
        return super().step(action)


class Placing:
    """Writes the observations of the class below where it is told to."""

    view: Any = None
    binds = 0

    def bind(self, observation: Any) -> None:
        self.view = observation
        self.binds += 1

    def reset(self, **arguments: Any) -> Any:
        observation, info = super().reset(**arguments)  # type: ignore[misc]  # of the class below
        return self.place(observation), info

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)  # type: ignore[misc]  # of the class below
        return self.place(observation), *rest

    def place(self, observation: Any) -> Any:
        return observation if self.view is None else put(self.view, observation)


def put(view: Any, value: Any) -> Any:
    """Write a value into a view, and return the view."""
    if isinstance(view, dict):
        for key, part in view.items():
            put(part, value[key])
    elif isinstance(view, tuple):
        for part, inner in zip(view, value, strict=True):
            put(part, inner)
    else:
        view[...] = value
    return view


def telling(infos: Iterable[dict[str, Any]]) -> list[Any]:
    """Factories of environments that return these infos in every reset and step."""
    unit, zero = spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)
    return [
        partial(Echo, unit, [(zero, info)], [(zero, 0.0, False, False, info)]) for info in infos
    ]
