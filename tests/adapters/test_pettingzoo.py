"""Parallel environments as rows and as Dicts: arguments, rules, wrappers, other libraries."""

from __future__ import annotations

import importlib
import os
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.adapters.bare_loops import play
from tests.crosses import diagonal, ordinarily
from tests.envs import Tag
from tests.envs.agents import Changed, Crowd, Steady, give
from vecspaces import evaluate, make_vec, spaces
from vecspaces.adapters.pettingzoo import as_env, as_vector_env
from vecspaces.errors import InvalidActionError, InvalidInfoError, ResetNeededError
from vecspaces.testing import check_env
from vecspaces.vector import AutoresetMode
from vecspaces.vector.utils import iterate
from vecspaces.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics

MODES = list(AutoresetMode)
LAYOUTS: Any = ["rows", "dict"]
SYNC: Any = {"backend": "sync"}

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


@pytest.mark.parametrize(
    ("module", "backend"),
    ordinarily(
        lambda module, backend: (
            (module.split(".")[-1], backend)
            in (
                ("simple_spread_v3", "sync"),
                ("simple_tag_v3", "async"),
                ("knights_archers_zombies_v11", "sync"),
            )
        ),
        product(REAL, ["sync", "async"]),
    ),
)
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


@pytest.mark.parametrize("env", [Tag, "tests.envs:Tag"])
def test_names_groups_and_rows(env: Any) -> None:
    with make_vec(env, 2, agents="rows", **SYNC) as envs:
        assert envs.num_envs == 6 and envs.rows_per_env == (3, 3)
        assert envs.agent_names == ["red", "green", "blue"] * 2
        assert envs.groups["blue"].tolist() == [2, 5]
    crowd = Crowd(4)
    crowd.possible_agents = ["a_0", "b-1", "a_12", "7"]
    with make_vec(lambda: crowd, agents="dict", **SYNC) as envs:
        assert envs.agent_names == ["a_0", "b-1", "a_12", "7"]
        assert envs.groups == {"a": ["a_0", "a_12"], "b": ["b-1"], "7": ["7"]}
    with make_vec(lambda: as_env(Crowd(1)), 1, **SYNC) as envs:
        assert envs.get_attr("groups") == (as_env(Crowd(1)).groups,) == ({"blue": ["blue_0"]},)
        assert not hasattr(make_vec("CartPole-v1", **SYNC), "agent_names")


