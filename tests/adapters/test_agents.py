"""Parallel environments in every part of a vector env: both layouts, beside bare loops."""

from __future__ import annotations

import copy
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.adapters.bare_loops import check_rows, loop, play, row
from tests.adapters.test_pettingzoo import Breach, Doomed
from tests.crosses import diagonal
from tests.envs.agents import Crowd, Steady
from vecspaces import evaluate, make_vec, sample_actions, spaces
from vecspaces.adapters.pettingzoo import as_env, as_vector_env
from vecspaces.env import Env
from vecspaces.errors import (
    InvalidActionError,
    InvalidInfoError,
    InvalidObservationError,
    InvalidRewardError,
    ResetNeededError,
)
from vecspaces.testing.envs import Tag
from vecspaces.vector import AutoresetMode, SyncVectorEnv
from vecspaces.vector.utils import iterate
from vecspaces.wrappers import NormalizeObservation, RecordEpisodeStatistics

NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
MODES = [NEXT, SAME, DISABLED]
BACKENDS = [{"backend": "sync"}, {"num_workers": 2}]


@diagonal(backend=BACKENDS, mode=MODES, masks=["", "infos", "observations"])
def test_dicts_equal_a_bare_loop(backend: Any, mode: AutoresetMode, masks: str) -> None:
    make = partial(Crowd, masks=masks, different=not masks)
    arguments: Any = {"agents": "dict", "state": True, "autoreset_mode": mode, **backend}
    with make_vec(make, 3, **arguments) as envs:
        play(envs, make, mode)


@pytest.mark.parametrize("count", [1, 2])
def test_dicts_of_few_agents(count: int) -> None:
    with make_vec(partial(Crowd, count), 2, agents="dict", state=True, backend="sync") as envs:
        play(envs, partial(Crowd, count), NEXT)


# ---------------------------------------------------------------------- steps without an end


@diagonal(
    arguments=[
        {},
        {"copy": False},
        {"buffers": 4},
        {"validate": True},
        {"num_workers": 2},
        {"stats": True},
    ],
    mode=MODES,
)
def test_plain_steps_equal_a_bare_loop(mode: AutoresetMode, arguments: Any) -> None:
    """Some environments take plain steps while agents of others end."""
    given = arguments if "num_workers" in arguments else {"backend": "sync", **arguments}
    with make_vec(Steady, 4, agents="rows", autoreset_mode=mode, **given) as envs:
        play(envs, Steady, mode)
        play(envs, Steady, mode, steps=9)


@pytest.mark.parametrize(
    "info_space",
    [
        spaces.Dict(other=spaces.Box(0, 1, (2,))),
        spaces.Dict(age=spaces.Box(0, 9, (), np.int64), alive=spaces.MultiBinary(())),
    ],
)
@pytest.mark.parametrize("kind", [Crowd, Steady])
def test_an_info_space_of_the_callers(kind: Any, info_space: Any) -> None:
    with make_vec(kind, 3, agents="rows", backend="sync", info_space=info_space) as envs:
        play(envs, kind, NEXT)


def test_a_copy_goes_on_by_itself() -> None:
    with make_vec(Steady, 2, agents="rows", backend="sync") as envs:
        envs.reset(seed=1)
        envs.step(np.zeros(6, int))
        with copy.deepcopy(envs) as other:
            for turn in range(9):
                one, two = (each.step(np.full(6, turn % 3)) for each in (envs, other))
                np.testing.assert_equal(one, two)


