"""A restarted environment can do all that the one before it could, and shows what is documented."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.workers import restart_seed
from tests.crosses import FASTEST, diagonal
from tests.envs import Drift, Ledger
from tests.vector.bounds import kill
from vecspaces.adapters.gymnasium import to_gymnasium
from vecspaces.errors import ResetNeededError
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")

MODES = list(AutoresetMode)
ACTIONS = np.zeros(3, np.int64)
LOST = [1, 2]
INT32_MAX = 2**31 - 1


class Strict(Ledger):
    """A ledger that can do nothing before its first reset, and refuses seeds beyond 31 bits."""

    def __init__(self, number: int, render_mode: str = "rgb_array", length: int = 9) -> None:
        super().__init__(number, length, render_mode=render_mode)
        self.gain = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None and not 0 <= seed <= INT32_MAX:
            raise OverflowError(f"seed {seed} is no int32")
        return super().reset(seed=seed, options=options)

    def _check(self) -> None:
        if self.episode == 0:
            raise RuntimeError("it was not reset")

    def step(self, action: Any) -> Any:
        self._check()
        return super().step(action)

    def render(self) -> Any:
        self._check()
        return super().render()

    def multiply(self, factor: int, plus: int = 0) -> int:
        self._check()
        return super().multiply(factor, plus)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "gain" and value:
            self._check()
        super().__setattr__(name, value)


class GymnasiumStrict(Strict):
    """The same with Gymnasium's spaces, as its vector envs want them."""

    observation_space = to_gymnasium(Strict.observation_space)  # type: ignore[assignment]
    action_space = to_gymnasium(Strict.action_space)  # type: ignore[assignment]


def ours(mode: AutoresetMode) -> Any:
    """A vector env of the environments 1 and 2."""
    return SyncVectorEnv([partial(Strict, number) for number in LOST], autoreset_mode=mode)


def theirs(mode: AutoresetMode) -> Any:
    """The same of Gymnasium."""
    env_fns = [partial(GymnasiumStrict, number) for number in LOST]
    return gymnasium.vector.SyncVectorEnv(env_fns, autoreset_mode=mode.value)


def start(inner: Any, mode: AutoresetMode, seed: Any = 5) -> Any:
    """Environment 0 in a worker, 1 and 2 in others or as one vector env; two steps."""
    env_fns: list[Any] = [partial(Strict, number) for number in range(3)]
    if inner is not None:
        env_fns = [env_fns[0], partial(inner, mode)]
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        env_fns,
        num_workers=len(env_fns),
        context=FASTEST,
        autoreset_mode=mode,
        on_worker_death="restart",
        max_restarts=9,
    )
    envs.reset(seed=seed)
    for _ in range(2):
        envs.step(ACTIONS)
    return envs


def first_observation(row: int, count: int = 1) -> Any:
    """What the reset after a restart returns: as documented, with the restart's own seed."""
    env = Strict(row)
    return env, env.reset(seed=restart_seed(5 + row, count))[0]


def check_lost_step(envs: Any, known: Any) -> None:
    """Take the step that reports the loss, and those after it; ask for everything in between."""
    mode = envs.autoreset_mode
    new, firsts = zip(*map(first_observation, LOST), strict=True)
    observations, rewards, terminations, truncations, infos = envs.step(ACTIONS)
    assert rewards[LOST].tolist() == [0.0, 0.0]
    assert not terminations.any()
    assert truncations.tolist() == [False, True, True]
    assert infos["worker_restarted"].tolist() == [False, True, True]
    ask(envs)
    if mode is AutoresetMode.SAME_STEP:
        assert_identical(observations[LOST], np.stack(firsts))
        assert_identical(np.stack(infos["final_obs"][LOST]), known[LOST])
    else:
        assert_identical(observations[LOST], known[LOST])
    if mode is AutoresetMode.NEXT_STEP:
        observations, *_, infos = envs.step(ACTIONS)
        assert_identical(observations[LOST], np.stack(firsts))
        assert infos["episode"][LOST].tolist() == [1, 1]
    if mode is AutoresetMode.DISABLED:
        mask = np.array([False, True, True])
        observations, _ = envs.reset(options={"reset_mask": mask})
        assert_identical(observations[LOST], np.stack([env.reset()[0] for env in new]))
    observations, *_ = envs.step(ACTIONS)
    assert_identical(observations[LOST], np.stack([env.step(0)[0] for env in new]))


def ask(envs: Any) -> None:
    """Ask for what only an environment that was reset can do, of some rows and of all."""
    assert [int(frame[0, 0, 0]) for frame in envs.render()] == [0, 1, 2]
    assert envs.call("multiply", 2, env_ids=[2, 1]) == (4, 2)
    assert envs.call("multiply", 3) == (0, 3, 6)
    envs.set_attr("gain", [7, 8, 9])
    assert envs.get_attr("gain") == (7, 8, 9)


@diagonal(mode=MODES, inner=[None, ours, theirs])
def test_calls_work_before_and_after_the_step_that_reports_a_death(
    mode: AutoresetMode, inner: Any
) -> None:
    for asks in (False, True):
        with start(inner, mode) as envs:
            known = envs.step(ACTIONS)[0]
            kill(envs.processes[1:])
            if asks:
                ask(envs)
            check_lost_step(envs, known)


def test_reset_mask_chooses_all_rows_of_a_replaced_vector_env() -> None:
    with start(ours, AutoresetMode.NEXT_STEP) as envs:
        envs.step(ACTIONS)
        kill(envs.processes[1:])
        with pytest.raises(ResetNeededError, match="of environments 1, 2, one vector env, was"):
            envs.reset(options={"reset_mask": np.array([False, True, False])})
        envs.reset(seed=0)
        envs.step(ACTIONS)


class Picky(Drift):
    """A simulator with one generator, which keeps its seed in an int32."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed is not None and not 0 <= seed <= INT32_MAX:
            raise OverflowError(f"seed {seed} is no int32")
        return super().reset(seed=seed)


def test_reset_derives_seeds_of_31_bits() -> None:
    with SyncVectorEnv([partial(Picky, 3)] * 2) as envs:
        for seed in range(20):
            envs.reset(seed=[seed, None, 3] * 2)
            envs.reset(seed=np.random.SeedSequence(seed))
    with SyncVectorEnv([partial(Strict, number) for number in range(40)]) as envs:
        envs.reset(seed=np.random.SeedSequence(1))
