"""as_vec_env: what Stable-Baselines3's own DummyVecEnv gives, on every backend, in every mode."""

from __future__ import annotations

import multiprocessing
import warnings
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.adapters.course import DICT, Course
from tests.adapters.test_agents import Alone
from tests.compare import assert_identical
from tests.crosses import diagonal
from tests.envs import Ledger, Sampler, Tag
from vecspaces import spaces
from vecspaces.adapters.gymnasium import as_gymnasium
from vecspaces.adapters.pettingzoo import as_vector_env
from vecspaces.errors import InvalidActionError
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.wrappers import RecordEpisodeStatistics

sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
from stable_baselines3.common import vec_env as sb3_vec_env  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.envs import IdentityEnv  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402

from vecspaces.adapters.stable_baselines3 import (  # noqa: E402
    DummyVecEnv,
    SubprocVecEnv,
    VecspacesVecEnv,
    as_vec_env,
)

BACKENDS = {"sync": SyncVectorEnv, "async": partial(AsyncVectorEnv, num_workers=2)}
MODES = list(AutoresetMode)
METHODS = multiprocessing.get_all_start_methods()
FASTEST = "fork" if "fork" in METHODS else "spawn"


@pytest.fixture(params=BACKENDS)
def constructor(request: pytest.FixtureRequest) -> Any:
    return BACKENDS[request.param]


def courses(count: int = 4, **arguments: Any) -> list[Any]:
    return [partial(Course, number, **arguments) for number in range(count)]


def monitored(number: int) -> Any:
    return Monitor(Course(number)) if number % 2 else Course(number)


def converted(make: Any, mode: AutoresetMode, env_fns: Any) -> Any:
    return as_vec_env(make(env_fns, autoreset_mode=mode))


def followed(vec_env: Any, steps: int = 12, seed: int = 5) -> list[Any]:
    """Everything that a run shows, resets included."""
    vec_env.seed(seed)
    shown: list[Any] = [vec_env.reset(), [dict(info) for info in vec_env.reset_infos]]
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        observations, rewards, dones, infos = vec_env.step(rng.integers(3, size=vec_env.num_envs))
        shown += [observations, rewards, dones, [dict(sorted(info.items())) for info in infos]]
        shown.append([dict(info) for info in vec_env.reset_infos])
    vec_env.close()
    for info in (info for part in shown if isinstance(part, list) for info in part):
        last = info.get("terminal_observation")
        if isinstance(last, dict):  # an int of an environment is what its space samples in ours
            last["time"] = int(last["time"])
    return [dict(part) if isinstance(part, dict) else part for part in shown]


# ---------------------------------------------------------------------- a run

CLASSES = {
    "ours": partial(VecspacesVecEnv, num_workers=2),
    "ours sync": partial(VecspacesVecEnv, backend="sync", num_workers=2),
    "ours next step": partial(VecspacesVecEnv, autoreset_mode="NextStep", num_workers=1),
    "subproc": partial(SubprocVecEnv, start_method=FASTEST, num_workers=99),
    "dummy": DummyVecEnv,
}
CONVERTED = {
    f"{backend} {mode.value}": partial(converted, make, mode)
    for backend, make in BACKENDS.items()
    for mode in MODES
}


@diagonal(make=CLASSES | CONVERTED, space={"Box": None, "Dict": DICT})
def test_a_run_is_that_of_dummy_vec_env(make: Any, space: Any) -> None:
    ours, theirs = make(courses(space=space)), sb3_vec_env.DummyVecEnv(courses(space=space))
    assert isinstance(ours, sb3_vec_env.VecEnv)
    assert_identical(followed(ours), followed(theirs))


def test_spaces_seeds_and_options_are_those_of_sb3() -> None:
    vec_env = as_vec_env(as_gymnasium(SyncVectorEnv(courses(2), autoreset_mode="SameStep")))
    assert vec_env.observation_space == Course(0).observation_space
    assert vec_env.action_space == gymnasium.spaces.Discrete(3)
    assert vec_env.seed(7) == [7, 8]
    assert len(set(vec_env.seed())) == 2
    vec_env.set_options({"track": 3})
    first = vec_env.reset()
    kept = first.copy()
    for _ in range(4):
        vec_env.step(np.zeros(2, int))
    assert_identical(first, kept)  # what was returned is not written over
    vec_env.close()


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("second", [{"track": 3}, {"track": 1}, {}])
def test_set_options_concerns_the_next_reset_alone(name: str, second: dict[str, Any]) -> None:
    vec_env = CLASSES[name](courses(2))
    vec_env.set_options([{"track": 3}, second])
    for _ in range(2):
        vec_env.reset()
        for _ in range(4):
            vec_env.step(np.zeros(2, int))  # to the end of an episode
    rest = vec_env.get_attr("options")[0][1:]
    assert rest == [None] * len(rest) and len(rest) > 1
    assert vec_env.get_attr("options") == [[{"track": 3}, *rest], [second or None, *rest]]
    vec_env.close()


