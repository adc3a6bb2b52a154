"""Chunks of actions, compared with bare loops that stop row by row."""

from __future__ import annotations

import copy
import pickle
import re
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compare import assert_identical
from tests.crosses import diagonal
from tests.envs import Gated, Ledger, Placing, informing, observing
from tests.envs.agents import Crowd
from tests.interrupts import Counting, Places
from tests.vector.bounds import running
from tests.vector.wrapped import Whole
from vecspaces import Env, make_vec, spaces, wrappers
from vecspaces.errors import (
    AlreadyPendingCallError,
    InvalidActionError,
    InvalidInfoError,
    InvalidObservationError,
    InvalidRewardError,
    NoAsyncCallError,
    ResetNeededError,
    StepTimeoutError,
    VecspacesError,
)
from vecspaces.vector import (
    AsyncVectorEnv,
    AutoresetMode,
    Chunk,
    SyncVectorEnv,
    VectorObservationWrapper,
    VectorWrapper,
    infos_as_list,
)
from vecspaces.vector.utils import batch_space, concatenate, iterate

KINDS = {
    "sync": SyncVectorEnv,
    "async": partial(AsyncVectorEnv, num_workers=2),
    "pipes": partial(AsyncVectorEnv, num_workers=2, shared_memory=False),
    "validate": partial(SyncVectorEnv, validate=True),
}
LENGTHS = (3, 5, 2, 9)


class Declared(Ledger):
    """Declares its time, and leaves it out now and then."""

    info_space = spaces.Dict(
        mark=spaces.Box(0, 100, (), np.int64), part=spaces.Dict(twice=spaces.Box(0, 200, (2,)))
    )

    def step(self, action: Any) -> Any:
        *result, info = super().step(action)
        info = {**info, "part": {"twice": np.full(2, 2 * self.time, np.float32)}}
        if self.time % 2:
            info["mark"] = self.time
        return *result, info


