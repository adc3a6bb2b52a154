"""VectorEnv for Tianshou: what its own DummyVectorEnv gives its collectors, on every backend."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.adapters.course import DICT, Course
from tests.compare import assert_identical
from tests.envs import Gated, Patient, Sampler
from tests.vector.bounds import overrun
from vecspaces import spaces
from vecspaces.adapters.gymnasium import as_gymnasium
from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    InvalidActionError,
    ResetNeededError,
)
from vecspaces.vector import SyncVectorEnv

pytest.importorskip("tianshou", reason="Tianshou is not installed")
import torch
from tianshou.algorithm.algorithm_base import Policy
from tianshou.data import AsyncCollector, Batch, Collector, VectorReplayBuffer
from tianshou.env import BaseVectorEnv, DummyVectorEnv
from tianshou.highlevel.env import EnvFactoryRegistered, EnvMode

from vecspaces.adapters.tianshou import VectorEnv

CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "sync": partial(VectorEnv, backend="sync", num_workers=2),
    "async": partial(VectorEnv, num_workers=2),
}


@pytest.fixture(params=CONSTRUCTORS)
def constructor(request: pytest.FixtureRequest) -> Any:
    return CONSTRUCTORS[request.param]


class Fixed(Policy):
    """Acts by what it sees alone, so that both libraries' environments are given the same."""

    def __init__(self, space: Any) -> None:
        super().__init__(action_space=space)

    def forward(self, batch: Any, state: Any = None, **kwargs: Any) -> Any:
        seen = batch.obs.array if isinstance(batch.obs, Batch) else np.asarray(batch.obs)
        numbers = np.asarray(seen, np.float64).reshape(len(seen), -1).sum(1)
        return Batch(act=torch.from_numpy((np.abs(numbers) * 1000).astype(np.int64) % 2))


class Remembering(Fixed):
    """Tianshou's AsyncCollector needs a policy that has a state and something to keep."""

    def forward(self, batch: Any, state: Any = None, **kwargs: Any) -> Any:
        result = super().forward(batch, state)
        kept = np.zeros((len(result.act), 1))
        return Batch(act=result.act, state=kept, policy=Batch(kept=kept))


def plain(x: Any) -> Any:
    """A value as lists and arrays, with NumPy's scalars as Python's."""
    if isinstance(x, dict):
        return {key: plain(x[key]) for key in sorted(x)}
    if isinstance(x, np.ndarray) and x.dtype == object:
        return [plain(item) for item in x]
    if isinstance(x, (list, tuple)):
        return [plain(item) for item in x]
    return x.item() if isinstance(x, np.generic) else x


def play(envs: Any, *, seed: int = 3) -> list[Any]:
    """Reset, step and reset all and some environments, and write down what is returned."""
    shown = [plain(envs.reset(seed=seed)), plain(envs.step(np.array([0, 1, 2, 0])))]
    shown.append(plain(envs.step(np.array([1, 0]), np.array([2, 0]))))
    shown.append(plain(envs.reset([3, 1])))
    shown.append(plain(envs.reset(2, seed=9)))
    shown.append(plain(envs.step([1], id=3)))
    shown.append(plain(envs.seed(5)))
    shown.append(plain(envs.reset(options={})))
    shown.append(plain(envs.step(torch.tensor([0, 1, 1, 0]))))
    shown.append([space.sample().item() for space in envs.action_space for _ in range(5)])
    shown.append(envs.get_env_attr("number", [2, 0]))
    envs.set_env_attr("number", 7, id=[1])
    shown.append(envs.get_env_attr("number"))
    envs.close()
    return shown


@pytest.mark.parametrize("space", [None, DICT, gymnasium.spaces.Discrete(5)], ids=str)
def test_every_call_gives_what_dummy_vector_env_gives(constructor: Any, space: Any) -> None:
    factories = [partial(Course, number, space) for number in range(4)]
    results = play(constructor(factories))
    assert_identical(results, play(DummyVectorEnv(factories)))


def collect(envs: Any, arguments: list[dict[str, Any]]) -> list[Any]:
    """Collect a few times over, and return what lies in the buffer after each."""
    buffer = VectorReplayBuffer(400, len(envs))
    envs.seed(11)
    collector = Collector(Fixed(envs.action_space[0]), envs, buffer)
    collector.reset()
    shown: list[Any] = []
    for options in arguments:
        stats = collector.collect(**options)
        shown.append((stats.n_collected_steps, plain(stats.returns), plain(stats.lens)))
        held = buffer[:]
        shown.append([plain(getattr(held, name)) for name in ("act", "rew", "terminated", "done")])
        for name in ("obs", "obs_next"):
            seen = getattr(held, name)
            shown.append(seen if isinstance(seen, np.ndarray) else [seen.array, seen.time])
        shown.append(plain(held.info.env_id))
    collector.close()
    return shown


