"""ActionChunks: a chunk is its actions one by one, in every space, mode and place of a wrapper."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from itertools import product
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract import ALL_SPACES
from tests.crosses import ordinarily
from tests.envs import Ledger, Sampler, informing, ledgers, rewarding, talking
from tests.envs.agents import Crowd
from vecspaces import make_vec, spaces
from vecspaces.envs import ActionChunks
from vecspaces.errors import InvalidRewardError
from vecspaces.testing import check_env
from vecspaces.vector import AutoresetMode, infos_as_list
from vecspaces.vector.utils import batch_space, concatenate

K, CHUNKS = 3, 7


def take(env: Any, actions: Any) -> tuple[Any, ...]:
    """Take actions one by one, as an environment alone does, and put the results together."""
    rewards = np.zeros(len(actions))
    total = 0.0
    for number, action in enumerate(actions):
        observation, reward, *flags, info = env.step(action)
        rewards[number] = reward
        total += float(reward)
        if any(flags):
            break
    return observation, total, *flags, {**info, "rewards": rewards, "steps": number + 1}


@pytest.mark.parametrize("name", ALL_SPACES)
@pytest.mark.parametrize("is_foreign", [False, True])
def test_actions_of_every_space_are_those_of_single_steps(name: str, is_foreign: bool) -> None:
    space: Any = ALL_SPACES[name]
    action_space = space
    if is_foreign:
        from vecspaces.adapters.gymnasium import to_gymnasium

        action_space = to_gymnasium(space)
    alone = Sampler(spaces.Discrete(9), space, shortest=4)
    chunked = ActionChunks(Sampler(spaces.Discrete(9), action_space, shortest=4), K)
    assert type(chunked.action_space).__module__.startswith("gymnasium") == is_foreign
    if not is_foreign:
        assert chunked.action_space == batch_space(space, K)
    sampled = copy.deepcopy(space)
    sampled.seed(5)
    for seed in range(6):
        assert_identical(chunked.reset(seed=seed), alone.reset(seed=seed))
        over = False
        while not over:
            actions = [sampled.sample() for _ in range(K)]
            result = chunked.step(concatenate(space, actions, None))
            assert_identical(result, take(alone, actions))
            over = result[2] or result[3]


def test_rewards_are_added_in_float64_one_after_the_other() -> None:
    rewards = [np.float32(0.1), 1, np.int8(3), 1e16, -1e16, np.array([True]), np.array(0.7)]
    env = ActionChunks(rewarding(*rewards), len(rewards))
    _, total, _, _, info = env.step([0] * len(rewards))
    expected = 0.0
    for reward in rewards:
        expected += np.float64(np.ravel(reward)[0])
    assert type(total) is float and total == expected != total + 0.1
    assert_identical(info["rewards"], np.array([np.ravel(row)[0] for row in rewards], np.float64))


def bare(env: Any, seed: int, chunks: Any, mode: AutoresetMode) -> Iterator[tuple[Any, ...]]:
    """Yield what one row of a vector env returns, from single steps of an environment."""
    observation, info = env.reset(seed=seed)
    yield observation, 0.0, False, False, info
    over = False
    for actions in chunks:
        if over and mode is AutoresetMode.NEXT_STEP:
            observation, info = env.reset()
            over = False
            yield observation, 0.0, False, False, info
            continue
        if over and mode is AutoresetMode.DISABLED:
            env.reset()
        observation, *results, info = take(env, actions)
        over = results[1] or results[2]
        if over and mode is AutoresetMode.SAME_STEP:
            final = {"final_obs": observation, "final_info": info}
            observation, info = env.reset()
            info = {**info, **final}
        yield observation, *results, info


def assert_equals_single_steps(mode: AutoresetMode, **way: Any) -> None:
    env_fns: list[Any] = [lambda env_fn=env_fn: ActionChunks(env_fn(), K) for env_fn in ledgers(4)]
    chunks = np.random.default_rng(0).integers(5, size=(CHUNKS, 4, K))
    expected = zip(
        *(bare(env_fn(), row, chunks[:, row], mode) for row, env_fn in enumerate(ledgers(4))),
        strict=True,
    )
    with make_vec(env_fns, autoreset_mode=mode, **way) as envs:
        observations, infos = envs.reset(seed=0)
        results: Any = observations, np.zeros(4), np.zeros(4, bool), np.zeros(4, bool), infos
        for number, rows in enumerate(expected):
            if number:
                ended = results[2] | results[3]
                if mode is AutoresetMode.DISABLED and ended.any():
                    envs.reset(options={"reset_mask": ended})
                results = envs.step(chunks[number - 1])
            for column, values in zip(results[:4], zip(*rows, strict=True), strict=False):
                assert_identical(column, np.array(values))
            for chunk_info, (*_, info) in zip(infos_as_list(results[4], 4), rows, strict=True):
                assert_alike(chunk_info, info)


def assert_alike(actual: Any, expected: dict[str, Any]) -> None:
    """Compare infos, whose keys may be in another order, and numbers of NumPy's types."""
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, dict):
            assert_alike(actual[key], value)
        else:
            np.testing.assert_array_equal(actual[key], value)
            assert np.asarray(actual[key]).dtype == np.asarray(value).dtype


