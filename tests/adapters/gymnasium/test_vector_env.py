"""Real Gymnasium vector envs: the same numbers as Gymnasium's own, and all that ours adds."""

from __future__ import annotations

import inspect
import warnings
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.side_by_side import run
from tests.compare import assert_identical
from tests.envs import Drift, Sampler, ledgers
from tests.strategies import Recipe, recipes, seeds
from vecspaces import spaces, vector
from vecspaces.adapters.gymnasium import AsyncVectorEnv, SyncVectorEnv, as_gymnasium, make_vec

BACKENDS = {"sync": SyncVectorEnv, "async": partial(AsyncVectorEnv, num_workers=2)}
BUNDLED = sorted(
    env_id
    for env_id, spec in gymnasium.registry.items()
    if str(spec.entry_point).startswith(
        ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
    )
)


@pytest.fixture(params=BACKENDS)
def constructor(request: pytest.FixtureRequest) -> Any:
    return BACKENDS[request.param]


def made(env_id: str, count: int = 3, **arguments: Any) -> list[Any]:
    return [partial(gymnasium.make, env_id, **arguments)] * count


def test_it_is_a_vector_env_of_gymnasium_with_its_spaces(constructor: Any) -> None:
    theirs = gymnasium.vector.SyncVectorEnv(made("Pendulum-v1"))
    theirs.action_space.seed(5)
    with closing(theirs), constructor(made("Pendulum-v1")) as envs:
        assert isinstance(envs, getattr(gymnasium.vector, type(envs).__name__))
        assert envs.unwrapped is envs
        for name in ("observation_space", "action_space"):
            for kind in (name, f"single_{name}"):
                assert isinstance(getattr(envs, kind), gymnasium.Space)
                assert getattr(envs, kind) == getattr(theirs, kind)
        envs.action_space.seed(5)
        for _ in range(3):
            assert_identical(envs.action_space.sample(), theirs.action_space.sample())
        assert repr(theirs) == "SyncVectorEnv(num_envs=3)"
        assert repr(envs) == f"{type(envs).__name__}(num_envs=3)"
        with pytest.raises(AttributeError, match="no_such_thing"):
            envs.no_such_thing  # noqa: B018


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_attributes_of_gymnasiums_classes_are_those_of_ours(mode: str) -> None:
    kind: Any = getattr(gymnasium.vector, f"{mode.title()}VectorEnv")
    with make_vec("CartPole-v1", 2, vectorization_mode=mode) as envs:
        assert isinstance(envs, kind)
        for name in vars(kind):
            if not name.startswith("_"):
                assert inspect.getattr_static(envs, name) is not vars(kind)[name]
                getattr(envs, name)


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_it_shows_the_arguments_of_ours_and_its_base_is_gymnasiums(kind: Any) -> None:
    assert inspect.signature(kind) == inspect.signature(getattr(vector, kind.__name__))
    assert gymnasium.vector.VectorEnv in kind.__bases__  # skrl's `wrap_env` looks no further


