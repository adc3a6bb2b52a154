"""What an env_fn may return: environments of many makes, and what is refused."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import Drift, Ledger, Unlike, rewarding
from vecspaces import spaces
from vecspaces.errors import InvalidRewardError
from vecspaces.vector import AutoresetMode, SyncVectorEnv

MODES = list(AutoresetMode)

UNFINISHED: dict[str, tuple[dict[str, Any], type[BaseException], str]] = {
    "unknown space": ({"action_space": "left or right"}, TypeError, "expected a space"),
    "other space": ({"observation_space": spaces.Discrete(3)}, RuntimeError, "environment 1 has"),
    "interrupt": ({}, KeyboardInterrupt, "^$"),
}


@pytest.mark.parametrize("case", UNFINISHED)
def test_constructor_that_fails_closes_what_was_built(case: str) -> None:
    attributes, error, match = UNFINISHED[case]
    made = [Ledger(0), Ledger(1)]
    vars(made[1]).update(attributes)

    def interrupt() -> Any:
        raise KeyboardInterrupt

    env_fns: list[Any] = [lambda env=env: env for env in made]
    with pytest.raises(error, match=match):
        SyncVectorEnv(env_fns if attributes else [*env_fns, interrupt])
    assert [env.closed for env in made] == [True, True]


class Optionless(Ledger):
    """Takes no options, as environments written for other libraries."""

    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class OptionlessDrift(Drift):
    """A simulator that takes no options."""

    def reset(self, *, seed: Any = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


@pytest.mark.parametrize("mode", MODES)
def test_reset_of_environments_without_options(mode: AutoresetMode) -> None:
    with SyncVectorEnv([partial(OptionlessDrift, 2)]) as drifts:
        drifts.reset(seed=3)
        drifts.reset()
    env_fns = [partial(Optionless, number, length=2) for number in range(2)]
    with SyncVectorEnv(env_fns, autoreset_mode=mode) as envs:
        envs.reset(seed=3)
        for _ in range(4):
            ended = envs.step([0, 0])[2]
            if mode is AutoresetMode.DISABLED and ended.any():
                envs.reset(options={"reset_mask": ended})
        envs.reset()
        with pytest.raises(TypeError, match="options"):
            envs.reset(options={"time": 1})


class Branded(Drift):
    """Has the mode that it was made with, though its class's metadata have another's."""

    def __init__(self, mode: str) -> None:
        super().__init__(2, mode="NextStep")
        self.autoreset_mode = AutoresetMode(mode)


def test_autoreset_mode_of_a_vector_env_is_before_its_metadata() -> None:
    with SyncVectorEnv([lambda: Branded("Disabled")], autoreset_mode="Disabled") as envs:
        envs.reset(seed=1)
    with pytest.raises(ValueError, match=r"DISABLED.*NEXT_STEP"):
        SyncVectorEnv([lambda: Branded("Disabled")])


@pytest.mark.parametrize(
    ("again", "error", "text"),
    [
        (
            lambda _: Unlike(spaces.Box(-1, 2**31, (6,), np.int64), 1),
            RuntimeError,
            r"another observation space than before: expected .*\(5,\).*found .*\(6,\)",
        ),
        (
            lambda _: SyncVectorEnv([Ledger]),
            RuntimeError,
            "another kind than before: expected an environment, found a vector env",
        ),
        (lambda envs: envs.envs[0], ValueError, "returned one and the same environment"),
    ],
)
def test_reset_refuses_an_environment_that_comes_back_as_another(
    again: Any, error: Any, text: str
) -> None:
    made: list[Any] = []

    def build() -> Any:
        made.append(again(envs) if made else Ledger(1))
        return made[-1]

    with SyncVectorEnv([Ledger, build]) as envs:
        envs.reset(seed=1)
        envs.envs[1].step = lambda action: None
        with pytest.raises(TypeError, match="environment 1: step must return"):
            envs.step([0, 0])
        with pytest.raises(error, match=text):
            envs.reset()


def test_restart_keeps_nothing_of_the_former_environment() -> None:
    class Own(Ledger):
        """Has spaces of its own, as most environments have."""

        def __init__(self) -> None:
            super().__init__()
            shared = Ledger.observation_space
            self.observation_space = spaces.Box(shared.low, shared.high, dtype=shared.dtype)

    envs_made: list[Any] = []
    spaces_made: list[Any] = []

    def make() -> Any:
        gc.collect()
        assert not any(reference() for reference in envs_made)
        # That of the former environment is compared with that of the next.
        assert sum(reference() is not None for reference in spaces_made) <= 1
        env = Own()
        envs_made.append(weakref.ref(env))
        spaces_made.append(weakref.ref(env.observation_space))
        return env

    with SyncVectorEnv([Ledger, make]) as envs:
        envs.reset(seed=0)
        for _ in range(4):
            assert envs.restart([1]).tolist() == [1]
            envs.reset(seed=0)
    assert len(envs_made) == 5


def test_a_vector_env_among_others_is_built_again_alone() -> None:
    made: list[str] = []

    def note(name: str, env_fn: Any) -> Any:
        def make() -> Any:
            made.append(name)
            return env_fn()

        return make

    env_fns = [
        note("a", partial(rewarding, 1.0)),
        note("b", lambda: SyncVectorEnv([partial(rewarding, 1.0), partial(rewarding, None)])),
        note("c", partial(rewarding, 1.0)),
        note("d", partial(rewarding, "x")),
    ]
    with SyncVectorEnv(env_fns) as envs:
        envs.reset()
        with pytest.raises(InvalidRewardError, match="environment 2 returned None"):
            envs.step([0] * 4 + [0])
        envs.reset()
        assert made == ["a", "b", "c", "d", "b"]