@pytest.mark.parametrize(
    ("way", "mode"),
    ordinarily(
        lambda way, mode: way in ("sync", "fork"),
        product(["sync", "fork", "spawn", "forkserver"], AutoresetMode),
    ),
)
def test_vector_envs_of_chunks_equal_single_steps(way: str, mode: AutoresetMode) -> None:
    processes = {"num_workers": 2, "vector_kwargs": {"context": way}}
    assert_equals_single_steps(mode, **({"backend": way} if way == "sync" else processes))


def test_the_infos_of_the_environment_and_of_chunks_are_declared_together() -> None:
    env_fns = [lambda env_fn=env_fn: ActionChunks(env_fn(), K) for env_fn in informing(2, True)]
    inside = informing(1, True)[0]().info_space
    with make_vec(env_fns, backend="sync") as envs:
        assert dict(envs.info_space.spaces).keys() == {*inside.spaces, "rewards", "steps"}
        envs.reset(seed=0)
        *_, infos = envs.step(np.zeros((2, K), np.int64))
        assert (infos["rewards"].shape, infos["rewards"].dtype) == ((2, K), np.float64)
        assert (infos["steps"].shape, infos["steps"].dtype) == ((2,), np.int64)


def test_wrappers_of_gymnasium_go_inside_and_outside() -> None:
    inside = gymnasium.make("CartPole-v1", render_mode="rgb_array", max_episode_steps=10)
    chunked = ActionChunks(gymnasium.wrappers.RecordEpisodeStatistics(inside), 4)
    assert isinstance(chunked, gymnasium.Env) and isinstance(chunked, ActionChunks)
    assert chunked.unwrapped is inside.unwrapped
    assert (chunked.spec.id, chunked.render_mode) == (inside.spec.id, "rgb_array")
    assert chunked.metadata == inside.metadata
    env = gymnasium.wrappers.TimeLimit(
        gymnasium.wrappers.AddRenderObservation(chunked, render_only=True), 2
    )
    observation, _ = env.reset(seed=1)
    assert observation.shape == env.render().shape == (400, 600, 3)
    assert env.np_random_seed == 1 and env.np_random is inside.unwrapped.np_random
    chunk = np.array([0, 1, 0, 1])
    assert env.step(chunk)[4]["steps"] == 4
    *_, truncated, info = env.step(chunk)
    assert truncated and info["steps"] == 4 and "episode" not in info
    assert env.get_wrapper_attr("gravity") == 9.8 and env.get_wrapper_attr("k") == 4
    env.set_wrapper_attr("gravity", 1.0)
    assert inside.unwrapped.gravity == 1.0 and "gravity" not in vars(chunked)
    assert not env.has_wrapper_attr("missing")
    generator = np.random.default_rng(3)
    chunked.np_random = generator
    assert inside.unwrapped.np_random is generator
    env.close()


def test_environments_need_few_members(in_process: None) -> None:
    class Bare:
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

        def reset(self, *, seed: Any = None) -> Any:
            return 0, {}

        def step(self, action: Any) -> Any:
            return 1, 1, False, False, {}

    with ActionChunks(Bare(), 2) as env:
        env.reset(seed=1)
        assert env.step([0, 1])[:2] == (1, 2.0)
        assert (env.render_mode, env.spec, env.metadata) == (None, None, {})
        assert not env.has_wrapper_attr("speed") and not isinstance(env, gymnasium.Env)
        assert not env.set_wrapper_attr("speed", 1, force=False)
        assert env.set_wrapper_attr("speed", 2) and env.get_wrapper_attr("speed") == 2
    report = check_env(lambda: ActionChunks(gymnasium.make("CartPole-v1"), 3))
    report.raise_for_findings("warning")
    copied = pickle.loads(pickle.dumps(ActionChunks(gymnasium.make("CartPole-v1"), 3)))
    assert isinstance(copied, gymnasium.Env) and copied.reset(seed=1)[0].shape == (4,)


@pytest.mark.parametrize("key", ["rewards", "steps"])
def test_keys_of_chunks_are_refused_in_the_environments_infos(key: str) -> None:
    class Declaring(Ledger):
        info_space = spaces.Dict({key: spaces.Discrete(2)})

    with pytest.raises(ValueError, match="info_space has the key 'rewards' or 'steps'"):
        ActionChunks(Declaring(), 2)
    with pytest.raises(ValueError, match="environment's info has the key 'rewards' or 'steps'"):
        ActionChunks(talking({key: 1}), 1).step([0])


def test_wrong_chunks_rewards_and_vector_envs_are_refused() -> None:
    for reward in (None, "1", np.zeros(2)):
        with pytest.raises(InvalidRewardError, match=r"the environment returned .* as its reward"):
            ActionChunks(rewarding(reward), 1).step([0])
    env = ActionChunks(rewarding(1.0), 2)
    for actions in ([0], [0] * 3):
        with pytest.raises(ValueError, match=f"chunk of 2 actions, found {len(actions)}"):
            env.step(actions)
    with make_vec(Ledger, 2, backend="sync") as envs:
        for several in (envs, Crowd()):
            with pytest.raises(TypeError, match="ActionChunks: expected a single environment"):
                ActionChunks(several, 2)
    with pytest.raises(ValueError, match="k must be an integer of at least 1, found 0"):
        ActionChunks(Ledger(), 0)
