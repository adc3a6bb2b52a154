"""The programs of docs/multi_agent_libraries.md, run and compared with what the libraries do."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.adapters import pages
from tests.crosses import FASTEST
from tests.envs.agents import Crowd
from tests.leaks import possessions
from vecspaces import make_vec

OURS = "/memfd:vecspaces"
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves a process or memory of ours; AgileRL keeps descriptors of its own."""
    before = possessions()
    yield
    gc.collect()
    give_up = time.monotonic() + 5
    while left := {
        name for name in possessions() - before if name.startswith("process") or OURS in name
    }:
        assert time.monotonic() < give_up, f"the test left behind: {', '.join(sorted(left))}"
        time.sleep(0.02)


code_of = partial(pages.code_of, "multi_agent_libraries")


def run(section: str) -> dict[str, Any]:
    """Return what the code of a section defines."""
    scope: dict[str, Any] = {"__name__": "page"}
    exec(compile(code_of(section), f"<{section}>", "exec"), scope)
    return scope


def run_program(section: str, folder: Path, replaced: Mapping[str, str]) -> str:
    """Run the code of a section as a program of its own; return what it prints."""
    return pages.run_program(code_of(section, replaced), folder)


class Leaving(Crowd):
    """All agents are there at the beginning; those that leave do not come back."""

    def observation_space(self, agent: str) -> Any:
        return foreign(super().observation_space(agent))

    def action_space(self, agent: str) -> Any:
        return foreign(super().action_space(agent))

    @property
    def unwrapped(self) -> Any:
        return self

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed, options)
        self.acts[:, 0] = True
        self.acts = np.logical_and.accumulate(self.acts, axis=1)
        self.agents = self._living()
        return self._observe(self.agents), self._infos(self.agents)


def foreign(space: Any) -> Any:
    from vecspaces.adapters.gymnasium import to_gymnasium

    return to_gymnasium(space)


