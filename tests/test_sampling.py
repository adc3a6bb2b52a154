"""Random actions within masks: of every form, in batches, in evaluations and in checks."""

from __future__ import annotations

import functools
import importlib.util
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.crosses import diagonal, ordinarily
from tests.envs.masked import LENGTH, SPACES, Strict
from vecspaces import evaluate, make_vec, sample_actions, spaces
from vecspaces.sampling import sample_next
from vecspaces.testing import check_env
from vecspaces.vector.utils import batch_space

WAYS = [
    {"kind": "Discrete", "declared": True},
    {"kind": "Discrete", "dtype": bool},
    {"kind": "Discrete", "dtype": float},
    *({"kind": kind} for kind in SPACES),
]


def objects(*values: Any) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


@diagonal(
    way=[
        {"backend": "sync"},
        {"backend": "async", "num_workers": 2},
        {"backend": "sync", "autoreset_mode": "SameStep"},
    ],
    arguments=WAYS,
)
def test_masks_of_every_form_are_respected(arguments: dict[str, Any], way: Any) -> None:
    rng = np.random.default_rng(4)
    with make_vec(partial(Strict, **arguments), 5, **way) as envs:
        batch = batch_space(envs.single_action_space, 5)
        result: Any = envs.reset(seed=3)
        for _ in range(4 * LENGTH):  # a forbidden action is an error; a final state allows none
            actions = sample_next(envs, result, rng)
            assert actions in batch
            result = envs.step(actions)


def test_each_allowed_action_is_drawn_as_often() -> None:
    masks = np.tile(np.array([[1, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]], np.int8), (3000, 1))
    has_mask = np.tile([True, True, False], 3000)
    whole = {"action_mask": masks, "_action_mask": has_mask}
    apart = {"action_mask": objects(*masks), "_action_mask": has_mask}
    for infos in (whole, apart):  # all at once, and row by row
        drawn = sample_actions(
            spaces.Discrete(4, start=-1, dtype=np.int16), 9000, infos, rng=np.random.default_rng(0)
        )
        assert drawn.dtype == np.int16
        counts = [np.bincount(drawn[row::3] + 1, minlength=4) for row in range(3)]
        assert counts[0][1] == 0 and np.all(abs(counts[0][[0, 2, 3]] - 1000) < 150)
        assert counts[1].tolist() == [0, 3000, 0, 0]
        assert np.all(abs(counts[2] - 750) < 150)


def test_masks_may_have_the_forms_that_libraries_give_them() -> None:
    space = spaces.MultiDiscrete([[2, 3], [2, 2]])
    flat = np.array([[0, 1, 0, 0, 1, 1, 0, 0, 1]])  # as sb3-contrib has them
    assert sample_actions(space, 1, {"action_mask": flat}).tolist() == [[[1, 2], [0, 1]]]
    square = np.eye(3)[[[0, 1], [2, 2]]]  # of merged infos, where all masks are as long
    actions = sample_actions(spaces.MultiDiscrete([3, 3]), 2, {"action_mask": square})
    assert actions.tolist() == [[0, 1], [2, 2]]
    for mask in ([0, 1, 0], (False, True, False)):
        infos = {"action_mask": objects(mask, None)}
        assert sample_actions(spaces.Discrete(3), 2, infos)[0] == 1


def test_spaces_without_masks_and_rows_without_them_are_sampled_freely() -> None:
    box = spaces.Box(0, 1, (2,))
    assert sample_actions(box, 3, {"action_mask": np.zeros((3, 2))}) in batch_space(box, 3)
    for space in SPACES.values():
        for infos in (None, {}, {"action_mask": np.zeros(2), "_action_mask": np.zeros(2, bool)}):
            assert sample_actions(space, 2, infos) in batch_space(space, 2)
    assert len(sample_actions(spaces.Discrete(3), 0)) == 0


def test_the_draws_are_those_of_the_generator_or_of_the_space() -> None:
    masks = {"action_mask": np.ones((6, 9), np.int8)}
    pairs: list[Any] = [
        (spaces.Discrete(9), gymnasium.spaces.Discrete(9)),
        (spaces.Dict(a=spaces.Discrete(9)), gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(9))),
    ]
    for space in (space for pair in pairs for space in pair):
        infos = {"action_mask": {"a": masks["action_mask"]}} if "Dict" in str(space) else masks
        seeded, unseeded = [], []
        for _ in range(2):
            rng = np.random.default_rng(5)
            seeded.append([str(sample_actions(space, 6, infos, rng=rng)) for _ in range(3)])
            space.seed(5)
            unseeded.append([str(sample_actions(space, 6, infos)) for _ in range(3)])
        for draws in (seeded, unseeded):
            assert draws[0] == draws[1]
            assert len(set(draws[0])) == 3