class Faulty(Steady):
    """Returns something wrong in its third step, or raises."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        if self.time == 3:
            if self.how == "raises":
                raise RuntimeError("a fault")
            if self.how == "observation":
                observations["red_1"] = np.zeros(2)
            if self.how == "reward":
                rewards["red_1"] = "much"
        return observations, rewards, *rest


@pytest.mark.parametrize(
    ("how", "kind", "where"),
    [
        ("raises", RuntimeError, "a fault"),
        ("observation", InvalidObservationError, "environment 4 "),
        ("reward", (InvalidRewardError, ValueError), "much"),
    ],
)
def test_a_fault_in_a_plain_step(how: str, kind: Any, where: str) -> None:
    """The error names the row, and the next reset begins anew: no result is left over."""
    with make_vec([Steady, partial(Faulty, how)], agents="rows", backend="sync") as envs:
        for _ in range(2):
            envs.reset(seed=1)
            with pytest.raises(kind, match=where):
                for _ in range(4):
                    envs.step(np.zeros(6, int))
        observations, infos = envs.reset(seed=1)
        assert infos["alive"].all()
        observations = envs.step(np.full(6, 2))[0]
        assert observations[:, 1].tolist() == [1] * 6  # the time
        assert observations[:, 2].tolist() == [2] * 6  # the last action


# ---------------------------------------------------------------------- streams and parts


def follow(mode: AutoresetMode, turns: Iterator[Any]) -> None:
    """Step whole environments in any order, and compare each with its bare loop."""
    crowds, chosen = [Steady() for _ in range(3)], dict[int, Any]()

    def actions(n: int) -> Iterator[Any]:
        while True:
            yield chosen[n]

    loops = [loop(crowd, 5 + n, mode, actions(n)) for n, crowd in enumerate(crowds)]
    for each in loops:
        next(each)
    for env_ids, given, result in turns:
        for place in range(0, len(env_ids), 3):
            n = int(env_ids[place]) // 3
            assert env_ids[place : place + 3].tolist() == [3 * n, 3 * n + 1, 3 * n + 2]
            chosen[n] = given[place : place + 3]
            check_rows(crowds[n], next(loops[n]), place // 3, result)


@pytest.mark.parametrize("mode", [NEXT, SAME])
@pytest.mark.parametrize("backend", BACKENDS)
def test_environments_of_a_stream_equal_bare_loops(backend: Any, mode: AutoresetMode) -> None:
    def turns(envs: Any) -> Iterator[Any]:
        rng = np.random.default_rng(2)
        envs.reset(seed=5)
        waiting = {}
        envs.recv()
        for n in range(3):
            waiting[n] = rng.integers(3, size=3)
            envs.send(waiting[n], np.arange(3) + 3 * n)
        for _ in range(40):
            *result, env_ids = envs.recv(3)
            n = env_ids[0] // 3
            yield env_ids, waiting[n], result
            waiting[n] = rng.integers(3, size=3)
            envs.send(waiting[n], env_ids)

    with make_vec(Steady, 3, agents="rows", autoreset_mode=mode, **backend) as envs:
        follow(mode, turns(envs))


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_steps_of_some_environments_equal_bare_loops(mode: AutoresetMode) -> None:
    def turns(envs: Any) -> Iterator[Any]:
        rng = np.random.default_rng(2)
        envs.reset(seed=5)
        for turn in range(40):
            chosen = rng.permutation(3)[: 1 + turn % 3]
            env_ids = np.concatenate([np.arange(3) + 3 * n for n in chosen])
            actions = rng.integers(3, size=len(env_ids))
            if len(chosen) == 3:  # plain steps of all lie between those of some
                env_ids = np.arange(9)
                yield env_ids, actions, envs.step(actions)
            else:
                yield env_ids, actions, envs.step(actions, env_ids=env_ids)

    with make_vec(Steady, 3, agents="rows", autoreset_mode=mode, backend="sync") as envs:
        follow(mode, turns(envs))


def test_disabled_refuses_steps_after_the_end_and_parts_of_an_environment() -> None:
    with make_vec(Steady, 2, agents="rows", autoreset_mode=DISABLED, backend="sync") as envs:
        _, infos = envs.reset(seed=3)
        while not infos["episode_over"].any():
            *_, infos = envs.step(np.zeros(6, int))
        over = infos["episode_over"]
        with pytest.raises(ResetNeededError, match=r"autoreset is DISABLED: reset.*episode_over"):
            envs.step(np.zeros(6, int))
        some = over.copy()
        some[int(over.argmax())] = False
        with pytest.raises(ValueError, match=f"name environment {int(over.argmax())} too"):
            envs.reset(options={"reset_mask": some})
        _, infos = envs.reset(options={"reset_mask": over})
        assert not infos["episode_over"].any() and infos["alive"][over].all()
        envs.step(np.zeros(6, int))
    with as_vector_env(Steady(length=3), autoreset_mode="Disabled") as env:
        env.reset(seed=1)
        with pytest.raises(ResetNeededError, match="the episode is over"):
            for _ in range(9):
                env.step(np.zeros(3, int))
        with pytest.raises(ValueError, match="name environments 1, 2 too"):
            env.reset(options={"reset_mask": np.array([True, False, False])})
        with pytest.raises(ValueError, match="reset_mask"):
            env.reset(options={"reset_mask": np.zeros(3, bool)})
        one, _ = env.reset(seed=[4], options=[{"a": 1}])
        assert env.parallel_env.options[-1] == {"a": 1}
        alone, _ = as_env(Steady(length=3)).reset(seed=4)
        np.testing.assert_array_equal(one[0], alone["blue_0"])
    with as_vector_env(Tag()) as env, pytest.raises(ResetNeededError, match="first reset"):
        env.step(np.zeros(3, int))


# ---------------------------------------------------------------------- members, seeds, options


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_partial_reset_shows_who_is_alive_elsewhere(backend: Any) -> None:
    """A program that reads `alive` and masks from the last infos finds those of all rows."""
    make = partial(Crowd, masks="infos")
    with make_vec(make, 4, agents="rows", autoreset_mode=DISABLED, state=True, **backend) as envs:
        _, infos = envs.reset(seed=3)
        compared = 0
        for _ in range(30):
            *_, infos = envs.step(envs.action_space.sample())
            over = infos["episode_over"].copy()
            if over.any():
                _, first = envs.reset(options={"reset_mask": over})
                for key in ("alive", "episode_over", "action_mask", "state"):
                    np.testing.assert_array_equal(first[key][~over], infos[key][~over])
                    assert first[f"_{key}"].all()
                compared += int(infos["alive"][~over].sum())
                assert first["alive"].reshape(4, 3).any(axis=1).all()
        assert compared > 9


class Lone(Env[Any, Any]):
    """One agent, with the spaces of a row of Crowd."""

    observation_space, action_space = Crowd().observation_space(""), spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.array([seed or 0.0, 0, 0, 0]), {}

    def step(self, action: Any) -> Any:
        return np.full(4, float(action)), 1.0, False, False, {}


class Alone(Lone):
    """The same with the spaces of a row of Tag; episodes have two steps."""

    observation_space = Tag().observation_space("")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.ones(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.full(3, 2, np.float32), 1.0, self.time == 2, False, {}


def test_members_have_consecutive_seeds() -> None:
    """The k-th environment gets seed + k, whatever lies beside it, and however deeply."""
    members = [lambda: as_vector_env(Crowd()), Lone, lambda: as_vector_env(Crowd())]
    inner = partial(make_vec, Crowd, 2, agents="rows", backend="sync")
    declared = as_vector_env(Crowd()).info_space
    with SyncVectorEnv([*members, inner], info_space=declared) as envs:
        assert envs.rows_per_env == (3, 1, 3, 3, 3)
        assert envs.agent_names[:4] == ["blue_0", "red_1", "blue_2", ""]
        observations, infos = envs.reset(seed=10)
        for low, seed in ((0, 10), (4, 12), (7, 13), (10, 14)):
            alone, _ = as_env(Crowd()).reset(seed=seed)
            np.testing.assert_array_equal(observations[low], alone["blue_0"])
        assert observations[3, 0] == 11
        assert not infos["_alive"][3] and infos["_alive"][[0, 4, 7, 10]].all()
        for _ in range(20):
            observations, rewards, *_, infos = envs.step(np.full(13, 2))
            assert rewards[3] == 1 and (observations[3] == 2).all()
        mask = np.arange(13) == 3
        assert envs.reset(options={"reset_mask": mask})[0][3, 0] == 0
        with pytest.raises(ValueError, match="name environments 7, 9 too"):
            envs.reset(options={"reset_mask": np.arange(13) == 8})


def test_seeds_and_options_of_dicts() -> None:
    with make_vec(Crowd, 3, agents="dict", backend="sync") as envs:
        first, _ = envs.reset(seed=[5, None, 9], options=[{"a": 1}, None, {"a": 2}])
        assert [one[-1] for one in envs.get_attr("options")] == [{"a": 1}, None, {"a": 2}]
        for n, seed in ((0, 5), (2, 9)):
            alone, _ = as_env(Crowd()).reset(seed=seed)
            np.testing.assert_array_equal(first["blue_0"][n], alone["blue_0"])
        envs.set_attr("length", [4, 5, 6])
        assert envs.get_attr("length") == (4, 5, 6)
        assert envs.call(lambda env: env.parallel_env.length) == (4, 5, 6)
        assert [time for time, _ in envs.call("state")] == [0] * 3
        envs.reset(seed=4, options={"b": 3})
        assert [one[-1] for one in envs.get_attr("options")] == [{"b": 3}] * 3


# ---------------------------------------------------------------------- rollouts, restarts


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rollout_holds_rows_masks_and_state(backend: Any) -> None:
    make = partial(Crowd, masks="infos")
    with make_vec(make, 2, agents="rows", state=True, buffers=6, copy=False, **backend) as envs:
        observations, infos = envs.reset(seed=1)
        keys = ("alive", "episode_over", "action_mask", "state")
        for _ in range(3):
            shown = [observations.copy()]
            held = [{key: infos[key].copy() for key in keys}]
            taken = []
            for turn in range(5):
                observations, rewards, *flags, infos = envs.step(np.full(6, turn % 3))
                shown.append(observations.copy())
                taken.append((rewards, *flags))
                held.append({key: infos[key].copy() for key in keys})
            rollout = envs.rollout_view()
            np.testing.assert_array_equal(rollout.observations, shown)
            for name, own in zip(("rewards", "terminations", "truncations"),
                                 zip(*taken, strict=True), strict=True):  # fmt: skip
                np.testing.assert_array_equal(getattr(rollout, name), own)
            for key in keys:
                np.testing.assert_array_equal(rollout.infos[key], [one[key] for one in held])


def test_a_rollout_of_plain_steps() -> None:
    """The first slot of a rollout is the last one of the former: it may hold other infos."""
    with make_vec(Steady, 2, agents="rows", buffers=4, backend="sync") as envs:
        _, infos = envs.reset(seed=1)
        held = [infos["alive"]]
        for _ in range(8):
            for _ in range(3):
                held.append(envs.step(np.zeros(6, int))[4]["alive"])
            rollout = envs.rollout_view()
            np.testing.assert_array_equal(rollout.infos["alive"], held[-4:])


@pytest.mark.parametrize("mode", MODES)
def test_a_restart_of_dicts_while_some_are_dead(tmp_path: Path, mode: AutoresetMode) -> None:
    order = tmp_path / "die"
    with make_vec(
        [partial(Doomed, order), partial(Crowd, masks="infos")], agents="dict",
        autoreset_mode=mode, num_workers=2, on_worker_death="restart",
    ) as envs:  # fmt: skip
        nothing = {agent: np.zeros(2, int) for agent in envs.agent_names}
        observations, infos = envs.reset(seed=4)
        while all(alive[0] for alive in infos["agents"]["alive"].values()):
            observations, *_, infos = envs.step(nothing)
        order.touch()
        shown, rewards, terminations, truncations, infos = envs.step(nothing)
        assert (rewards[0], terminations[0], truncations[0]) == (0, False, True)
        assert infos["worker_restarted"][0] and not infos["_worker_restarted"][1]
        by_agent = infos["final_info" if mode is SAME else "agents"]
        by_agent = by_agent["agents"] if mode is SAME else by_agent
        for agent in envs.agent_names:
            assert by_agent["truncations"][agent][0] and not by_agent["terminations"][agent][0]
            assert not by_agent["alive"][agent][0] and by_agent["rewards"][agent][0] == 0
            assert by_agent["action_mask"][agent][0].tolist() == [1, 1, 1]
        if mode is SAME:
            np.testing.assert_equal(infos["final_obs"][0], row(observations, 0))
            return
        np.testing.assert_equal(row(shown, 0), row(observations, 0))
        if mode is DISABLED:
            shown, infos = envs.reset(options={"reset_mask": np.array([True, False])})
        else:
            shown, *_, infos = envs.step(nothing)
        assert infos["agents"]["alive"]["blue_0"][0] and shown["blue_0"][0, 1] == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_restart_of_all_dicts_reports_agents(tmp_path: Path, mode: AutoresetMode) -> None:
    """As the programs for other libraries read them in each step."""
    order = tmp_path / "die"
    with make_vec(partial(Doomed, order), 1, agents="dict", autoreset_mode=mode,
                  on_worker_death="restart") as envs:  # fmt: skip
        envs.reset(seed=4)
        order.touch()
        *_, truncations, infos = envs.step(envs.action_space.sample())
        last = infos["final_info"]["agents"] if mode is SAME else infos["agents"]
        assert truncations[0] and all(last["truncations"][agent][0] for agent in envs.agent_names)


class Mortal(Steady):
    """Kills its worker at a time of an episode, if a file says so; once."""

    def __init__(self, order: Path) -> None:
        super().__init__()
        self.order = order

    def step(self, actions: dict[str, Any]) -> Any:
        if self.order.exists():
            self.order.unlink(missing_ok=True)  # the other one may have read it too
            signal.raise_signal(signal.SIGKILL)
        return super().step(actions)


def test_plain_steps_go_on_after_a_restart(tmp_path: Path) -> None:
    order = tmp_path / "die"
    with make_vec([partial(Mortal, order)] * 2 + [Steady], agents="rows", num_workers=2,
                  on_worker_death="restart") as envs:  # fmt: skip
        envs.reset(seed=1)
        for _ in range(3):
            envs.step(np.zeros(9, int))
        order.touch()
        *_, truncations, infos = envs.step(np.zeros(9, int))
        lost = infos["episode_over"]
        # Of one worker, or of both if they read the file at once.
        assert truncations[lost].all() and lost.sum() >= 3 and not infos["alive"][lost].any()
        observations, *_, infos = envs.step(np.zeros(9, int))
        assert (observations[lost, 1] == 0).all() and infos["alive"][lost].all()
        for time in range(1, 4):
            observations = envs.step(np.zeros(9, int))[0]
            assert (observations[lost, 1] == time).all()


# ---------------------------------------------------------------------- breaches, other parts


@pytest.mark.parametrize("layout", ["rows", "dict"])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("agent-missing", "agent 'red' of Breach has no observations"),
        ("agent-unknown", "agent 'white' of Breach has rewards, and is not among possible_agents"),
        ("agent-flag", "agent 'red' of Breach has a flag, and is among agents still"),
        ("agent-space", "has another observation space than before"),
    ],
)
def test_a_breach_is_an_error_that_names_the_agent(how: str, message: str, layout: Any) -> None:
    with make_vec([Tag, partial(Breach, how)], agents=layout, backend="sync") as envs:
        ends = {agent: np.full(2, 2) for agent in Tag.possible_agents}
        actions: Any = ends if layout == "dict" else np.full(6, 2)
        with pytest.raises(ValueError, match=message):
            envs.reset(seed=1)
            for _ in range(4):
                envs.step(actions)


class Vanishing(Tag):
    """An agent leaves without a flag."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        self.agents = self.agents[:1]
        return result