class Numbered(Tag):
    """Agents that are numbers."""

    possible_agents: Any = (0, 1, 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_agents_need_not_be_strings(layout: Any) -> None:
    with make_vec(Numbered, 2, agents=layout, **SYNC) as envs:
        envs.reset(seed=1)
        assert envs.agent_names[:3] == ["0", "1", "2"]
        ends = {agent: np.full(2, 2) for agent in "012"}
        for _ in range(3):
            *_, terminations, _, _ = envs.step(ends if layout == "dict" else np.full(6, 2))
        assert terminations.all()


class Named(Crowd):
    """Has an argument `agents` of its own."""

    def __init__(self, agents: int) -> None:
        super().__init__(agents)


def scaled(env: Any) -> Any:
    env.length = 2
    return env


def test_arguments_and_frames() -> None:
    with make_vec(
        Named, 2, agents="rows", env_kwargs={"agents": 4}, wrappers=[scaled], **SYNC
    ) as envs:
        assert envs.num_envs == 8
        assert envs.get_attr("length") == (2,) * 8
        envs.reset()
        assert [state[0] for state in envs.call("state")] == [0] * 8
        envs.step(np.zeros(8, int))
        assert [frame[0, 0, 0] for frame in envs.render()] == [1] * 8


def test_ids_of_the_registry() -> None:
    pettingzoo = pytest.importorskip("pettingzoo", "1.27")
    pettingzoo.register("parallel", "tests/Tag-v0", entry_point="tests.envs:Tag")
    with make_vec("tests/Tag-v0", 2, agents="rows", **SYNC) as envs:
        assert envs.reset()[0].shape == (6, 3)


def test_spaces_that_differ_are_for_dicts() -> None:
    # tests/golden/messages.txt has other refusals.
    with pytest.raises(ValueError, match="use agents='dict'"):
        make_vec(partial(Crowd, different=True), 2, agents="rows", **SYNC)


def test_environments_whose_agents_take_turns() -> None:
    spread: Any = pytest.importorskip("mpe2.simple_spread_v3")
    for layout in LAYOUTS:
        with pytest.raises(TypeError, match="aec_to_parallel"):
            make_vec(spread.env, 1, agents=layout, **SYNC)
    with pytest.raises(TypeError, match=r"agents='rows'.*agents='dict'.*aec_to_parallel"):
        make_vec(spread.env, 1, **SYNC)
    utils: Any = pytest.importorskip("pettingzoo.utils")
    with make_vec(lambda: utils.aec_to_parallel(spread.env()), 2, agents="rows", **SYNC) as envs:
        assert envs.reset(seed=1)[0].shape == (6, 18)
        for _ in range(30):
            *_, infos = envs.step(envs.action_space.sample())
        assert infos["alive"].all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_seeds_options_and_attributes(layout: Any) -> None:
    with make_vec(Crowd, 3, agents=layout, **SYNC) as envs:
        width = 3 if layout == "rows" else 1
        observations, _ = envs.reset(seed=[5, None, 9], options=[{"a": 1}, None, {"a": 2}])
        first = observations[::3] if layout == "rows" else observations["blue_0"]
        for n, seed in ((0, 5), (2, 9)):
            alone, _ = as_env(Crowd()).reset(seed=seed)
            np.testing.assert_array_equal(first[n], alone["blue_0"])
        options = [row[-1] for row in envs.get_attr("options")]
        assert options == [{"a": 1}] * width + [None] * width + [{"a": 2}] * width
        envs.reset(seed=4, options={"b": 3})
        assert [row[-1] for row in envs.get_attr("options")] == [{"b": 3}] * 3 * width
        lengths = tuple(np.repeat([4, 5, 6], width))
        envs.set_attr("length", list(lengths))
        assert envs.get_attr("length") == lengths
        assert envs.call(lambda env: env.parallel_env.length)[-1] == 6
        assert [time for time, _ in envs.call("state")] == [0] * 3 * width


def test_parts_of_environments() -> None:
    with make_vec(Crowd, 3, agents="rows", **SYNC) as envs:
        envs.reset()
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
        envs.send_reset([5, 0, 3, 1, 4, 2], seed=[8, 7])  # by the environments' first rows
        with pytest.raises(ValueError, match=r"a multiple of 3, .* found 4"):
            envs.recv(4)
        received = envs.recv(6)
        for row, seed in ((3, 8), (0, 7)):
            alone, _ = as_env(Crowd()).reset(seed=seed)
            (place,) = np.flatnonzero(received.env_ids == row)
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
    ):
        every: Any = (counted, normal, scaled)
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
                shown += [obs[None] for obs in infos["final_obs"][ended]] if ended.any() else []
                visible = infos["alive"]
            else:
                visible = infos["alive"] | ended
            shown.append(seen[visible])
            assert not results[1][0][~visible].any()
            alive = infos["alive"].copy()
        assert counted.episode_count == len(sums) > 20
        rows = np.concatenate(shown)
        np.testing.assert_allclose(normal.obs_rms.mean, rows.mean(axis=0), rtol=1e-3, atol=1e-3)
        assert round(normal.obs_rms.count) == len(rows)


def stay(observations: Any) -> Any:
    return {agent: np.zeros(len(rows), int) for agent, rows in observations.items()}