@pytest.mark.parametrize("env_id", BUNDLED)
def test_every_bundled_environment_runs_inside_unchanged(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some ids are older versions
        theirs = gymnasium.vector.SyncVectorEnv(made(env_id, 2))
        ours = SyncVectorEnv(made(env_id, 2))
        assert_identical(run(ours, steps=12), run(theirs, steps=12))


@given(recipe=recipes(max_leaves=3), seed=seeds, are_ours=st.booleans())
def test_values_lie_in_the_spaces_of_either_side(recipe: Recipe, seed: int, are_ours: bool) -> None:
    assert_values_lie_in_spaces(recipe.build(spaces if are_ours else gymnasium.spaces), seed)


FOREIGN_GRAPH = gymnasium.spaces.Graph(
    gymnasium.spaces.Box(0, 1, (2,)), gymnasium.spaces.Discrete(3)
)


def test_graphs_in_sequences_are_those_of_either_side() -> None:
    sequence = gymnasium.spaces.Sequence
    either = gymnasium.spaces.OneOf((FOREIGN_GRAPH, gymnasium.spaces.Text(3)))
    stacked = (
        sequence(FOREIGN_GRAPH, stack=True),
        sequence(gymnasium.spaces.Dict(graph=FOREIGN_GRAPH), stack=True),
    )
    listed = FOREIGN_GRAPH, sequence(FOREIGN_GRAPH), sequence(sequence(FOREIGN_GRAPH))
    space = gymnasium.spaces.Tuple((*listed, *stacked, sequence(either)))
    assert_values_lie_in_spaces(space, seed=1)


def assert_values_lie_in_spaces(space: Any, seed: int) -> None:
    """Observations, actions and final observations of an environment lie in them."""
    mode = list(vector.AutoresetMode)[seed % 2]  # DISABLED shows no more of it
    for constructor in (SyncVectorEnv, vector.SyncVectorEnv):
        with constructor([partial(Choosy, space)] * 2, autoreset_mode=mode) as envs:
            observations, _ = envs.reset(seed=seed)
            envs.action_space.seed(seed)
            assert observations in envs.observation_space
            for _ in range(4):
                observations, *_, infos = envs.step(envs.action_space.sample())
                assert observations in envs.observation_space
                for row in np.flatnonzero(infos.get("_final_obs", ())):
                    assert infos["final_obs"][row] in envs.single_observation_space


class Choosy(Sampler):
    """A sampler that observes and is acted upon in one space, and insists on it."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, space)

    def step(self, action: Any) -> Any:
        assert action in self.action_space
        return super().step(action)


GRAPHS = spaces.Dict(graph=spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)))


def test_graphs_are_gymnasiums_through_step_wait_and_recv() -> None:
    with AsyncVectorEnv([partial(Sampler, GRAPHS, GRAPHS)] * 2, num_workers=1) as envs:
        envs.reset_async(seed=3)
        assert envs.reset_wait()[0] in envs.observation_space
        envs.step_async(envs.action_space.sample())
        assert envs.step_wait()[0] in envs.observation_space
        envs.send(envs.action_space.sample())
        transition = envs.recv()
        assert isinstance(transition, vector.Transition)
        assert transition.observations in envs.observation_space


def test_the_error_for_a_vector_env_of_gymnasium_names_its_module() -> None:
    theirs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    with closing(theirs), pytest.raises(TypeError, match=r"found gymnasium\..*\.SyncVectorEnv$"):
        as_gymnasium(theirs)  # type: ignore[arg-type]  # wrong on purpose


def test_our_own_arguments_and_methods_are_passed_on() -> None:
    env_fns = ledgers(4, render_mode="rgb_array")
    with AsyncVectorEnv(env_fns, num_workers=2, buffers=3, copy=False) as envs:
        assert envs.render_mode == "rgb_array"
        envs.reset(seed=1)
        for _ in range(2):
            envs.step(np.zeros(4, np.int64))
        assert envs.rollout_view().observations.shape == (3, 4, 5)
        assert envs.num_workers == 2
        assert envs.step(np.array([1, 2]), [3, 0])[0][:, 0].tolist() == [3, 0]
        assert envs.call("multiply", 3, env_ids=[2]) == (6,)
        assert_identical(envs.render()[1], np.full((2, 3, 3), 1, np.uint8))
    assert envs.closed


def test_a_simulator_of_either_library_can_be_inside() -> None:
    drift = as_gymnasium(Drift(3))
    drift.reset(seed=1)
    assert drift.step(drift.action_space.sample())[0] in drift.observation_space
    drift.close()
    assert drift.vector_env.closed
    with make_vec(partial(gymnasium.make_vec, "CartPole-v1", 2), 2, num_workers=2) as envs:
        assert isinstance(envs.vector_env, vector.AsyncVectorEnv)
        assert envs.call(isinstance, gymnasium.vector.VectorEnv) == (True,) * 4
        assert envs.reset(seed=1)[0].shape == (4, 4)


@pytest.mark.parametrize("mode", ["sync", gymnasium.VectorizeMode.SYNC])
def test_make_vec_takes_gymnasiums_arguments(mode: Any) -> None:
    wrappers = (gymnasium.wrappers.TimeAwareObservation,)
    ours = make_vec("CartPole-v1", num_envs=3, vectorization_mode=mode, wrappers=wrappers)
    theirs = gymnasium.make_vec("CartPole-v1", 3, "sync", wrappers=wrappers)
    assert isinstance(ours, gymnasium.vector.VectorEnv)
    assert ours.spec.id == theirs.spec.id == "CartPole-v1"
    assert_identical(run(ours, steps=10), run(theirs, steps=10))


def test_make_vec_refuses_the_argument_backend_that_environments_may_have() -> None:
    with pytest.raises(TypeError, match=r"vectorization_mode.*env_kwargs"):
        make_vec("CartPole-v1", 2, backend="sync")
    factory: Any = lambda backend: gymnasium.make("CartPole-v1")  # noqa: E731
    with make_vec(factory, 2, "sync", env_kwargs={"backend": "x"}) as envs:
        assert envs.num_envs == 2