COLLECTS = [
    {"n_step": 30},
    {"n_episode": 7},
    {"n_episode": 3, "random": True},
    {"n_step": 18, "random": True, "reset_before_collect": True},
    {"n_episode": 25},
]


CART_POLES = [partial(gymnasium.make, "CartPole-v1")] * 8
COLLECTED: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "box": ([partial(Course, number) for number in range(4)], COLLECTS),
    "dict": ([partial(Course, number, DICT) for number in range(4)], COLLECTS),
    "cart poles": (CART_POLES, [{"n_episode": 25}, {"n_step": 200}, {"n_episode": 25}]),
}


@pytest.mark.parametrize("name", COLLECTED)
def test_collects_fill_the_buffer_as_dummy_vector_env_does(constructor: Any, name: str) -> None:
    factories, arguments = COLLECTED[name]
    results = collect(constructor(factories), arguments)
    assert_identical(results, collect(DummyVectorEnv(factories), arguments))


# ---------------------------------------------------------------------- AsyncCollector


@pytest.mark.parametrize("arguments", [{"wait_num": 2}, {"timeout": 0.05}], ids=str)
def test_steps_of_some_return_those_that_are_ready(constructor: Any, arguments: Any) -> None:
    envs = constructor([partial(Course, number) for number in range(4)], **arguments)
    assert envs.is_async
    first, _ = envs.reset(seed=0)
    seen: dict[int, int] = dict.fromkeys(range(4), 0)
    ready = np.arange(4)
    for _ in range(40):
        observations, rewards, terminations, truncations, infos = envs.step([1] * len(ready), ready)
        ready = np.array([info["env_id"] for info in infos])
        assert 1 <= len(ready) <= 4 and len(set(ready.tolist())) == len(ready)
        assert not set(ready.tolist()) & set(envs.waiting_id)
        assert sorted([*ready.tolist(), *envs.waiting_id]) == list(range(4))
        for row, number in enumerate(ready.tolist()):
            seen[number] += 1
            assert infos[row]["time"] == observations[row, 0] == seen[number]
            assert rewards[row] == 0.1 * number
        ended = ready[terminations | truncations]
        if len(ended):
            observations, _ = envs.reset(env_id=ended)
            assert observations[:, 0].tolist() == [0.0] * len(ended)
            seen.update(dict.fromkeys(ended.tolist(), 0))
    if envs.waiting_id:
        busy = list(envs.waiting_id)
        with pytest.raises(AlreadyPendingCallError, match=r"call step\(None"):
            envs.reset(busy)
        with pytest.raises(AlreadyPendingCallError):
            envs.step([0] * len(busy), busy)
        assert sorted(i["env_id"] for i in envs.step(None, id=busy)[4]) == sorted(busy)
    assert envs.waiting_id == [] and envs.ready_id == [0, 1, 2, 3]
    assert_identical(envs.reset(seed=0)[0], first)
    envs.close()