def test_episodes_of_dicts_are_those_of_whole_environments() -> None:
    with RecordEpisodeStatistics(make_vec(Crowd, 2, agents="dict", **SYNC)) as envs:
        envs.reset(seed=2)
        pairs = []
        for _ in range(30):
            *_, infos = envs.step(envs.action_space.sample())
            for n in np.flatnonzero(infos.get("_episode", ())):
                total = sum(infos[f"return/{agent}"][n] for agent in envs.agent_names)
                pairs.append((infos["episode"]["r"][n], total))
        assert len(pairs) > 4
        np.testing.assert_allclose(*zip(*pairs, strict=True))
    arguments: Any = {"episodes": 8, "seed": 4}
    assert evaluate("random", Crowd, agents="dict", **SYNC, **arguments).episodes == 8
    alone = evaluate(stay, Crowd, agents="dict", num_envs=3, **SYNC, **arguments)
    others = evaluate(stay, Crowd, agents="dict", num_workers=2, num_envs=4, **arguments)
    returns = [alone.infos[f"return/{agent}"] for agent in Crowd().possible_agents]
    np.testing.assert_allclose(alone.returns, sum(returns))
    assert alone.returns.tolist() == others.returns.tolist()
    for agent, total in zip(Crowd().possible_agents, returns, strict=True):
        np.testing.assert_array_equal(others.infos[f"return/{agent}"], total)
    with pytest.raises(ValueError, match="single environments"):
        evaluate(stay, lambda: as_vector_env(Crowd()), **SYNC, **arguments)


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
        kept.set_options([{"a": 1}] * 3 + [{"a": 2}] * 3)  # of the first agents
        kept.reset()
        assert [row[-1]["a"] for row in kept.get_attr("options")] == [1, 1, 1, 2, 2, 2]
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


# ---------------------------------------------------------------------- breaches of the rules


def miss(env: Any, result: Any) -> Any:
    result[0].pop("blue_0", None)
    return result


def add(env: Any, result: Any) -> Any:
    result[1]["white"] = 1.0
    return result


def widen(env: Any, result: Any) -> Any:
    env.observation_space = lambda agent: spaces.Box(-9, 9, (9,))
    return result


def vanish(env: Any, result: Any) -> Any:
    env.agents = env.agents[:1]
    return result


def leave(env: Any, result: Any) -> Any:
    env.agents = []
    return result


#: The change of steps or resets, the error, and the finding of `check_env`.
BREACHES: list[tuple[dict[str, Any], str, str | None]] = [
    ({"step": miss}, "agent 'blue_0' of crowd has no observations", "agent-missing"),
    (
        {"step": add},
        "agent 'white' of crowd has rewards, and is not among possible_agents",
        "agent-unknown",
    ),
    *(
        (
            {"make": Steady, "step": partial(give, part, True)},  # else a plain step
            "agent 'blue_0' of crowd has a flag, and is among agents still",
            "agent-flag",
        )
        for part in (2, 3)
    ),
    ({"reset": widen}, "has another observation space than before", "agent-space"),
    ({"step": vanish}, "left without a flag: an agent leaves agents in the step", None),
    ({"reset": leave}, "has no agents after reset", None),
    (
        {"step": lambda env, result: result[:4]},
        "must return observations, rewards, terminations, truncations and infos",
        None,
    ),
    *(
        ({"step": partial(give, part, value)}, message, None)
        for part, value, message in [
            (0, None, "blue_0.*expected float64 array of shape"),
            (0, np.zeros(2), r"blue_0.*expected float64 array of shape \(4,\), found"),
            (1, None, "agent 'blue_0' of crowd has the reward None: expected a number"),
            (4, None, "agent 'blue_0' of crowd has the info None: expected a dict"),
            (4, {"action_mask": [1, 0.5, 1]}, "agent 'blue_0' of crowd has the action_mask"),
            (4, {"action_mask": np.full(3, 256)}, "action_mask int64.*expected zeros and ones"),
            (4, {"action_mask": np.ones(5)}, r"action_mask.*expected int8 array of shape \(3,\)"),
        ]
    ),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("changes", "message"), [row[:2] for row in BREACHES])
