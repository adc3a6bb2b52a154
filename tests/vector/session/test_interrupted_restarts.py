"""Deaths whose handling is cut short: by an interrupt, or by what a function of the user raises."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.envs import Ledger
from tests.vector.bounds import stretched
from tests.test_interrupts import interrupt_at
from vecspaces.errors import NoAsyncCallError, ResetNeededError, WorkerDiedError
from vecspaces.vector import AsyncVectorEnv

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX signals")


class Mortal(Ledger):
    """Dies or hangs in a step while a file is there."""

    def __init__(self, folder: Path, hangs: bool, number: int) -> None:
        super().__init__(number, length=99)
        self._sign, self._hangs = folder / "die", hangs

    def step(self, action: Any) -> Any:
        if self.number == 0 and self._sign.exists():
            self._sign.unlink()
            if self._hangs:
                time.sleep(1000)
            os._exit(5)
        return super().step(action)


def mortals(folder: Path, hangs: bool = False) -> list[Any]:
    return [partial(Mortal, folder, hangs, number) for number in range(2)]


@pytest.mark.parametrize(
    "stride", [97, pytest.param(1, marks=[pytest.mark.full, pytest.mark.timeout(600)])]
)
@pytest.mark.parametrize("hangs", [False, True])
def test_an_interrupt_at_any_point_of_a_restart(tmp_path: Path, hangs: bool, stride: int) -> None:
    arguments: dict[str, Any] = {"on_worker_death": "restart", "max_restarts": 10_000}
    if hangs:
        arguments |= {"on_step_timeout": "restart", "step_timeout": stretched(0.1)}
    actions = np.array([1, 1])
    with AsyncVectorEnv(mortals(tmp_path, hangs), num_workers=2, **arguments) as envs:
        k, reached = 3, True
        while reached:
            envs.reset(seed=0)
            envs.step(actions)
            (tmp_path / "die").touch()
            reached, done, result = interrupt_at(k, lambda: envs.step(actions))
            k += stride
            try:
                # Whether it had begun to restart or not, it does now.
                result = result if done else envs.step_wait(timeout=None if hangs else 20)
            except (NoAsyncCallError, ResetNeededError):
                (tmp_path / "die").unlink(missing_ok=True)
                continue
            assert result[3].tolist() == [True, False]
            assert result[4]["worker_restarted"].tolist() == [True, False]


def test_what_a_function_of_deaths_raises_ends_the_step_and_a_reset_goes_on(
    tmp_path: Path,
) -> None:
    def refuse(error: WorkerDiedError) -> None:
        raise ArithmeticError("enough")

    with AsyncVectorEnv(mortals(tmp_path), num_workers=2, on_worker_death=refuse) as envs:
        envs.reset(seed=0)
        (tmp_path / "die").touch()
        with pytest.raises(ArithmeticError, match="enough"):
            envs.step([1, 1])
        with pytest.raises(ResetNeededError):
            envs.step_wait()
        envs.reset(seed=0)
        assert envs.step([1, 2])[0][:, 3].tolist() == [1, 2]