class Unborn(Tag):
    """An episode begins without agents."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset()
        self.agents = []
        return result


class Formless(Tag):
    """Returns something else than PettingZoo's five dicts."""

    def step(self, actions: dict[str, Any]) -> Any:
        return super().step(actions)[:4]


@pytest.mark.parametrize("layout", ["rows", "dict"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Vanishing, "left without a flag: an agent leaves agents in the step"),
        (Unborn, "has no agents after reset"),
        (Formless, "must return observations, rewards, terminations, truncations and infos"),
    ],
)
def test_other_breaches(make: Any, message: str, layout: Any) -> None:
    with make_vec(make, 2, agents=layout, backend="sync") as envs:
        actions: Any = envs.action_space.sample()
        with pytest.raises((TypeError, ValueError), match=message):
            envs.reset()
            envs.step(actions)


class Misfit(Crowd):
    """Returns something else for an agent than PettingZoo and its spaces say."""

    def __init__(self, part: int, value: Any) -> None:
        super().__init__()
        self.part, self.value = part, value

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        result[self.part]["blue_0"] = self.value
        return result


@pytest.mark.parametrize("layout", ["rows", "dict"])
@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (0, None, "blue_0.*expected float64 array of shape"),
        (0, np.zeros(2), r"blue_0.*expected float64 array of shape \(4,\), found"),
        (1, None, "agent 'blue_0' of crowd has the reward None: expected a number"),
        (4, None, "agent 'blue_0' of crowd has the info None: expected a dict"),
        (4, {"action_mask": [1, 0.5, 1]}, "agent 'blue_0' of crowd has the action_mask"),
        (4, {"action_mask": np.full(3, 256)}, "action_mask int64 array.*expected zeros and ones"),
        (4, {"action_mask": np.ones(5)}, r"action_mask.*expected int8 array of shape \(3,\)"),
    ],
)
def test_values_that_do_not_fit(part: int, value: Any, message: str, layout: Any) -> None:
    with make_vec([Crowd, partial(Misfit, part, value)], agents=layout, backend="sync") as envs:
        envs.reset(seed=1)
        with pytest.raises((ValueError, InvalidInfoError), match=message):
            envs.step(envs.action_space.sample())
        with pytest.raises((ValueError, InvalidInfoError), match=message):
            envs.reset(seed=1)
            envs.step(envs.action_space.sample())


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


