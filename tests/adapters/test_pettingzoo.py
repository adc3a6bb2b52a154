"""Parallel environments as rows and as Dicts, compared with a bare loop over the environment."""

from __future__ import annotations

import importlib
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.adapters.bare_loops import play
from tests.crosses import diagonal
from tests.envs.agents import Crowd
from vecspaces import evaluate, make_vec
from vecspaces.adapters.pettingzoo import as_env, as_vector_env
from vecspaces.errors import InvalidActionError
from vecspaces.testing import check_env
from vecspaces.testing.envs import Tag
from vecspaces.vector import AutoresetMode
from vecspaces.vector.agents import group_agents
from vecspaces.wrappers import (
    FrameStackObservation,
    NormalizeObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
)

MODES = list(AutoresetMode)


@pytest.mark.parametrize("masks", ["", "infos", "observations"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("count", [1, 3])
def test_rows_equal_a_bare_loop(count: int, mode: AutoresetMode, masks: str) -> None:
    with as_vector_env(Crowd(count, masks=masks), autoreset_mode=mode, state=True) as env:
        play(env, partial(Crowd, count, masks=masks), mode)


def crowd_rows(count: int, mode: AutoresetMode, masks: str) -> Any:
    return as_vector_env(Crowd(count, masks=masks), autoreset_mode=mode, state=True)


@diagonal(backend=["sync", "async"], mode=MODES, masks=["", "infos", "observations"])
def test_rows_of_several_environments(backend: Any, mode: AutoresetMode, masks: str) -> None:
    factory = partial(crowd_rows, 3, mode, masks)
    kwargs = {} if backend == "sync" else {"num_workers": 2}
    with make_vec(
        factory, 3, backend=backend, autoreset_mode=mode, validate=True, **kwargs
    ) as envs:
        play(envs, partial(Crowd, masks=masks), mode)


def test_groups() -> None:
    assert group_agents(["a_0", "b-1", "a_12", "7"]) == {
        "a": ["a_0", "a_12"],
        "b": ["b-1"],
        "7": ["7"],
    }
    assert as_env(Crowd()).groups == {"blue": ["blue_0", "blue_2"], "red": ["red_1"]}


# ---------------------------------------------------------------------- a worker that dies


class Doomed(Crowd):
    """Kills its worker in the step that follows the creation of a file, once."""

    def __init__(self, order: Path, masks: str = "infos") -> None:
        super().__init__(masks=masks)
        self.order = order

    def step(self, actions: dict[str, Any]) -> Any:
        if self.order.exists():
            self.order.unlink()
            signal.raise_signal(signal.SIGKILL)
        return super().step(actions)


@diagonal(mode=MODES, streams=[False, True])
def test_a_restart_ends_agents_that_were_alive(
    tmp_path: Path, mode: AutoresetMode, streams: bool
) -> None:
    """A row that was dead shows no flag; the others are truncated; all begin anew together."""
    order = tmp_path / "die"
    with make_vec(
        [partial(Doomed, order), Crowd], agents="rows", autoreset_mode=mode,
        num_workers=2, on_worker_death="restart",
    ) as envs:  # fmt: skip
        # With this seed one agent of the first environment is dead and the others live on.
        envs.reset(seed=4)
        infos = {"alive": np.ones(3)}
        while infos["alive"][:3].all():
            observations, *_, infos = envs.step(np.zeros(6, int))
        alive = infos["alive"][:3].copy()
        assert alive.any() and not infos["episode_over"][:3].any()
        order.touch()
        if streams:
            envs.send(np.zeros(3, int), [0, 1, 2])
            shown, rewards, terminations, truncations, infos, _ = envs.recv(3)
        else:
            shown, rewards, terminations, truncations, infos = envs.step(np.zeros(6, int))
        assert not terminations[:3].any() and not rewards[:3].any()
        np.testing.assert_array_equal(truncations[:3], alive)
        assert infos["worker_restarted"][:3].all() and infos["episode_over"][:3].all()
        if mode is AutoresetMode.SAME_STEP:
            np.testing.assert_array_equal(infos["_final_obs"][:3], alive)
            for row in np.flatnonzero(alive):
                np.testing.assert_array_equal(infos["final_obs"][row], observations[row])
            assert infos["alive"][0]  # of the episode that has begun
            return
        assert not infos["alive"][:3].any()
        assert (infos["action_mask"][:3] == 1).all()
        np.testing.assert_array_equal(shown[:3], observations[:3])
        if mode is AutoresetMode.DISABLED:
            mask = np.arange(6) < 3
            first, infos = envs.reset(options={"reset_mask": mask})
        else:
            first, rewards, *flags, infos = envs.step(np.zeros(3, int), env_ids=[0, 1, 2])
            assert not rewards.any() and not np.any(flags)
        assert infos["alive"][0] and not infos["episode_over"][:3].any()
        assert (first[np.flatnonzero(infos["alive"][:3]), 1] == 0).all()  # their time


# ---------------------------------------------------------------------- real environments

REAL: dict[str, tuple[Any, int]] = {
    "mpe2.simple_spread_v3": ("rows", 60),
    "mpe2.simple_tag_v3": ("dict", 60),
    "mpe2.simple_speaker_listener_v4": ("dict", 60),
    "pettingzoo.butterfly.knights_archers_zombies_v11": ("rows", 60),
    "pettingzoo.butterfly.pistonball_v6": ("rows", 8),
    "pettingzoo.sisl.multiwalker_v9": ("rows", 60),
    "pettingzoo.sisl.pursuit_v5": ("rows", 8),
    "magent2.environments.battle_v4": ("rows", 8),
    "magent2.environments.adversarial_pursuit_v4": ("dict", 8),
}
# Times as many steps: AGENT_STEPS=15 takes four minutes.
FACTOR = int(os.environ.get("AGENT_STEPS", "1"))


@diagonal(module=list(REAL), backend=["sync", "async"])
def test_real_environments_equal_bare_loops(module: str, backend: Any) -> None:
    layout, steps = REAL[module]
    try:
        factory = importlib.import_module(module).parallel_env
        factory().close()
    except ImportError as error:  # which PettingZoo replaces by its own
        pytest.skip(str(error))
    kwargs = {} if backend == "sync" else {"num_workers": 2}
    with make_vec(factory, 2, agents=layout, backend=backend, **kwargs) as envs:
        left = play(envs, factory, AutoresetMode.NEXT_STEP, FACTOR * steps)
        # In these, agents die one by one, if not in the first steps.
        assert left or FACTOR == 1 or "knights" not in module


# ---------------------------------------------------------------------- make_vec


@pytest.mark.parametrize("env", [Tag, "vecspaces.testing.envs:Tag"])
def test_names_groups_and_rows(env: Any) -> None:
    with make_vec(env, 2, agents="rows", backend="sync") as envs:
        assert envs.num_envs == 6 and envs.rows_per_env == (3, 3)
        assert envs.agent_names == ["red", "green", "blue"] * 2
        assert envs.rows_of_agent("green").tolist() == [1, 4]
        assert envs.groups["blue"].tolist() == [2, 5]
        with pytest.raises(ValueError, match="expected one of red, green, blue; found 'x'"):
            envs.rows_of_agent("x")
    with make_vec(partial(Crowd, 3), 2, agents="dict", backend="sync") as envs:
        assert envs.agent_names == ["blue_0", "red_1", "blue_2"]
        assert envs.groups == {"blue": ["blue_0", "blue_2"], "red": ["red_1"]}
        with pytest.raises(ValueError, match="has no rows"):
            envs.rows_of_agent("red_1")
    with make_vec(lambda: as_env(Crowd(1)), 1, backend="sync") as envs:
        assert envs.groups == {"blue": ["blue_0"]}
        assert not hasattr(make_vec("CartPole-v1", backend="sync"), "agent_names")


class Named(Crowd):
    """Has an argument `agents` of its own."""

    def __init__(self, agents: int) -> None:
        super().__init__(agents)


def scaled(env: Any) -> Any:
    env.length = 2
    return env


def test_arguments_reach_the_parallel_environment() -> None:
    with make_vec(
        Named, 2, agents="rows", backend="sync", env_kwargs={"agents": 4}, wrappers=[scaled]
    ) as envs:
        assert envs.num_envs == 8
        assert envs.get_attr("length") == (2,) * 8
        envs.reset()
        assert [state[0] for state in envs.call("state")] == [0] * 8


class Turns:
    """Looks like PettingZoo's AEC environments."""

    possible_agents = ("a",)
    agent_selection = "a"

    def observation_space(self, agent: str) -> Any: ...


@pytest.mark.parametrize(
    ("env", "arguments", "message"),
    [
        (Tag, {}, r"agents='rows'\).*agents='dict'.*aec_to_parallel"),
        (Tag, {"agents": "columns"}, "expected 'rows', 'dict' or None; found 'columns'"),
        (Tag, {"state": True}, "state=True needs agents"),
        (Tag, {"agents": "rows", "state": True}, "needs a state_space"),
        (Turns, {"agents": "rows"}, "aec_to_parallel"),
        (object, {"agents": "dict"}, "lacks possible_agents"),
        (partial(Crowd, different=True), {"agents": "rows"}, "use agents='dict'"),
    ],
)
def test_refusals(env: Any, arguments: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make_vec(env, 2, backend="sync", **arguments)


def test_ids_of_the_registry() -> None:
    pettingzoo = pytest.importorskip("pettingzoo", "1.27")
    pettingzoo.register("parallel", "tests/Tag-v0", entry_point="vecspaces.testing.envs:Tag")
    with make_vec("tests/Tag-v0", 2, agents="rows", backend="sync") as envs:
        assert envs.reset()[0].shape == (6, 3)


@pytest.mark.parametrize("layout", ["rows", "dict"])
def test_seeds_options_and_parts_of_environments(layout: Any) -> None:
    with make_vec(Crowd, 3, agents=layout, backend="sync") as envs:
        first, _ = envs.reset(seed=[5, None, 9], options=[{"a": 1}, None, {"a": 2}])
        again, _ = envs.reset(seed=[5, 6, 9])
        alone, _ = as_env(Crowd()).reset(seed=9)
        if layout == "dict":
            assert first["blue_0"][2].tolist() == alone["blue_0"].tolist()
            return
        assert first[6].tolist() == again[6].tolist() == alone["blue_0"].tolist()
        assert envs.get_attr("options")[6] == [{"a": 2}, None]
        with pytest.raises(ValueError, match=r"expected 3 .*found 9"):
            envs.reset(seed=list(range(9)))
        with pytest.raises(
            ValueError, match=r"agents of one environment.* name environments 4, 5 too"
        ):
            envs.reset(options={"reset_mask": np.arange(9) == 3})
        with pytest.raises(
            InvalidActionError, match=r"the agents of one environment.* name environment 2 too"
        ):
            envs.step(np.zeros(2, int), env_ids=[0, 1])
        envs.recv()
        envs.send_reset([3, 4, 5, 0, 1, 2], seed=8)
        with pytest.raises(ValueError, match=r"a multiple of 3, .* found 4"):
            envs.recv(4)
        received = envs.recv(6)
        assert received.env_ids.tolist() == [3, 4, 5, 0, 1, 2]
        for place, seed in ((0, 8), (3, 9)):
            alone, _ = as_env(Crowd()).reset(seed=seed)
            assert received.observations[place].tolist() == alone["blue_0"].tolist()


# ---------------------------------------------------------------------- wrappers and adapters


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_wrappers_follow_each_agent(mode: AutoresetMode) -> None:
    """Statistics equal those that the infos give, and rows of agents that are gone show zeros."""
    arguments: Any = {"agents": "rows", "backend": "sync", "autoreset_mode": mode}
    with (
        RecordEpisodeStatistics(make_vec(Crowd, 3, **arguments)) as counted,
        NormalizeObservation(make_vec(Crowd, 3, **arguments)) as normal,
        NormalizeReward(make_vec(Crowd, 3, **arguments)) as scaled,
        FrameStackObservation(make_vec(Crowd, 3, **arguments), 2) as stacked,
    ):
        every: Any = (counted, normal, scaled, stacked)
        seen, infos = counted.reset(seed=2)
        for envs in every[1:]:
            envs.reset(seed=2)
        shown = [seen[infos["alive"]]]
        returns, lengths, alive = np.zeros(9), np.zeros(9, int), infos["alive"].copy()
        sums: list[float] = []
        for _ in range(60):
            actions = counted.action_space.sample()
            results = [envs.step(actions) for envs in every]
            seen, rewards, terminations, truncations, infos = results[0]
            returns, lengths = returns + rewards, lengths + alive
            ended = terminations | truncations
            for row in np.flatnonzero(ended):
                assert infos["episode"]["r"][row] == returns[row]
                assert infos["episode"]["l"][row] == lengths[row]
                sums.append(returns[row])
            returns[ended], lengths[ended] = 0, 0
            if mode is AutoresetMode.SAME_STEP:
                shown += [one[None] for one in infos["final_obs"][ended]] if ended.any() else []
                visible = infos["alive"]
            else:
                visible = infos["alive"] | ended
            shown.append(seen[visible])
            assert not results[1][0][~visible].any()
            begun, alive = infos["alive"] & ~alive, infos["alive"].copy()
            np.testing.assert_array_equal(results[3][0][visible, -1], seen[visible])
            # The frame before an agent's first one is padding, which repeats it.
            np.testing.assert_array_equal(results[3][0][begun, 0], seen[begun])
        assert counted.episode_count == len(sums) > 20
        rows = np.concatenate(shown)
        np.testing.assert_allclose(normal.obs_rms.mean, rows.mean(axis=0), rtol=1e-3, atol=1e-3)
        assert round(normal.obs_rms.count) == len(rows)


def test_evaluate_plays_the_dict_layout() -> None:
    def stay(observations: Any) -> Any:
        return {agent: np.zeros(len(rows), int) for agent, rows in observations.items()}

    arguments: Any = {"episodes": 6, "seed": 1, "num_envs": 3, "backend": "sync"}
    result = evaluate(stay, Crowd, agents="dict", **arguments)
    each = sum(result.infos[f"return/{agent}"] for agent in Crowd().possible_agents)
    np.testing.assert_allclose(result.returns, each)
    for wrong, message in (
        (lambda: evaluate(stay, Crowd, agents="rows", **arguments), "expected 'dict'"),  # type: ignore[arg-type]
        (
            lambda: evaluate(stay, lambda: as_vector_env(Crowd()), **arguments),
            "single environments",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


class Breach(Tag):
    """Breaks PettingZoo's contract in one way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def observation_space(self, agent: str) -> Any:
        if self.how == "agent-space" and self.agents:  # it was reset
            return Crowd().observation_space("blue_0")
        return super().observation_space(agent)

    def step(self, actions: dict[str, Any]) -> Any:
        observations, rewards, *rest = super().step(actions)
        if self.how == "agent-missing":
            observations.pop("red", None)
        if self.how == "agent-unknown":
            rewards["white"] = 1.0
        if self.how == "agent-flag":
            self.agents = list(self.possible_agents)
        return observations, rewards, *rest


@diagonal(
    how=["", "agent-missing", "agent-unknown", "agent-flag", "agent-space"], layout=["rows", "dict"]
)
def test_check_env_names_breaches_of_the_contract(how: str, layout: Any, in_process: None) -> None:
    report = check_env(partial(Breach, how), agents=layout, num_steps=40)
    assert [one.name for one in report.findings] == ([how] if how else [])


def test_stable_baselines3() -> None:
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("mpe2")
    from vecspaces.adapters.stable_baselines3 import as_vec_env

    arguments: Any = {"agents": "rows", "backend": "sync"}
    spread = "mpe2.simple_spread_v3:parallel_env"
    for mode in AutoresetMode:
        vec_env = as_vec_env(make_vec(spread, 2, autoreset_mode=mode, **arguments))
        vec_env.seed(3)
        observations = vec_env.reset()
        with make_vec(spread, 2, **arguments) as envs:
            np.testing.assert_array_equal(observations, envs.reset(seed=3)[0])
        for _ in range(60):
            _, _, dones, infos = vec_env.step([0] * 6)
            assert all("terminal_observation" in info for info in np.array(infos)[dones])
        vec_env.close()
        vec_env = as_vec_env(make_vec(Crowd, 2, autoreset_mode=mode, **arguments))
        with pytest.raises(ValueError, match=r"no mask for rows.*dead_rows='keep'"):
            for _ in range(vec_env.reset().shape[0] * 9):
                vec_env.step([0] * 6)
        vec_env.close()
        kept = as_vec_env(make_vec(Crowd, 2, autoreset_mode=mode, **arguments), dead_rows="keep")
        kept.reset()
        assert sum(kept.step([0] * 6)[2].sum() for _ in range(30)) > 6
        kept.close()


class LateAgent(Tag):
    """From the second episode on, one agent comes a step late."""

    episodes = 0

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        observations, infos = super().reset()
        self.episodes += 1
        if self.episodes > 1:
            self.agents.remove("blue")
            del observations["blue"], infos["blue"]
        return observations, infos

    def step(self, actions: dict[str, Any]) -> Any:
        observations, *rest, infos = super().step(actions)
        if self.agents and "blue" not in self.agents and "blue" not in actions:
            self.agents.append("blue")
            observations["blue"], infos["blue"] = self._observe(), {}
        return observations, *rest, infos


@pytest.mark.parametrize("mode", MODES)
def test_stable_baselines3_refuses_agents_that_come_late(mode: AutoresetMode) -> None:
    pytest.importorskip("stable_baselines3")
    from vecspaces.adapters.stable_baselines3 import as_vec_env

    envs = make_vec(LateAgent, 2, agents="rows", autoreset_mode=mode, backend="sync")
    vec_env = as_vec_env(envs)
    vec_env.reset()
    for _ in range(2):
        vec_env.step([2] * 6)
    with pytest.raises(ValueError, match="row 2, agent 'blue', is gone"):
        vec_env.step([2] * 6)  # ends the episodes of all, and begins the next ones
    vec_env.close()


def test_as_gymnasium() -> None:
    from vecspaces.adapters.gymnasium import as_gymnasium

    with as_gymnasium(make_vec(Tag, 2, agents="rows", backend="sync")) as envs:
        assert envs.agent_names[:3] == ["red", "green", "blue"]
        assert envs.reset(seed=1)[0].shape == (6, 3)
        assert envs.step(envs.action_space.sample())[4]["alive"].all()


def test_frames_are_those_of_the_environment() -> None:
    with make_vec(Crowd, 2, agents="rows", backend="sync") as envs:
        envs.reset()
        envs.step(np.zeros(6, int))
        assert [frame[0, 0, 0] for frame in envs.render()] == [1] * 6


class Odd(Crowd):
    """All agents die in the first step."""

    def _living(self) -> list[str]:
        return [] if self.time else list(self.possible_agents)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed, options)
        return self._observe(self.agents), {}


@pytest.mark.parametrize("mode", MODES)
def test_all_die_in_the_first_step(mode: AutoresetMode) -> None:
    with make_vec(partial(Odd, length=1), 2, agents="rows", backend="sync",
                  autoreset_mode=mode) as envs:  # fmt: skip
        _, infos = envs.reset(seed=1)
        for _ in range(3):
            assert infos["alive"].all()
            _, rewards, terminations, truncations, infos = envs.step(np.zeros(6, int))
            assert (terminations | truncations).all() and infos["episode_over"].all()
            if mode is AutoresetMode.DISABLED:
                _, infos = envs.reset(options={"reset_mask": terminations | truncations})
            elif mode is AutoresetMode.NEXT_STEP:
                assert not infos["alive"].any()
                _, rewards, terminations, truncations, infos = envs.step(np.zeros(6, int))
                assert not (terminations | truncations).any() and not rewards.any()