def test_whole_numbers_may_come_as_floats() -> None:
    class Switches(Ledger):
        action_space = spaces.MultiBinary(5)  # type: ignore[assignment]

        def step(self, action: Any) -> Any:
            return super().step(action.sum())

    vec_env = as_vec_env(SyncVectorEnv([Switches] * 2))
    vec_env.reset()
    observations, *_ = vec_env.step(np.array([[1, 0, 1, 0, 0], [0] * 5], np.float32))
    assert observations[:, 3].tolist() == [2, 0]
    with pytest.raises(InvalidActionError):
        vec_env.step(np.full((2, 5), 0.5, np.float32))
    vec_env.close()


@pytest.mark.parametrize("name", CLASSES)
def test_make_vec_env_takes_any_class(name: str, tmp_path: Path) -> None:
    runs = []
    for kind in (CLASSES[name], sb3_vec_env.DummyVecEnv):
        folder = tmp_path / str(len(runs))
        vec_env = make_vec_env("Pendulum-v1", 2, seed=5, vec_env_cls=kind, monitor_dir=str(folder))
        assert vec_env.env_is_wrapped(Monitor) == [True, True]
        shown: list[Any] = [vec_env.reset()]
        for _ in range(201):  # an episode has 200 steps
            actions = np.array([vec_env.action_space.sample() for _ in range(2)])
            shown.append(vec_env.step(actions)[:3])
        # Their own action spaces go on from the seed that `make_vec_env` gave them.
        shown.append([space.sample() for space in vec_env.get_attr("action_space")[1:]])
        vec_env.close()
        logs = [path.read_text().splitlines() for path in sorted(folder.iterdir())]
        lengths = [line.split(",")[1] for log in logs for line in log[2:]]
        assert lengths == ["200", "200"]
        runs.append(shown)
    assert_identical(*runs)


def test_a_process_starts_as_in_sb3() -> None:
    with pytest.raises(ValueError, match="cannot find context for 'unheard of'"):
        SubprocVecEnv(courses(), start_method="unheard of")
    vec_env = SubprocVecEnv([partial(Ledger, 0)])
    assert vec_env.vector_env.context == ("forkserver" if "forkserver" in METHODS else "spawn")
    vec_env.close()


def test_its_environments_can_be_seen() -> None:
    vec_env = DummyVecEnv([partial(monitored, number) for number in range(2)])
    vec_env.set_attr("mark", 7, indices=1)
    assert [hasattr(env, "mark") for env in vec_env.envs] == [False, True]  # on the wrapper
    assert vec_env.envs[0].number == 0
    vec_env.close()


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Dict(
            go=gymnasium.spaces.Discrete(3), by=gymnasium.spaces.Box(-1, 1, (2,))
        ),
        gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-1, 1, (2,)))),
    ],
    ids=["Dict", "Tuple"],
)
def test_actions_of_many_parts_come_one_per_environment(space: Any) -> None:
    env_fns = [partial(Sampler, gymnasium.spaces.Discrete(2), space, shortest=9)] * 3
    vec_env = DummyVecEnv(env_fns)
    vec_env.reset()
    space.seed(3)
    actions = [space.sample() for _ in range(3)]
    vec_env.step(actions)
    assert_identical(vec_env.get_attr("action"), actions)
    with pytest.raises(ValueError, match="items"):
        vec_env.step(actions[:2])
    vec_env.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_an_environment_of_one_agent_among_agents_is_reset_at_its_end(mode: AutoresetMode) -> None:
    members = [partial(as_vector_env, Tag(), autoreset_mode=mode), Alone]
    info_space = as_vector_env(Tag()).info_space
    vec_env = as_vec_env(SyncVectorEnv(members, autoreset_mode=mode, info_space=info_space))
    vec_env.reset()
    for over in (False, True) * 3:
        observations, _, dones, infos = vec_env.step(np.ones(4, np.int64))
        assert dones.tolist() == [False] * 3 + [over]
        assert observations[3, 0] == (1 if over else 2)
        assert ("terminal_observation" in infos[3]) == over
    vec_env.close()


def test_without_it_stable_baselines3_refuses_a_vector_env() -> None:
    with SyncVectorEnv(courses(2)) as envs:
        for wrong in (envs, as_gymnasium(envs)):
            # What docs/troubleshooting.md quotes.
            with pytest.raises(ValueError, match=r"The environment is of type .*vecspaces"):
                sb3.PPO("MlpPolicy", wrong)


# ---------------------------------------------------------------------- reaching the environments