@pytest.mark.parametrize("layout", ["rows", "dict"])
@pytest.mark.parametrize(
    ("space", "value", "absent"),
    [
        (spaces.Box(1, 5, (2,)), np.full(2, 4, np.float32), np.ones(2)),
        (spaces.Box(-5, np.array([-2.0, 5]), (2,)), np.full(2, -3, np.float32), np.array([-2, 0])),
        (spaces.Discrete(3, start=2), np.int64(4), 2),
        (spaces.Discrete(3, start=-5), np.int64(-4), -3),
        (spaces.MultiDiscrete([3, 4], start=[1, -1]), np.array([2, 2]), np.array([1, 0])),
        (spaces.Tuple([spaces.Discrete(2, start=1)]), (np.int64(2),), (1,)),
        (spaces.OneOf([spaces.Box(1, 2, (1,))]), (0, np.full(1, 2, np.float32)), (0, np.ones(1))),
        (spaces.Text(3, min_length=2), "abc", "00"),
        (Even(), 4, None),
    ],
)
def test_agents_that_are_gone_show_a_value_of_their_space(
    space: Any, value: Any, absent: Any, layout: Any
) -> None:
    """Those are zeros, or nearest to them; the space is checked of all rows."""
    factory = partial(Off, space, value)
    with make_vec(factory, 2, agents=layout, backend="sync", validate=True) as envs:
        actions: Any = np.array([2, 1, 1, 2, 1, 1])
        if layout == "dict":
            actions = {"red": np.full(2, 2), "green": np.ones(2, int), "blue": np.ones(2, int)}
        envs.reset()
        for _ in range(4):
            observations = envs.step(actions)[0]
        if layout == "rows":
            shown = list(iterate(envs.observation_space, observations))
            gone, there = shown[0], shown[1]
        else:
            (shown, _) = iterate(envs.observation_space, observations)
            gone, there = shown["red"], shown["blue"]
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