def test_a_breach_is_an_error_that_names_the_agent(changes: Any, message: str, layout: Any) -> None:
    """And again after a reset, which builds the environment anew."""
    with make_vec(
        [Crowd, partial(Changed, **{"make": Crowd, **changes})], agents=layout, **SYNC
    ) as envs:
        for _ in range(2):
            with pytest.raises((TypeError, ValueError, InvalidInfoError), match=message):
                envs.reset(seed=1)
                for _ in range(6):
                    envs.step(envs.action_space.sample())


@diagonal(breach=[({}, "", None), *(row for row in BREACHES if row[2])], layout=LAYOUTS)
def test_check_env_names_breaches_of_the_contract(
    breach: Any, layout: Any, in_process: None
) -> None:
    changes, _, finding = breach
    report = check_env(partial(Changed, **{"make": Crowd, **changes}), agents=layout, num_steps=40)
    names = [entry.name for entry in report.findings if entry.severity == "error"]
    assert names == ([finding] if finding else [])


# ---------------------------------------------------------------------- agents that are gone


class Even(spaces.Space[int]):
    """A space of ours, whose values have no array."""

    def sample(self, mask: Any = None, probability: Any = None) -> int:
        return 2 * int(self.np_random.integers(9)) + 2

    def contains(self, x: Any) -> bool:
        return isinstance(x, int) and x > 0 and x % 2 == 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Even)


class Off(Tag):
    """Observes one value of a space, which need not hold zeros."""

    def __init__(self, space: Any, value: Any) -> None:
        self.space, self.value = space, value

    def observation_space(self, agent: str) -> Any:
        return self.space

    def _observe(self) -> Any:
        return self.value


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("space", "value", "absent"),
    [
        (spaces.Box(-5, 5, (2,)), np.full(2, -3, np.float32), np.zeros(2)),
        (spaces.Box(1, 5, (2,)), np.full(2, 4, np.float32), None),
        (spaces.Tuple([spaces.Discrete(2, start=1)]), (np.int64(2),), None),
        (spaces.OneOf([spaces.Box(1, 2, (1,))]), (0, np.full(1, 2, np.float32)), None),
        (spaces.Text(3, min_length=2), "abc", None),
        (Even(), 4, None),
    ],
)
def test_agents_that_are_gone_show_a_value_of_their_space(
    space: Any, value: Any, absent: Any, layout: Any
) -> None:
    """Those are zeros, or a constant value; the space is checked of all rows."""
    factory = partial(Off, space, value)
    with make_vec(factory, 2, agents=layout, validate=True, **SYNC) as envs:
        actions: Any = np.array([2, 1, 1, 2, 1, 1])
        if layout == "dict":
            actions = {"red": np.full(2, 2), "green": np.ones(2, int), "blue": np.ones(2, int)}
        envs.reset()
        for _ in range(4):
            observations = envs.step(actions)[0]
        gone, there, *_ = iterate(envs.observation_space, observations)
        if layout == "dict":
            gone, there = gone["red"], gone["blue"]
        np.testing.assert_equal(there, value)
        assert space.contains(gone)
        if absent is not None:
            np.testing.assert_equal(gone, absent)


def test_observations_of_absent_agents_belong_to_the_caller() -> None:
    env = as_env(Tag())
    env.reset()
    for _ in range(5):
        observation = env.step({"red": 2, "green": 1, "blue": 1})[0]
    assert not observation["red"].any()
    observation["red"] += 1
    assert not env.step({"red": 2, "green": 1, "blue": 1})[0]["red"].any()
    for _ in range(3):
        result = env.step(dict.fromkeys(env.agent_names, 2))
    assert result[2]
    with pytest.raises(ResetNeededError, match="after the end of the episode"):
        env.step(dict.fromkeys(env.agent_names, 2))