def test_stable_baselines3_trains(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    run_program("Stable-Baselines3", tmp_path, {"100_000": "200", "envs)).": "envs), n_steps=16)."})


def test_rllib_gets_the_agents_that_are_there() -> None:
    """Step by step what a bare loop gives; `__all__` once nobody is left, and then a reset."""
    pytest.importorskip("ray.rllib", reason="RLlib is not installed")
    envs = run("RLlib")["RLlibEnvs"](
        partial(Leaving, masks="infos"), 3, num_workers=2, context=FASTEST
    )
    crowds = [Leaving(masks="infos") for _ in range(3)]
    rng = np.random.default_rng(0)
    shown, infos = envs.reset(seed=4)
    for k, crowd in enumerate(crowds):
        np.testing.assert_equal((shown[k], infos[k]), crowd.reset(seed=4 + k))
    ends = 0
    for _ in range(60):
        actions = [{agent: rng.integers(3) for agent in crowd.agents} for crowd in crowds]
        results = envs.step(actions)
        for k, crowd in enumerate(crowds):
            observations, rewards, terminations, truncations, infos = (row[k] for row in results)
            over = terminations.pop("__all__") or truncations.pop("__all__")
            if not actions[k]:
                np.testing.assert_equal((observations, infos), crowd.reset())
                assert not over and not rewards and not truncations.pop("__all__", False)
                continue
            truncations.pop("__all__", None)
            expected = crowd.step(actions[k])
            for agent in expected[4].keys() - set(crowd.agents):
                del expected[4][agent]["action_mask"]  # it takes no action any more
            result = (observations, rewards, terminations, truncations)
            np.testing.assert_equal(result, expected[:4])
            filled = {agent: info for agent, info in expected[4].items() if info}
            np.testing.assert_equal({a: info for a, info in infos.items() if info}, filled)
            assert over == (not crowd.agents)
            ends += over
    assert ends > 10
    envs.close()


def test_rllib_trains(tmp_path: Path) -> None:
    pytest.importorskip("ray.rllib", reason="RLlib is not installed")
    pytest.importorskip("torch", reason="PyTorch is not installed")
    short = ".training(train_batch_size=400, minibatch_size=100, num_epochs=1)"
    printing = 'print(algorithm.train()["env_runners"]["episode_return_mean"])'
    output = run_program(
        "RLlib", tmp_path, {".multi_agent(": f"{short}.multi_agent(", "algorithm.train()": printing}
    )
    assert -300 < float(output.split()[-1]) < -20  # of a random policy: -80


@pytest.mark.parametrize("name", ["simple_spread_v3", "simple_tag_v3", "simple_crypto_v3"])
def test_torchrl_groups_agents_alike_and_sees_the_same(name: str) -> None:
    pytest.importorskip("torchrl", reason="TorchRL is not installed")
    import torch
    from torchrl.envs.libs.pettingzoo import PettingZooWrapper

    grouped = run("TorchRL")["grouped"]
    theirs = PettingZooWrapper(importlib.import_module(f"mpe2.{name}").parallel_env())
    with make_vec(f"mpe2.{name}:parallel_env", 2, agents="dict", backend="sync") as envs:
        assert envs.groups == theirs.group_map
        observations, infos = envs.reset(seed=3)
        ours = grouped(observations, envs.groups, 2)
        assert ours.batch_size == (2,)
        for k in range(2):
            theirs._env.reset(seed=3 + k)
            seen = theirs._env.reset(seed=3 + k)[0]
            for group, agents in theirs.group_map.items():
                expected = torch.stack([torch.as_tensor(seen[agent]) for agent in agents])
                assert torch.equal(ours[group][k], expected)
        rewards = grouped(infos["agents"]["rewards"], envs.groups, 2)
        assert all(rewards[group].shape == (2, len(names)) for group, names in envs.groups.items())
    theirs.close()


@pytest.mark.parametrize("masks", ["", "infos"])
def test_agilerl_gets_what_its_own_vector_env_gives(masks: str) -> None:
    """Value by value, with NaN for agents that are gone."""
    pytest.importorskip("agilerl", reason="AgileRL is not installed")
    from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv

    factory = partial(Leaving, masks=masks)
    theirs = AsyncPettingZooVecEnv([factory] * 3, context="fork")
    ours = run("AgileRL")["AgileEnvs"](factory, 3, num_workers=2, context="fork")
    assert ours.single_observation_space("red_1") == theirs.single_observation_space("red_1")
    assert ours.action_space("red_1") == theirs.action_space("red_1")
    rng = np.random.default_rng(0)
    result, expected = ours.reset(seed=5), theirs.reset(seed=5)
    gone = 0
    for _ in range(60):
        assert list(result[0]) == list(expected[0])
        for values, other in zip(result[:-1], expected[:-1], strict=True):
            for agent in ours.agents:
                np.testing.assert_array_equal(values[agent], other[agent])
        for agent in ours.agents if masks else ():
            there = ours.alive[agent]
            if there.any():
                np.testing.assert_array_equal(
                    result[-1][agent]["action_mask"][there],
                    expected[-1][agent]["action_mask"][there],
                )
        actions = {
            agent: np.where(alive, rng.integers(3, size=3), np.nan)
            for agent, alive in ours.alive.items()
        }
        gone += sum(int(np.isnan(batch).sum()) for batch in actions.values())
        result, expected = ours.step(actions), theirs.step(actions)
    assert gone > 30
    ours.close()
    theirs.close()


def test_agilerl_trains(tmp_path: Path) -> None:
    pytest.importorskip("agilerl", reason="AgileRL is not installed")
    short = {"100_000": "800", "8_000": "800", "env.close()": "print(*agent.fitness)"}
    output = run_program("AgileRL", tmp_path, short)
    assert -300 < float(output.split()[-1]) < -20  # of a random policy: -80
