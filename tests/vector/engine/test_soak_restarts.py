"""Workers die at every moment of a long run: no other one loses a step or gets a torn row."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.crosses import FASTEST
from vecspaces import Env
from vecspaces.spaces import Box, Dict, Discrete
from vecspaces.vector import AsyncVectorEnv

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")

SIZE = 4096
NUM_ENVS, NUM_WORKERS = 6, 3
WORKER = np.arange(NUM_ENVS) * NUM_WORKERS // NUM_ENVS
STEP, DIE_FIRST, DIE_WRITING = range(3)
HALVES = ("first", "second")


class Bomb:
    """An array that kills its process when its bytes are read: in the middle of a write."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Steps(Env[Any, Any]):
    """Counts its steps; every element of both halves of an observation holds the same number."""

    observation_space = Dict({half: Box(0, np.inf, (SIZE,), np.float64) for half in HALVES})
    action_space = Discrete(3)

    def __init__(self, index: int) -> None:
        self.index = index

    def observe(self) -> dict[str, Any]:
        return {half: np.full(SIZE, self.index * 1e6 + self.steps) for half in HALVES}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        if action == DIE_FIRST:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1
        observation = self.observe()
        if action == DIE_WRITING:
            observation["second"] = Bomb()
        return observation, float(self.steps), False, False, {}


class Expected:
    """What the rows must show, known from nothing but what happened so far."""

    def __init__(self, mode: str) -> None:
        self.steps = np.zeros(NUM_ENVS)
        self.resets_next = np.zeros(NUM_ENVS, dtype=np.bool_)
        self.mode, self.deaths = mode, 0

    def check(self, result: Any, doomed: set[int], maybe: set[int]) -> None:
        """Check one step; workers in `doomed` died in it, those in `maybe` may have."""
        observations, rewards, terminations, truncations, infos = result
        lost = infos.get("worker_restarted", np.zeros(NUM_ENVS, dtype=np.bool_))
        dead = set(WORKER[lost].tolist())
        assert doomed <= dead <= doomed | maybe
        assert (np.isin(WORKER, list(dead)) == lost).all(), "a worker's rows go together"
        self.deaths += len(dead)
        assert (truncations == lost).all() and not terminations.any()
        before = np.arange(NUM_ENVS) * 1e6 + self.steps
        advance = ~lost & ~self.resets_next
        self.steps[advance] += 1
        if self.mode == "SameStep":
            self.steps[lost] = 0
            for row in np.flatnonzero(lost):
                assert all((infos["final_obs"][row][half] == before[row]).all() for half in HALVES)
        else:
            self.steps[self.resets_next & ~lost] = 0
            # A lost step shows what was known: `steps` stays, and the next step resets.
            self.resets_next = lost.copy()
        assert (rewards == np.where(advance, self.steps, 0.0)).all()
        expected = np.arange(NUM_ENVS) * 1e6 + self.steps
        for half in HALVES:
            assert (observations[half] == expected[:, None]).all(), "a row is torn or out of step"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["NextStep", pytest.param("SameStep", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("steps", "kills"), [(200, 8), pytest.param(15_000, 100, marks=pytest.mark.full)]
)
def test_a_run_survives_random_kills(steps: int, kills: int, mode: str) -> None:
    rng = np.random.default_rng(steps)
    moments = set(rng.choice(steps, kills, replace=False).tolist())
    with AsyncVectorEnv(
        [partial(Steps, index) for index in range(NUM_ENVS)],
        num_workers=NUM_WORKERS,
        context=FASTEST,
        autoreset_mode=mode,
        on_worker_death="restart",
        max_restarts=kills,
        copy=False,
    ) as envs:
        envs.reset(seed=0)
        expected = Expected(mode)
        stray: set[int] = set()
        for step in range(steps):
            actions = np.zeros(NUM_ENVS, np.int64)
            doomed: set[int] = set()
            maybe, stray = stray, set()
            how = rng.integers(3) if step in moments else -1
            row = int(rng.integers(NUM_ENVS))
            worker = int(WORKER[row])
            # Its worker must live to see the action: no reset may take the step's place.
            if how in (0, 1) and not expected.resets_next[row] and worker not in maybe:
                actions[row] = (DIE_FIRST, DIE_WRITING)[how]
                doomed.add(worker)
            envs.step_async(actions)
            if how == 2:
                # At any moment of the step, or after it: then the next one reports it.
                for _ in range(int(rng.integers(4000))):
                    pass
                os.kill(envs.processes[worker].pid or 0, signal.SIGKILL)
                maybe.add(worker)
                stray.add(worker)
            expected.check(envs.step_wait(), doomed, maybe)
        assert expected.deaths >= kills * 0.8