def test_methods_attributes_and_wrappers_with_indices(constructor: Any) -> None:
    vec_env = as_vec_env(constructor([partial(monitored, number) for number in range(4)]))
    assert vec_env.env_method("multiply", 3, plus=1) == [1, 4, 7, 10]
    assert vec_env.env_method("multiply", 3, indices=[2, 0]) == [6, 0]
    assert vec_env.get_attr("number", indices=-1) == [3]
    twice = {"indices": [2, 0, 2]}
    assert vec_env.env_method("multiply", 3, **twice) == [6, 0, 6]
    assert vec_env.get_attr("number", **twice) == [2, 0, 2]
    vec_env.set_attr("novel", 4, **twice)
    assert vec_env.env_is_wrapped(gymnasium.Env, **twice) == [False] * 3  # it wraps nothing
    vec_env.set_attr("number", [5], indices=[1])
    assert vec_env.get_attr("number") == [0, [5], 2, 3]
    assert vec_env.get_attr("multiply", indices=0)[0](2, 1) == 1  # it is not called
    known = [vec_env.has_attr(name) for name in ("number", "needs_reset", "nowhere")]
    assert known == [True, False, False]  # a Monitor has `needs_reset`
    assert vec_env.env_is_wrapped(Monitor) == [False, True, False, True]
    assert vec_env.env_is_wrapped(Monitor, indices=1) == [True]
    assert vec_env.env_is_wrapped(gymnasium.wrappers.ClipReward) == [False] * 4
    vec_env.close()


def test_images_are_tiled_as_dummy_vec_env_tiles_them(constructor: Any) -> None:
    vec_env = as_vec_env(constructor(courses(render_mode="rgb_array")))
    theirs = sb3_vec_env.DummyVecEnv(courses(render_mode="rgb_array"))
    assert vec_env.metadata["render_fps"] == 4  # for a video
    assert_identical(list(vec_env.get_images()), list(theirs.get_images()))
    assert_identical(vec_env.render(), theirs.render())
    vec_env.close()
    theirs.close()


# ---------------------------------------------------------------------- refusals


def test_what_is_refused_is_closed() -> None:
    inner = gymnasium.spaces.Dict(x=gymnasium.spaces.Discrete(2))
    env_fns = [partial(Sampler, gymnasium.spaces.Dict(inner=inner), gymnasium.spaces.Discrete(2))]
    with pytest.raises(NotImplementedError, match="Nested"):
        DummyVecEnv(env_fns)  # as in SB3
    as_vec_env(SyncVectorEnv(env_fns)).close()
    with pytest.raises(ValueError, match="copy=True"):  # a fixture looks for its workers
        VecspacesVecEnv(courses(), num_workers=1, copy=False)


ACTIONS = [
    gymnasium.spaces.Discrete(3, start=-1),
    gymnasium.spaces.MultiDiscrete([2, 3], start=[0, 1]),
]


@pytest.mark.parametrize("space", ACTIONS)
def test_actions_that_do_not_start_at_0_are_refused_with_the_wrapper(space: Any) -> None:
    class Started(Sampler, gymnasium.Env[Any, Any]):  # which Gymnasium's wrappers take
        pass

    make = partial(Started, gymnasium.spaces.Discrete(2), space)

    def wrap() -> Any:
        env = make()
        space = type(env.action_space)(getattr(env.action_space, "nvec", 3))
        return gymnasium.wrappers.TransformAction(env, lambda a: a + env.action_space.start, space)

    with pytest.raises(ValueError, match=r"wrap each environment in gymnasium.*TransformAction"):
        DummyVecEnv([make])
    vec_env = DummyVecEnv([wrap])
    vec_env.reset()
    vec_env.step(np.zeros((1, *space.shape), int))
    vec_env.close()


# ---------------------------------------------------------------------- Stable-Baselines3's own


def test_training_on_an_environment_that_draws_from_its_spaces_is_that_of_dummy_vec_env() -> None:
    weights = []
    for kind in (DummyVecEnv, sb3_vec_env.DummyVecEnv):
        with closing(kind([lambda: IdentityEnv(3)])) as vec_env:
            model = sb3.PPO("MlpPolicy", vec_env, seed=1, n_steps=32, batch_size=32).learn(64)
        weights.append([weight.detach().numpy() for weight in model.policy.parameters()])
    assert_identical(*weights)


def cart_poles(mode: str = "SameStep", count: int = 2) -> Any:
    env_fns = [partial(gymnasium.make, "CartPole-v1")] * count
    return AsyncVectorEnv(env_fns, num_workers=1, autoreset_mode=mode)


@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN"])
def test_its_algorithms_train_and_its_evaluation_runs(name: str) -> None:
    settings = {
        "PPO": {"n_steps": 32, "batch_size": 32, "n_epochs": 2},
        "DQN": {"learning_starts": 50},
    }
    vec_env: Any
    if name == "A2C":  # our statistics, inside, are those that its log shows
        vec_env = as_vec_env(RecordEpisodeStatistics(cart_poles()))
    else:
        vec_env = sb3_vec_env.VecMonitor(as_vec_env(cart_poles()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PPO would rather have another device
        model = getattr(sb3, name)("MlpPolicy", vec_env, seed=1, **settings.get(name, {}))
        model.learn(256)
        mean, _ = evaluate_policy(model, vec_env, n_eval_episodes=3)
    assert model.num_timesteps >= 256 and mean > 0
    assert len(model.ep_info_buffer) > 2
    vec_env.close()