def first_allowed(observations: Any, *, infos: dict[str, Any]) -> Any:
    """Play the first action that is allowed; check that infos are those of the same rows."""
    assert np.array_equal(infos["time"] % 10, observations[:, 0])
    masks = infos.get("action_mask", np.zeros((len(observations), 5)))
    return np.argmax(masks, axis=1) + 2


class FirstAllowed:
    """The same with a state, which it does not need; it is always given all rows."""

    def __init__(self) -> None:
        self.sizes: set[int] = set()

    def reset(self, rows: Any) -> None:
        pass

    def __call__(self, observations: Any, infos: Any = None) -> Any:
        self.sizes.add(len(observations))
        return first_allowed(observations, infos=infos)


EVALUATIONS: list[dict[str, Any]] = [
    {"num_workers": 2},
    {"num_workers": 2, "num_envs": 3, "batch_size": 2},
    {"backend": "sync", "num_envs": 1},
]


@pytest.mark.parametrize(
    "arguments",
    ordinarily(lambda arguments: arguments in (WAYS[0], WAYS[-1]), zip(WAYS, strict=True)),
    ids=str,
)
def test_a_random_policy_takes_actions_that_are_allowed(arguments: dict[str, Any]) -> None:
    results = [
        evaluate("random", Strict, episodes=12, seed=1, env_kwargs=arguments, **way)
        for way in EVALUATIONS
    ]
    for result in results:
        assert result.returns.tolist() == results[0].returns.tolist()


def test_a_random_policy_names_the_environment_whose_mask_allows_nothing() -> None:
    env_kwargs = {"empty": 3}
    with pytest.raises(ValueError, match=r"environment \d: action_mask: expected a 1"):
        evaluate("random", Strict, episodes=4, seed=1, env_kwargs=env_kwargs, backend="sync")


@pytest.mark.parametrize("declared", [False, True])
def test_a_policy_with_a_parameter_named_infos_is_given_those_of_its_rows(declared: bool) -> None:
    results, stateful = [], FirstAllowed()
    wrapped = functools.wraps(first_allowed)(lambda *args, **named: first_allowed(*args, **named))
    policies: list[Any] = [first_allowed, stateful, partial(first_allowed), wrapped]
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")

        class Network(torch.nn.Module):  # type: ignore[name-defined, misc]
            def forward(self, observations: Any, infos: Any) -> Any:
                return first_allowed(observations, infos=infos)

        policies.append(Network())
    for policy in policies:
        others = EVALUATIONS[::2] if policy is stateful else EVALUATIONS[2:]  # without processes
        for way in EVALUATIONS if policy is first_allowed else others:
            arguments: Any = {"episodes": 12, "seed": 1, "env_kwargs": {"declared": declared}}
            results.append(evaluate(policy, Strict, **arguments, **way))
    assert stateful.sizes == {1, 12}
    for result in results:
        assert result.returns.tolist() == results[0].returns.tolist()


def test_no_other_parameter_is_given_infos() -> None:
    def predict(observations: Any, state: Any = None, /, info: Any = None, **named: Any) -> Any:
        assert state is None and info is None and not named
        return np.zeros(len(observations), np.int64)

    def positional(observations: Any, infos: Any = None, /) -> Any:
        assert infos is None
        return np.zeros(len(observations), np.int64)

    for policy in (predict, positional):
        evaluate(policy, "CartPole-v1", episodes=2, seed=1, backend="sync")


@pytest.mark.parametrize(
    "arguments", ordinarily(lambda arguments: arguments is WAYS[0], zip(WAYS, strict=True)), ids=str
)
def test_check_plays_within_the_masks(arguments: dict[str, Any], in_process: None) -> None:
    report = check_env(partial(Strict, **arguments), num_steps=40)
    assert {finding.name for finding in report.findings} == set()
    assert report.num_steps > 5  # on a busy machine, time is up early


@pytest.mark.parametrize(("empty", "where"), [(3, "step 3 of episode 1"), (0, "reset 1")])
def test_check_names_a_mask_that_allows_nothing(empty: int, where: str, in_process: None) -> None:
    finding = check_env(partial(Strict, empty=empty), num_steps=40).findings[0]
    assert (finding.name, finding.severity) == ("action-mask", "error")
    assert finding.message.startswith(f"{where}: returns an info that does not fit: action_mask: ")