def test_no_step_after_the_end() -> None:
    env = as_env(Tag())
    env.reset()
    for _ in range(3):
        result = env.step(dict.fromkeys(env.agent_names, 2))
    assert result[2]
    with pytest.raises(ResetNeededError, match="after the end of the episode"):
        env.step(dict.fromkeys(env.agent_names, 2))


class Loose(Steady):
    """Rewards are arrays of one number, which plain steps take too."""

    def step(self, actions: dict[str, Any]) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, {agent: np.array([own]) for agent, own in rewards.items()}, *rest


def test_rewards_are_read_alike_in_all_steps() -> None:
    with make_vec(Loose, 2, agents="rows", backend="sync") as envs:
        play(envs, Steady, NEXT)


class Silent(Steady):
    """Returns None for infos."""

    def step(self, actions: dict[str, Any]) -> Any:
        return *super().step(actions)[:4], None


def test_infos_are_checked_in_plain_steps_too() -> None:
    with make_vec(Silent, 2, agents="rows", backend="sync") as envs:
        envs.reset(seed=1)
        with pytest.raises(TypeError, match="must return infos as a dict by agent"):
            envs.step(np.zeros(6, int))


class Numbered(Tag):
    """Agents that are numbers."""

    possible_agents: Any = (0, 1, 2)


