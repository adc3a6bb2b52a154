"""Workers die at every moment of a long run: no other one loses a step or gets a torn row."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np
import pytest

from vecspaces import Env
from vecspaces.spaces import Box, Dict, Discrete
from vecspaces.vector import AsyncVectorEnv, AutoresetMode

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")

SIZE = 4096
STEP, DIE_FIRST, DIE_WRITING = range(3)


class Bomb:
    """An array that kills its process when it is asked for its bytes: in the middle of a write."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Ledger(Env[Any, Any]):
    """Counts its steps; every element of both halves of an observation holds the same number."""

    observation_space = Dict(
        {
            "first": Box(0, np.inf, (SIZE,), np.float64),
            "second": Box(0, np.inf, (SIZE,), np.float64),
        }
    )
    action_space = Discrete(3)

    def __init__(self, index: int) -> None:
        self.index = index
        self.steps = 0

    def _observe(self) -> dict[str, Any]:
        full = np.full(SIZE, self.index * 1e6 + self.steps)
        return {"first": full, "second": full.copy()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == DIE_FIRST:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1
        observation = self._observe()
        if action == DIE_WRITING:
            observation["second"] = Bomb()
        return observation, float(self.steps), False, False, {}


class Ledgers:
    """What the rows must show, told by nothing but what happened so far.

    Args:
        num_envs: The number of environments.
        num_workers: Of workers, each with as many environments.
        mode: The autoreset mode.
    """

    def __init__(self, num_envs: int, num_workers: int, mode: AutoresetMode) -> None:
        self.steps = np.zeros(num_envs)
        self.resets_next = np.zeros(num_envs, dtype=np.bool_)
        self.worker = np.arange(num_envs) * num_workers // num_envs
        self.mode = mode
        self.deaths = 0

    def expect(self, result: Any, doomed: set[int], maybe: set[int]) -> None:
        """Check one step; workers in `doomed` died in it, those in `maybe` may have."""
        observations, rewards, terminations, truncations, infos = result
        num_envs = len(self.steps)
        said = infos.get("worker_restarted", np.zeros(num_envs, dtype=np.bool_))
        hit = {int(worker) for worker in self.worker[said]}
        assert doomed <= hit <= doomed | maybe
        assert (np.isin(self.worker, list(hit)) == said).all(), "a worker's rows go together"
        self.deaths += len(hit)
        assert (truncations == said).all()
        assert not terminations.any()
        before = self.steps.copy()
        advance = ~said & ~self.resets_next
        self.steps[advance] += 1
        if self.mode is AutoresetMode.SAME_STEP:
            self.steps[said] = 0
            for row in np.flatnonzero(said):
                final = infos["final_obs"][row]
                assert (final["first"] == row * 1e6 + before[row]).all()
                assert (final["second"] == row * 1e6 + before[row]).all()
        else:
            self.steps[self.resets_next & ~said] = 0
            # A lost step shows what was known: `steps` stays, and the next step resets.
            self.resets_next = said.copy()
        assert (rewards == np.where(advance, self.steps, 0.0)).all()
        expected = np.arange(num_envs) * 1e6 + self.steps
        for half in ("first", "second"):
            assert (observations[half] == expected[:, None]).all(), "a row is torn or out of step"


def bombard(
    steps: int, kills: int, mode: AutoresetMode, seed: int, num_envs: int = 6, num_workers: int = 3
) -> None:
    """Run, kill, and check every element of every step."""
    rng = np.random.default_rng(seed)
    moments = dict.fromkeys(rng.choice(steps, kills, replace=False).tolist())
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [lambda i=i: Ledger(i) for i in range(num_envs)],
        num_workers=num_workers,
        context="fork",
        autoreset_mode=mode,
        on_worker_death="restart",
        max_restarts=kills,
        copy=False,
    )
    with envs:
        envs.reset(seed=0)
        ledgers = Ledgers(num_envs, num_workers, mode)
        stray: set[int] = set()
        for step in range(steps):
            actions = np.zeros(num_envs, np.int64)
            doomed: set[int] = set()
            maybe, stray = stray, set()
            how = rng.integers(3) if step in moments else -1
            row = int(rng.integers(num_envs))
            worker = int(ledgers.worker[row])
            if how >= 0 and how < 2:
                actions[row] = (DIE_FIRST, DIE_WRITING)[how]
                # Its worker must live to see the action: no reset may take the step's place.
                if ledgers.resets_next[row] or worker in maybe:
                    actions[row] = STEP
                else:
                    doomed.add(worker)
            envs.step_async(actions)
            if how == 2:
                # At any moment of the step, or after it: then the next one tells.
                for _ in range(int(rng.integers(4000))):
                    pass
                os.kill(envs.processes[worker].pid or 0, signal.SIGKILL)
                maybe.add(worker)
                stray.add(worker)
            ledgers.expect(envs.step_wait(), doomed, maybe)
        assert ledgers.deaths >= kills * 0.8


@pytest.mark.parametrize(
    "mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.name
)
def test_a_run_survives_random_kills(mode: AutoresetMode) -> None:
    bombard(500, 20, mode, seed=3)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.name
)
def test_a_long_run_survives_two_hundred_random_kills(mode: AutoresetMode) -> None:
    bombard(50_000, 200, mode, seed=4)