def test_a_step_returns_those_that_are_ready_after_its_timeout(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    env_fns = [partial(Gated, gate, number) for number in range(3)]
    envs = VectorEnv(env_fns, timeout=overrun(0.2), num_workers=3)
    envs.reset(seed=0)
    ready = [info["env_id"] for info in envs.step([4, 0, 0])[4]]  # the first one waits
    assert sorted(ready) == [1, 2] and envs.waiting_id == [0]
    gate.touch()
    envs.step(None, [0])
    envs.close()
    envs = VectorEnv(
        [partial(Patient, number) for number in range(2)], timeout=0.001, num_workers=2
    )
    envs.reset(seed=0)
    ready = [info["env_id"] for info in envs.step([30, 300])[4]]  # milliseconds
    assert ready and sorted(ready + envs.waiting_id) == [0, 1]  # at least one
    envs.close()


@pytest.mark.filterwarnings("ignore:Using async setting")
def test_async_collector_collects(constructor: Any) -> None:
    envs = constructor([partial(Course, number) for number in range(4)], wait_num=3)
    collector = AsyncCollector(Remembering(envs.action_space[0]), envs, VectorReplayBuffer(400, 4))
    collector.reset()
    assert collector.collect(n_step=60).n_collected_steps >= 60
    collector.reset()  # while some are stepping
    collector.collect(n_step=20)
    held = collector.buffer[:]
    steps = held.obs_next[:, 0] - held.obs[:, 0]
    assert steps.tolist() == [1.0] * len(steps)  # every transition is of one environment
    collector.close()


class Failing(Course):
    """Fails at the action 2."""

    def step(self, action: Any) -> Any:
        if action == 2:
            raise OverflowError("too far")
        return super().step(action)


@pytest.mark.parametrize("arguments", [{}, {"wait_num": 1}], ids=["sync", "async"])
def test_after_an_error_all_can_be_reset(constructor: Any, arguments: Any) -> None:
    envs = constructor([partial(Failing, number) for number in range(3)], **arguments)
    first, _ = envs.reset(seed=0)
    if not arguments:  # else only some of them are ready
        while not envs.step([0] * 3)[2].any():
            pass
        with pytest.raises(ResetNeededError):  # an episode is over
            envs.step([0] * 3)
        envs.reset([0, 1, 2])
    with pytest.raises(OverflowError):
        for _ in range(3):
            envs.step([2] * len(envs.ready_id), envs.ready_id)
    while envs.waiting_id:  # the others failed too
        with pytest.raises(OverflowError):
            envs.step(None, envs.waiting_id[:1])
    assert_identical(envs.reset(seed=0)[0], first)
    ready = [info["env_id"] for info in envs.step([1, 1, 1])[4]]
    assert len(ready) == (1 if arguments else 3)
    envs.close()


def test_step_raises_an_error_alone_and_then_returns_the_others(constructor: Any) -> None:
    envs = constructor([partial(Failing, number) for number in range(4)], wait_num=2)
    envs.reset(seed=0)
    stepped: list[int] = []
    with pytest.raises(OverflowError):
        while True:
            ids = [number for number in envs.ready_id if number not in stepped]
            stepped += [info["env_id"] for info in envs.step([2 * (i == 1) for i in ids], ids)[4]]
    while envs.waiting_id:
        stepped += [info["env_id"] for info in envs.step(None, envs.waiting_id[:2])[4]]
    assert sorted(stepped) == [0, 2, 3]
    envs.close()


# ---------------------------------------------------------------------- what it takes


def test_it_is_a_vector_env_of_tianshou_and_takes_one_of_vecspaces() -> None:
    inner = SyncVectorEnv(
        [lambda: Sampler(spaces.Discrete(3), spaces.Discrete(2))] * 2, autoreset_mode="Disabled"
    )
    for vector_env in (inner, as_gymnasium(inner)):
        envs = VectorEnv(vector_env)
        assert isinstance(envs, BaseVectorEnv)
        assert envs.vector_env is inner and len(envs) == 2
    with pytest.raises(TypeError, match="observations that are tuples"):
        VectorEnv([lambda: Sampler(spaces.Tuple([]), spaces.Discrete(2))] * 2, num_workers=1)
    envs = VectorEnv(as_gymnasium(inner))
    assert envs.reset(seed=0)[0].shape == (2,)
    assert all(isinstance(space, gymnasium.spaces.Space) for space in envs.action_space)
    envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.reset()
    envs.close()


def test_bounds_may_differ_and_whole_actions_may_be_floats(constructor: Any) -> None:
    factories = [
        partial(Course, number, gymnasium.spaces.Box(0, 9 + number, (2,))) for number in range(3)
    ]
    shown = []
    for envs in (constructor(factories), DummyVectorEnv(factories)):
        shown.append([plain(envs.reset(seed=3)), envs.observation_space])
        shown[-1] += [plain(envs.step(np.array([0.0, 2.0, 1.0]))), plain(envs.step([1.0], [2]))]
        envs.close()
    assert_identical(*shown)
    envs = constructor(factories)
    envs.reset()
    for wrong in ([0.5, 1, 1], [np.nan, 1, 1], [[1], 2, 3]):
        with pytest.raises(InvalidActionError):
            envs.step(wrong)
    envs.close()


def test_dict_actions_come_one_per_environment(constructor: Any) -> None:
    action_space = spaces.Dict(move=spaces.Discrete(4), push=spaces.Box(-1, 1, (2,), np.float32))
    env_fn = partial(Sampler, spaces.Discrete(3), action_space, shortest=9)
    envs = constructor([env_fn] * 3)
    envs.reset(seed=0)
    actions = np.array([space.sample() for space in envs.action_space])
    envs.step(actions[:2], [2, 0])
    assert_identical(envs.get_env_attr("action", [2, 0]), actions[:2].tolist())
    envs.close()


@pytest.mark.filterwarnings("error")
def test_one_that_was_made_here_closes_when_it_is_dropped() -> None:
    envs = VectorEnv([partial(Course, 0)] * 2, num_workers=1)
    (worker,) = envs.vector_env.processes
    inner = envs.vector_env
    del envs
    gc.collect()
    assert inner.closed
    with pytest.raises(ValueError, match="closed"):
        worker.is_alive()


def test_the_high_level_interface_makes_it() -> None:
    factory = EnvFactoryRegistered(task="CartPole-v1", venv_type=VectorEnv)
    envs = factory.create_venv(2, EnvMode.TRAINING, seed=3)
    assert isinstance(envs, VectorEnv) and envs.env_num == 2
    envs.reset()
    assert envs.step([0, 1])[0].shape == (2, 4)
    envs.close()
