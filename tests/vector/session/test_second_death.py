"""A worker that is restarted, answers, and dies again while another one still steps."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.vector.bounds import stretched
from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv

ACTIONS = np.zeros(2, np.int64)


def wait_for(path: Path) -> None:
    give_up = time.monotonic() + 20
    while not path.exists() and time.monotonic() < give_up:
        time.sleep(0.002)


class Mortal(Env[Any, Any]):
    """Dies in its third step; in its second life it dies once it is told to.

    Args:
        folder: Where it leaves and finds word.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lives = len(list(folder.glob("life*")))
        (folder / f"life{lives}").touch()
        self.life, self.time = lives, 0
        if lives == 1:
            threading.Thread(target=self._die_when_told, daemon=True).start()

    def _die_when_told(self) -> None:
        wait_for(self.folder / "die")
        os._exit(9)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        (self.folder / f"reset{self.life}").touch()
        return np.array([self.life, 0.5]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        if self.life == 0 and self.time == 3:
            os._exit(7)
        return np.array([self.life, self.time], np.float64), 1.0, False, False, {}


class Slow(Mortal):
    """Ends its third step only when the other one has lived twice and died twice."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.life, self.time = folder, 0, 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        if self.time == 3:
            wait_for(self.folder / "reset1")
            time.sleep(stretched(0.1))  # it has answered
            (self.folder / "die").touch()
            wait_for(self.folder / "life2")
        return np.array([-1.0, self.time]), 1.0, False, False, {}


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("buffers", [1, 3])
def test_the_last_known_observation_is_shown_after_both_deaths(
    mode: str, shared_memory: bool, buffers: int, tmp_path: Path
) -> None:
    with AsyncVectorEnv(
        [partial(Mortal, tmp_path), partial(Slow, tmp_path)],
        num_workers=2,
        on_worker_death="restart",
        autoreset_mode=mode,
        shared_memory=shared_memory,
        buffers=buffers,
    ) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            known = envs.step(ACTIONS)[0]
        for life in (1, 2):
            observations, rewards, _, truncations, infos = envs.step(ACTIONS)
            assert truncations.tolist() == [True, False]
            assert rewards.tolist() == [0.0, 1.0]
            assert infos["worker_restarted"].tolist() == [True, False]
            if mode == "SameStep":
                assert infos["final_obs"][0].tolist() == known[0].tolist()
                assert observations[0].tolist() == [life, 0.5]
                known = observations
            else:
                assert observations[0].tolist() == known[0].tolist() == [0.0, 2.0]
            assert observations[1].tolist() == [-1.0, 2.0 + life]
            if mode == "Disabled" and life == 1:
                break  # it has to be reset, and that ends the loss of the second life too
        if mode == "Disabled":
            mask = np.array([True, False])
            observations, _ = envs.reset(seed=4, options={"reset_mask": mask})
            assert observations.tolist() == [[2.0, 0.5], [-1.0, 3.0]]
            assert not envs.step(ACTIONS)[3].any()