@pytest.mark.parametrize("layout", ["rows", "dict"])
def test_agents_need_not_be_strings(layout: Any) -> None:
    with make_vec(Numbered, 2, agents=layout, backend="sync") as envs:
        envs.reset(seed=1)
        assert envs.agent_names[:3] == ["0", "1", "2"]
        ends = {agent: np.full(2, 2) for agent in "012"}
        for _ in range(3):
            *_, terminations, _, _ = envs.step(ends if layout == "dict" else np.full(6, 2))
        assert terminations.all()


def test_validate_names_the_row() -> None:
    class Wide(Steady):
        def _observe(self, agents: list[str]) -> Any:
            seen = super()._observe(agents)
            if self.time == 2:
                seen["red_1"][0] = 1e9
            return seen

    with make_vec([Steady, Wide], agents="rows", backend="sync", validate=True) as envs:
        envs.reset()
        with pytest.raises(InvalidObservationError, match="environment 4"):
            for _ in range(3):
                envs.step(np.zeros(6, int))


def test_agents_that_a_reset_brings_back_are_validated_without_an_info_space() -> None:
    with make_vec(Tag, agents="rows", backend="sync", validate=True,
                  info_space=spaces.Dict()) as envs:  # fmt: skip
        envs.reset()
        for _ in range(3):
            *_, infos = envs.step(np.array([0, 1, 1]))
        assert infos["alive"].tolist() == [False, True, True]
        invalid = np.array([9, 1, 1])
        envs.step(invalid)
        envs.reset()
        with pytest.raises(InvalidActionError, match="environment 0"):
            envs.step(invalid)