def factories() -> list[Any]:
    return [partial(Ledger, n, length) for n, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("options", [{}, {"shared_memory": False}, {"concurrent_envs": 2}])
def test_chunks_of_any_length_after_each_other(options: Any) -> None:
    """Longer ones than shared memory has room for travel through pipes."""
    fns = [partial(Declared, n, 450 + n) for n in range(3)]
    with AsyncVectorEnv(fns, num_workers=2, **options) as envs, SyncVectorEnv(fns) as here:
        envs.reset(seed=3), here.reset(seed=3)
        for length, ids in ((2, None), (300, None), (3, [2, 0]), (200, None), (300, [2, 1])):
            rows = 3 if ids is None else 2
            actions = np.random.default_rng(length).integers(5, size=(rows, length))
            for infos in ("last", "all") if length < 9 else ("last",):
                results = [each.step_chunk(actions, infos, env_ids=ids) for each in (envs, here)]
                assert_identical(*results)
        assert_identical(envs.step([1, 2, 3]), here.step([1, 2, 3]))


# ---------------------------------------------------------------------- any environment


class Walk(Env[Any, Any]):
    """Observes its actions, time and noise in a form of its own; reuses what it returns.

    Its rewards are of many types, and its infos tell the types of its actions.
    """

    info_space = spaces.Dict(
        mark=spaces.Box(0, 100, (), np.int64),
        text=spaces.Text(9),
        part=spaces.Dict(twice=spaces.Box(0, 200, (2,))),
    )

    def __init__(self, length: int, action_space: Any, observation_space: Any) -> None:
        self.length, self.time, self.episodes = length, 0, 0
        self.action_space, self.observation_space = action_space, observation_space
        self.array = np.zeros(3, np.float32)
        self.info: dict[str, Any] = {}

    def observe(self) -> Any:
        self.array[:] = self.time, self.episodes, self.np_random.random()
        if isinstance(self.observation_space, spaces.Box):
            return self.array
        return {"array": self.array, "text": "x" * self.time, "pair": (self.time, self.array[:1])}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.episodes = 0, self.episodes + 1
        return self.observe(), {"mark": self.episodes, "begun": True}

    def step(self, action: Any) -> Any:
        self.time += 1
        noise = self.np_random.random()
        total = sum(np.sum(leaf) for leaf in leaves(action))
        reward: Any = [noise, np.float32(noise), 2, True, np.array(noise), total][self.time % 6]
        self.info.clear()
        if self.time % 2:
            self.info["mark"] = self.time
        self.info["part"] = {"twice": np.full(2, 2 * self.time, np.float32), "more": self.time}
        if self.time % 3 == 0:
            self.info["text"] = "y" * self.time
        types = [(type(leaf).__name__, leaf.dtype.name, leaf.shape) for leaf in leaves(action)]
        self.info["types"] = str(types)
        ends = self.time >= self.length
        return self.observe(), reward, ends and self.length % 2 == 0, ends, self.info


def leaves(action: Any) -> list[Any]:
    if isinstance(action, dict):
        return [leaf for key in sorted(action) for leaf in leaves(action[key])]
    if isinstance(action, tuple):
        return [leaf for part in action for leaf in leaves(part)]
    return [action]


ACTION_SPACES = [
    spaces.Discrete(4, start=2),
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.MultiBinary(3),
    spaces.Dict(
        arm=spaces.Box(-1, 1, (2, 2), np.float64),
        grip=spaces.Tuple([spaces.Discrete(2, dtype=np.int32), spaces.MultiDiscrete([2, 3])]),
    ),
]
OBSERVATION_SPACES = [
    spaces.Box(-np.inf, np.inf, (3,)),
    spaces.Dict(
        array=spaces.Box(-np.inf, np.inf, (3,)),
        text=spaces.Text(20, min_length=0),
        pair=spaces.Tuple([spaces.Discrete(100), spaces.Box(-np.inf, np.inf, (1,))]),
    ),
]


class Bare:
    """Chunks in a bare loop, whose rows begin and end as a mode says."""

    def __init__(self, env_fns: list[Any], mode: AutoresetMode, seed: int) -> None:
        self.envs, self.mode = [env_fn() for env_fn in env_fns], mode
        for number, env in enumerate(self.envs):
            env.reset(seed=seed + number)
        self.over = [False] * len(env_fns)

    def chunk(self, row: int, actions: list[Any]) -> dict[str, Any]:
        env, found = self.envs[row], {"rewards": [0.0] * len(actions), "every": [], "steps": 0}
        result: Any = ()
        if self.over[row]:
            self.over[row] = False
            result = *env.reset(), 0.0, False, False
            found["observation"], found["info"], *_ = result
            found["flags"] = False, False
            return copy.deepcopy(found)
        for number, action in enumerate(actions):
            observation, reward, terminated, truncated, info = env.step(action)
            found["rewards"][number] = float(reward)
            found["every"].append(copy.deepcopy(info))
            found["steps"] += 1
            if terminated or truncated:
                break
        found |= {"observation": observation, "info": info, "flags": (terminated, truncated)}
        found = copy.deepcopy(found)
        self.over[row] = bool(terminated or truncated)
        if self.over[row] and self.mode is AutoresetMode.SAME_STEP:
            self.over[row] = False
            found |= {"final_obs": found["observation"], "final_info": found["info"]}
            found["observation"], found["info"] = copy.deepcopy(env.reset())
        return found


def iterated(space: Any, batch: Any, count: int) -> list[Any]:
    return list(iterate(batch_space(space, count), batch))


def check_chunk(envs: Any, chunk: Any, expected: list[dict[str, Any]], infos: str) -> None:
    """Compare a chunk with what bare loops returned for its rows."""
    count = len(expected)
    shown = iterated(envs.single_observation_space, chunk.observations, count)
    assert_identical(
        shown,
        iterated(
            envs.single_observation_space,
            concatenate(envs.single_observation_space, [e["observation"] for e in expected], None),
            count,
        ),
    )
    assert_identical(chunk.rewards, np.array([one["rewards"] for one in expected]))
    assert_identical(chunk.steps, np.array([one["steps"] for one in expected]))
    flags = np.array([one["flags"] for one in expected])
    assert_identical(chunk.terminations, flags[:, 0])
    assert_identical(chunk.truncations, flags[:, 1])
    if infos == "last":
        for single, one in zip(infos_as_list(chunk.infos, count), expected, strict=True):
            ends = {key: one[key] for key in ("final_obs", "final_info") if key in one}
            np.testing.assert_equal(single, {**one["info"], **ends})
        return
    own = {"mark", "text", "part", "final_obs", "final_info"}
    assert {key.removeprefix("_") for key in chunk.infos} <= own
    for row, one in enumerate(expected):
        if "final_obs" in one:
            np.testing.assert_equal(chunk.infos["final_obs"][row], one["final_obs"])
            marks = chunk.infos["final_info"].get("_mark", np.zeros(count, bool))
            assert marks[row] == ("mark" in one["final_info"])
        for key in ("mark", "text"):
            values = [info.get(key) for info in one["every"]]
            values += [None] * (chunk.rewards.shape[1] - len(values))
            is_given = [value is not None for value in values]
            mask = chunk.infos.get(f"_{key}", np.zeros_like(chunk.rewards, bool))
            assert mask[row].tolist() == is_given
            if any(is_given):
                assert chunk.infos[key][row][is_given].tolist() == [v for v in values if v]
        twice = [info["part"]["twice"] for info in one["every"]]
        if twice:
            assert_identical(chunk.infos["part"]["twice"][row, : len(twice)], np.array(twice))
            assert chunk.infos["_part"][row].sum() == len(twice)


@pytest.mark.timeout(600)  # 150 vector envs in the full run
@diagonal(kind=list(KINDS), mode=AutoresetMode)
@given(data=st.data())
@settings(deadline=None)
def test_chunks_of_any_environments_equal_bare_loops(
    kind: str, mode: AutoresetMode, data: Any
) -> None:
    action_space = data.draw(st.sampled_from(ACTION_SPACES))
    observation_space = data.draw(st.sampled_from(OBSERVATION_SPACES))
    lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    declares = data.draw(st.booleans())
    options = {"copy": data.draw(st.booleans()), "buffers": data.draw(st.sampled_from([1, 3]))}
    if kind in ("async", "pipes"):
        options["num_workers"] = min(len(lengths), 2)
        options["on_worker_death"] = data.draw(st.sampled_from(["raise", "restart"]))
    if not declares:
        options["info_space"] = spaces.Dict({})
    fns = [partial(Walk, length, action_space, observation_space) for length in lengths]
    bare, rows = Bare(fns, mode, 3), range(len(lengths))
    action_space.seed(1)
    with KINDS[kind](fns, autoreset_mode=mode, **options) as envs:
        envs.reset(seed=3)
        for _ in range(data.draw(st.integers(1, 5))):
            length = data.draw(st.integers(1, 4))
            ids = data.draw(st.none() | st.permutations(rows).map(lambda ids: ids[: 1 + ids[0]]))
            chosen = list(rows) if ids is None else ids
            if mode is AutoresetMode.DISABLED and any(bare.over):
                mask = np.array(bare.over)
                with pytest.raises(ResetNeededError) if mask[chosen].any() else nullcontext():
                    samples = [[action_space.sample()] for _ in chosen]
                    parts = [concatenate(action_space, one, None) for one in samples]
                    stopped = batch_space(action_space, 1)
                    actions = concatenate(stopped, parts, None)
                    chunk = envs.step_chunk(actions, env_ids=chosen)
                    expected = [
                        bare.chunk(row, one) for row, one in zip(chosen, samples, strict=True)
                    ]
                    check_chunk(envs, chunk, expected, "last")
                mask = np.array(bare.over)
                envs.reset(options={"reset_mask": mask})
                for row in np.flatnonzero(mask):
                    bare.envs[row].reset()
                    bare.over[row] = False
            samples = [[action_space.sample() for _ in range(length)] for _ in chosen]
            parts = [concatenate(action_space, one, None) for one in samples]
            actions = concatenate(batch_space(action_space, length), parts, None)
            infos = data.draw(st.sampled_from(["last", "all"])) if declares else "last"
            chunk = envs.step_chunk(actions, infos, env_ids=ids)
            for leaf in leaves(actions):
                leaf[...] = 0  # a caller may reuse its arrays
            expected = [bare.chunk(row, one) for row, one in zip(chosen, samples, strict=True)]
            check_chunk(envs, chunk, expected, infos)


class Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Notes whether anybody looks, around a limit of steps."""

    needs_observation = True

    def __init__(self, limit: int) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=limit))
        self.looks: list[bool] = []

    def reset(self, **arguments: Any) -> Any:
        self.looks.append(self.needs_observation)
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self.looks.append(self.needs_observation)
        return super().step(action)


def test_an_environment_knows_whether_anybody_looks() -> None:
    env_fns = [partial(Camera, limit) for limit in (9, 2)]
    with SyncVectorEnv(env_fns, autoreset_mode="SameStep") as envs:
        envs.reset(seed=0)
        envs.step_chunk(np.zeros((2, 3), int))
        envs.step([0, 0])
        envs.step_chunk(np.zeros((2, 1), int))
        assert envs.get_attr("looks")[0] == [True, False, False, True, True, True]
        # The second step of the second one ended its episode: its reset is looked at.
        assert envs.get_attr("looks")[1] == [True, False, False, True, True, True, True]
        assert envs.get_attr("needs_observation") == (True, True)


# ---------------------------------------------------------------------- faults


class Tired(Gated):
    """Waits for the gate in a step with the action 4; raises in one with the action 3."""

    def step(self, action: Any) -> Any:
        if action == 3 and self.time == 2:
            raise RuntimeError("tired")
        return super().step(action)


def test_a_chunk_that_is_late_names_its_last_step_and_can_be_waited_for(
    tmp_path: Path, hurry: Any
) -> None:
    gate = tmp_path / "gate"
    fns = [partial(Tired, gate, n, length=99) for n in range(2)]
    bare = AsyncVectorEnv(fns, num_workers=2, step_timeout=30)
    with wrappers.ClipReward(wrappers.FlattenObservation(bare), -1, 1) as envs:
        envs.reset(seed=4)
        envs.step([0, 0])
        envs.step_chunk(np.zeros((2, 3), int))
        hurry(lambda: running(bare) == [1], 1)
        place = "environment 1 .*last seed 5, episodes since then: 0, step 6"
        with pytest.raises(StepTimeoutError, match=place):
            envs.step_chunk(np.array([[0, 0], [0, 4]]))
        with pytest.raises(AlreadyPendingCallError, match="step_wait"):
            envs.step_chunk(np.zeros((2, 2), int))
        gate.touch()
        chunk = envs.step_wait(timeout=20)
        assert isinstance(chunk, Chunk) and chunk.steps.tolist() == [2, 2]
        assert np.all(chunk.rewards <= 1)
        assert len(envs.step([0, 0])) == 5


def test_a_chunk_that_is_too_late_is_lost_where_workers_are_restarted(
    tmp_path: Path, hurry: Any
) -> None:
    fns = [partial(Tired, tmp_path / "gate", n, length=99) for n in range(2)]
    with AsyncVectorEnv(fns, num_workers=2, on_step_timeout="restart", step_timeout=60) as envs:
        envs.reset(seed=0)
        hurry(lambda: running(envs) == [0], 0)
        chunk = envs.step_chunk(np.array([[0, 4, 0], [0, 0, 0]]))
        assert chunk.steps.tolist() == [0, 3] and chunk.truncations.tolist() == [True, False]
        assert envs.step_chunk(np.zeros((2, 2), int)).steps.tolist() == [0, 2]
        assert envs.step_chunk(np.zeros((2, 2), int)).steps.tolist() == [2, 2]


@diagonal(is_whole=[True, False], mode=AutoresetMode)
def test_the_last_known_observation_of_a_lost_chunk(mode: AutoresetMode, is_whole: bool) -> None:
    make = partial(AsyncVectorEnv, num_workers=2, on_worker_death="restart", autoreset_mode=mode)
    with make([partial(Ledger, n, 99) for n in range(4)]) as envs:
        envs.reset(seed=0)
        before = envs.step([1, 2, 3, 4])[0]
        envs.processes[0].kill()
        ids = None if is_whole else [2, 0]
        rows = [0, 1] if is_whole else [0]
        chunk = envs.step_chunk(np.zeros((4 if is_whole else 2, 3), int), env_ids=ids)
        places = rows if is_whole else [1]
        lost = np.isin(np.arange(len(chunk.steps)), places)
        assert chunk.steps.tolist() == np.where(lost, 0, 3).tolist()
        assert (chunk.truncations == lost).all() and not chunk.rewards[lost].any()
        assert (chunk.infos["worker_restarted"] == lost).all()
        shown = chunk.observations
        if mode is AutoresetMode.SAME_STEP:
            assert chunk.infos["_final_obs"].sum() == len(rows)
            shown = chunk.infos["final_obs"]
        for place, row in zip(places, rows, strict=True):
            assert shown[place].tolist() == before[row].tolist()


def after(count: int, result: Any) -> Any:
    """An environment whose step number `count` returns a result, and others what is right."""

    class Odd(Ledger):
        info_space = spaces.Dict(mark=spaces.Box(0, 5, (), np.int64))

        def step(self, action: Any) -> Any:
            right = super().step(action)
            return result(*right) if self.time == count else (*right[:4], {})

    return partial(Odd, 7, 99)


WRONG: dict[str, tuple[Any, Any, str]] = {
    "raises": (lambda *r: r[9], IndexError, r"environment 1 (\(worker .\) )?failed in step:"),
    "form": (lambda *r: r[:4], ValueError, "environment 1: step must return"),
    "reward": (lambda o, r, *rest: (o, "a", *rest), InvalidRewardError, "environment 1 returned"),
    "info": (lambda *r: (*r[:4], None), InvalidInfoError, "environment 1: expected a dict"),
    "value": (lambda *r: (*r[:4], {"mark": "x"}), InvalidInfoError, r"1 .*info\['mark'\]"),
}


@diagonal(case=WRONG, kind=["sync", "async"])
def test_a_wrong_result_of_a_step_in_the_middle(kind: str, case: tuple[Any, Any, str]) -> None:
    result, error, text = case
    fns = [partial(Ledger, 0, 99), after(2, result), partial(Ledger, 2, 99)]
    with KINDS[kind](fns, info_space=after(1, result)().info_space) as envs:
        for ids in (None, [2, 1]):
            envs.reset(seed=0)
            with pytest.raises(error) as caught:
                envs.step_chunk(np.zeros((3 if ids is None else 2, 4), int), "all", env_ids=ids)
            assert re.search(text, f"{caught.value} {caught.value.__cause__}")
            with pytest.raises(ResetNeededError, match="reset"):
                envs.step_chunk(np.zeros((3, 4), int))


def test_validation_looks_at_every_step() -> None:
    values = [np.full(5, value, np.float32) for value in (0, 0, 9, 0, 0)]
    far = partial(observing, spaces.Box(-1, 1, (5,)), *values)
    for validate in (True, False):
        with SyncVectorEnv([far, far], validate=validate) as envs:
            envs.reset(seed=0)
            with pytest.raises(InvalidObservationError) if validate else nullcontext():
                envs.step_chunk(np.zeros((2, 4), int))


def test_an_action_of_a_row_that_is_only_reset_may_be_anything() -> None:
    with SyncVectorEnv([partial(Ledger, 0, 1), partial(Ledger, 1, 9)], validate=True) as envs:
        envs.reset(seed=0)
        envs.step_chunk(np.zeros((2, 1), int))
        with pytest.raises(InvalidActionError, match="environment 1"):
            envs.step_chunk(np.array([[0], [9]]))
        assert envs.step_chunk(np.array([[9], [0]])).steps.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_chunk_that_is_interrupted_anywhere_can_be_waited_for(kind: str) -> None:
    places, ended = Places(stride=3 if kind == "sync" else 7), 0
    actions = np.arange(8).reshape(4, 2)
    with KINDS[kind]([partial(Counting, n) for n in range(4)], autoreset_mode="Disabled") as envs:
        for _ in range(150):
            envs.reset(seed=0)
            times = envs.get_attr("time")
            reached, done, chunk = places.interrupt(partial(envs.step_chunk, actions))
            if not done:
                try:
                    chunk = envs.step_wait()
                except NoAsyncCallError:
                    chunk = None  # it had not begun, or had ended
                except VecspacesError:
                    continue  # in the environment, or as it was sent
            taken = np.array(envs.get_attr("time")) - times
            if chunk is not None:
                ended += 1
                assert chunk.rewards.tolist() == [[1.0, 2.0]] * 4
                assert chunk.steps.tolist() == [2] * 4 == taken.tolist()
            if not reached:
                break
    assert ended > 5


# ---------------------------------------------------------------------- wrappers and members


class Plain(VectorWrapper[Any, Any, Any, Any, Any]):
    """Changes nothing."""


class Hooked(VectorObservationWrapper[Any, Any, Any, Any]):
    def _after_step(self, result: Any, env_ids: Any) -> Any:
        return super()._after_step(result, env_ids)

    def observations(self, observations: Any) -> Any:
        return observations


class Before(VectorWrapper[Any, Any, Any, Any, Any]):
    def _before_step(self, actions: Any) -> Any:
        return actions


def test_every_wrapper_takes_chunks_or_refuses_them_by_name() -> None:
    def make(length: int = 5) -> Any:
        return SyncVectorEnv([partial(Ledger, n, length) for n in range(2)])

    actions = np.arange(6).reshape(2, 3) % 5
    right: dict[str, Any] = {
        "Plain": Plain,
        "TransformObservation": lambda envs: wrappers.TransformObservation(envs, np.negative),
        "FlattenObservation": wrappers.FlattenObservation,
        "DtypeObservation": lambda envs: wrappers.DtypeObservation(envs, np.float32),
        "TransformReward": lambda envs: wrappers.TransformReward(envs, lambda r: r + 1),
        "ClipReward": lambda envs: wrappers.ClipReward(envs, 0.0, 0.5),
        "TransformAction": lambda envs: wrappers.TransformAction(envs, lambda a: (a + 1) % 5),
    }
    for name, wrap in right.items():
        with wrap(make()) as envs, wrap(make()) as single:
            envs.reset(seed=0), single.reset(seed=0)
            chunk = envs.step_chunk(actions)
            for number in range(3):
                observations, rewards, *_ = single.step(actions[:, number])
                assert_identical(chunk.rewards[:, number], np.asarray(rewards)), name
            assert_identical(chunk.observations, observations)
    refused: dict[str, Any] = {
        "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
        "NormalizeObservation": wrappers.NormalizeObservation,
        "NormalizeReward": wrappers.NormalizeReward,
        "FrameStackObservation": lambda envs: wrappers.FrameStackObservation(envs, 2),
        "Whole": Whole,
        "Hooked": Hooked,
        "Before": Before,
    }
    for name, wrap in refused.items():
        with wrap(make()) as envs:
            envs.reset(seed=0)
            with pytest.raises(TypeError, match=rf"step_chunk would go around {name}\."):
                envs.step_chunk(actions)
            with pytest.raises(TypeError, match=name):
                Plain(envs).step_chunk(actions)
    known = {"FilterObservation", "RescaleObservation", "ClipAction", "RescaleAction"}
    others = {"RunningMeanStd", "RecordVideo", "TimeAwareObservation"}
    assert set(wrappers.__all__) <= {*right, *refused, *known, *others}


def test_wrapped_rewards_after_an_end_stay_zero_and_final_observations_change() -> None:
    with wrappers.TransformReward(
        wrappers.TransformObservation(
            SyncVectorEnv(factories(), autoreset_mode="SameStep"), np.negative
        ),
        lambda rewards: rewards + 5,
    ) as envs:
        envs.reset(seed=0)
        chunk = envs.step_chunk(np.zeros((4, 4), int))
        assert (chunk.rewards != 0).sum(axis=1).tolist() == chunk.steps.tolist() == [3, 4, 2, 4]
        assert chunk.infos["final_obs"][2][2] == -2


def test_actions_of_dicts_pass_through_a_wrapper() -> None:
    space = ACTION_SPACES[3]
    fns = [partial(Walk, 9, space, OBSERVATION_SPACES[0]) for _ in range(2)]
    with (
        wrappers.TransformAction(SyncVectorEnv(fns), lambda a: a) as envs,
        SyncVectorEnv(fns) as same,
    ):
        envs.reset(seed=0), same.reset(seed=0)
        actions = concatenate(
            batch_space(space, 3), [batch_space(space, 3).sample() for _ in range(2)], None
        )
        assert_identical(envs.step_chunk(actions), same.step_chunk(actions))
        ragged = {**actions, "arm": actions["arm"][:, :2]}
        with pytest.raises(InvalidActionError, match=r"\(2, 2\) and \(2, 3\)"):
            envs.step_chunk(ragged)
        with pytest.raises(InvalidActionError, match=r"actions\['grip'\]\[0\]"):
            same.step_chunk(ragged)
        with pytest.raises(InvalidActionError, match="a dict with"):
            same.step_chunk({"grip": actions["grip"]})


def test_agents() -> None:
    make = partial(make_vec, partial(Crowd, different=True), 2, backend="sync", agents="dict")
    with make() as envs, make() as single:
        envs.reset(seed=0), single.reset(seed=0)
        actions = dict.fromkeys(("blue_0", "red_1", "blue_2"), np.ones((2, 2), int))
        chunk = envs.step_chunk(actions)
        for number in range(2):
            part = {key: value[:, number] for key, value in actions.items()}
            observations, rewards, _, _, infos = single.step(part)
            assert_identical(chunk.rewards[:, number], rewards)
        assert_identical(chunk.observations, observations)
        assert_identical(chunk.infos, infos)


# ---------------------------------------------------------------------- beside other calls


class Writes(Placing, Ledger):
    """Writes its observations directly into its row."""


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_environments_that_write_into_their_rows(kind: str) -> None:
    with KINDS[kind]([partial(Writes, n, 9) for n in range(4)], buffers=2) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            chunk = envs.step_chunk(np.ones((4, 3), int))
            envs.step([0] * 4)
        assert chunk.observations[:, 2].tolist() == [7.0] * 4


def test_chunks_between_sends_and_rollouts() -> None:
    with SyncVectorEnv(factories(), buffers=2) as envs:
        with pytest.raises(ResetNeededError, match="before the first reset"):
            envs.step_chunk(np.zeros((4, 2), int))
        envs.reset(seed=0)
        envs.step_chunk(np.zeros((2, 2), int), env_ids=[0, 2])
        assert sorted(envs.recv(2).env_ids.tolist()) == [1, 3]
        envs.send([0], env_ids=[1])
        with pytest.raises(AlreadyPendingCallError, match="recv its results first"):
            envs.step_chunk(np.zeros((1, 2), int), env_ids=[2])
        envs.recv(1)
        with pytest.raises(ValueError, match="alone"):
            envs.rollout_view()
        envs.reset(seed=0)
        envs.step([0] * 4)
        envs.rollout_view()
        envs.step_chunk(np.zeros((4, 1), int))
        with pytest.raises(ValueError, match="in chunks"):
            envs.rollout_view()


def test_a_copy_of_a_vector_env_takes_chunks() -> None:
    with SyncVectorEnv(informing(4, True)) as envs:
        envs.reset(seed=0)
        envs.step_chunk(np.zeros((4, 1), int), "all")
        with pickle.loads(pickle.dumps(envs)) as other:
            results = [one.step_chunk(np.ones((4, 2), int), "all") for one in (envs, other)]
            assert_identical(*results)
        assert envs.step_chunk(np.zeros((0, 3), int), env_ids=[]).rewards.shape == (0, 3)


def test_workers_that_are_replaced_after_episodes_take_no_chunks() -> None:
    with AsyncVectorEnv(factories(), num_workers=4, recycle_after=5) as envs:
        envs.reset(seed=0)
        with pytest.raises(ValueError, match="recycle_after"):
            envs.step_chunk(np.zeros((4, 2), int))