def test_random_actions_lie_within_the_masks() -> None:
    class Strict(Crowd):
        def step(self, actions: dict[str, Any]) -> Any:
            for agent, action in actions.items():
                assert self._mask(self.possible_agents.index(agent))[action]
            return super().step(actions)

    with make_vec(partial(Strict, masks="infos"), 3, agents="rows", backend="sync") as envs:
        _, infos = envs.reset(seed=1)
        rng = np.random.default_rng(0)
        for _ in range(30):
            actions = sample_actions(envs.single_action_space, envs.num_envs, infos, rng=rng)
            *_, infos = envs.step(actions)


@pytest.mark.parametrize("members", [[Tag] * 2, [Tag, Alone]])
def test_normalised_rows_that_report_no_agents_are_not_zero(members: Any) -> None:
    """A reset of some environments reports the agents of these, and `Alone` never reports any."""
    env_fns = [partial(as_vector_env, Tag()) if make is Tag else make for make in members]
    envs = SyncVectorEnv(env_fns, autoreset_mode=NEXT, info_space=spaces.Dict())
    with NormalizeObservation(envs) as envs:
        envs.reset()
        for chosen in (np.arange(envs.num_envs) < 3, np.arange(envs.num_envs) >= 3):
            envs.step(np.full(envs.num_envs, 2))
            observations, _ = envs.reset(options={"reset_mask": chosen})
            assert observations[~chosen].any(axis=1).all()


def test_wrappers_and_evaluate_of_dicts() -> None:
    with RecordEpisodeStatistics(make_vec(Crowd, 2, agents="dict", backend="sync")) as envs:
        envs.reset(seed=2)
        found = []
        for _ in range(30):
            *_, infos = envs.step(envs.action_space.sample())
            for n in np.flatnonzero(infos.get("_episode", ())):
                own = sum(infos[f"return/{agent}"][n] for agent in envs.agent_names)
                found.append((infos["episode"]["r"][n], own))
        assert len(found) > 4
        np.testing.assert_allclose(*zip(*found, strict=True))
    arguments: Any = {"agents": "dict", "episodes": 8, "seed": 4}
    one = evaluate("random", Crowd, backend="sync", num_envs=1, **arguments)
    assert one.episodes == 8 and set(one.infos) >= {f"return/{a}" for a in Crowd().possible_agents}

    def stay(observations: Any) -> Any:
        return {agent: np.zeros(len(rows), int) for agent, rows in observations.items()}

    alone = evaluate(stay, Crowd, backend="sync", num_envs=1, **arguments)
    others = evaluate(stay, Crowd, num_workers=2, num_envs=4, **arguments)
    assert alone.returns.tolist() == others.returns.tolist()
    for agent in Crowd().possible_agents:
        assert (alone.infos[f"return/{agent}"] == others.infos[f"return/{agent}"]).all()


def test_dicts_as_gymnasium() -> None:
    from vecspaces.adapters.gymnasium import as_gymnasium

    with as_gymnasium(make_vec(Crowd, 2, agents="dict", backend="sync")) as envs:
        observations, infos = envs.reset(seed=1)
        assert envs.single_observation_space["blue_0"].contains(observations["blue_0"][0])
        assert infos["agents"]["alive"]["blue_0"].all()
        envs.step(envs.action_space.sample())


@diagonal(layout=["rows", "dict"], context=["spawn", "forkserver"])
def test_other_start_methods(layout: Any, context: Any) -> None:
    make = partial(Crowd, masks="infos")
    with make_vec(make, 2, agents=layout, state=True, context=context, num_workers=2) as envs:
        play(envs, make, NEXT, steps=12)


def test_a_rollout_of_dicts() -> None:
    make = partial(Crowd, masks="infos")
    with make_vec(make, 2, agents="dict", state=True, buffers=5, backend="sync") as envs:
        _, infos = envs.reset(seed=1)
        held = [infos["agents"]]
        for _ in range(4):
            held.append(envs.step(envs.action_space.sample())[4]["agents"])
        found = envs.rollout_view().infos
        assert found["state"].shape == (5, 2, 2)
        for kind in ("rewards", "terminations", "truncations", "alive", "action_mask"):
            for agent in envs.agent_names:
                expected = [one[kind][agent] for one in held]
                np.testing.assert_array_equal(found["agents"][kind][agent], expected)


def test_rows_in_any_order() -> None:
    """The rows of an environment need not be named in order, nor next to each other."""
    order = np.array([5, 0, 3, 1, 4, 2])
    arguments: Any = {"agents": "rows", "backend": "sync"}
    with make_vec(Steady, 2, **arguments) as one, make_vec(Steady, 2, **arguments) as other:
        one.reset(seed=3)
        other.reset(seed=3)
        rng = np.random.default_rng(0)
        for _ in range(20):
            actions = rng.integers(3, size=6)
            expected, found = one.step(actions), other.step(actions[order], env_ids=order)
            for part_of, own in zip(expected[:4], found, strict=False):
                np.testing.assert_array_equal(part_of[order], own)
            np.testing.assert_array_equal(expected[4]["alive"][order], found[4]["alive"])
        other.reset()
        other.recv()
        other.send_reset(order, seed=[7, 9])  # of the environments in the order of their first row
        received = other.recv(6)
        for row, seed in ((3, 7), (0, 9)):
            place = received.env_ids.tolist().index(row)
            alone, _ = as_env(Steady()).reset(seed=seed)
            np.testing.assert_array_equal(received.observations[place], alone["blue_0"])


def test_environments_whose_agents_take_turns() -> None:
    spread: Any = pytest.importorskip("mpe2.simple_spread_v3")
    for layout in ("rows", "dict"):
        with pytest.raises(TypeError, match="aec_to_parallel"):
            make_vec(spread.env, 1, agents=layout, backend="sync")
    with pytest.raises(TypeError, match=r"agents='rows'.*agents='dict'.*aec_to_parallel"):
        make_vec(spread.env, 1, backend="sync")
    utils: Any = pytest.importorskip("pettingzoo.utils")

    def convert() -> Any:
        return utils.aec_to_parallel(spread.env())

    with make_vec(convert, 2, agents="rows", backend="sync") as envs:
        assert envs.reset(seed=1)[0].shape == (6, 18)
        for _ in range(30):
            *_, infos = envs.step(envs.action_space.sample())
        assert infos["alive"].all()


def test_replaced_environments_of_agents() -> None:
    with make_vec(Steady, 2, agents="rows", num_workers=2) as envs:
        envs.reset(seed=1)
        envs.step(np.zeros(6, int))
        envs.replace_envs([0, 1, 2], [lambda: as_vector_env(Steady(length=3))])
        envs.reset(options={"reset_mask": np.arange(6) < 3})
        for _ in range(3):
            *_, infos = envs.step(np.zeros(6, int))
        assert infos["episode_over"].tolist() == [True] * 3 + [False] * 3
