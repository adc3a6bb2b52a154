"""The contract of every vector env of single environments, as a suite of tests to inherit.

A backend derives a class from `VectorEnvContract` and makes a vector env in `make`; what differs
between backends is not in here.
"""

from __future__ import annotations

import copy
import warnings
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from vecspaces import spaces
from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    InvalidActionError,
    InvalidInfoError,
    InvalidObservationError,
    InvalidRewardError,
    NoAsyncCallError,
    ResetNeededError,
)
from vecspaces.interop import require_extra
from vecspaces.testing.compare import assert_identical
from vecspaces.testing.envs import (
    INFO_SPACE,
    Chosen,
    Drift,
    Echo,
    Ledger,
    Noted,
    Reusing,
    Sampler,
    Unlike,
    failing,
    informing,
    informing_vector,
    ledger_vector,
    ledgers,
    observing,
    rewarding,
    talking,
    wrapped_ledger,
)
from vecspaces.vector import AutoresetMode, SyncVectorEnv, VectorEnv, infos_as_list
from vecspaces.vector.utils import iterate

require_extra("pytest", "testing")

import pytest  # noqa: E402  # after the message that names the extra

MODES = list(AutoresetMode)
ALL_SPACES = {
    "Box": spaces.Box(-1, 1, (2, 3), np.float32),
    "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "Discrete": spaces.Discrete(5, start=-2),
    "MultiBinary": spaces.MultiBinary((2, 2)),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "Text": spaces.Text(6, charset="abcé漢"),
    "Dict": spaces.Dict({"b": spaces.Box(0, 1, (2,)), "a": spaces.Dict(n=spaces.Discrete(3))}),
    "Tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (), np.float64))),
    "Sequence": spaces.Sequence(spaces.Box(0, 1, (2,))),
    "stacked": spaces.Sequence(spaces.Discrete(7), stack=True),
    "Graph": spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
    "OneOf": spaces.OneOf((spaces.Discrete(2), spaces.Box(0, 1, (3,)), spaces.Text(3))),
    "all": spaces.Dict(
        rest=spaces.Tuple(
            (spaces.Sequence(spaces.Discrete(4)), spaces.OneOf((spaces.Discrete(2),) * 2))
        ),
        text=spaces.Text(4),
    ),
}


def samples(envs: VectorEnv[Any, Any, Any], seed: int, count: int) -> list[Any]:
    """Batches of actions that depend on the seed alone."""
    envs.action_space.seed(seed)
    return [envs.action_space.sample() for _ in range(count)]


def make_reference(env_fns: Any, **arguments: Any) -> SyncVectorEnv[Any, Any]:
    """Return the vector env that others must equal."""
    return SyncVectorEnv(env_fns, **arguments)


def assert_same_infos(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Infos are equal; the order of keys means nothing."""
    assert_identical(_sorted(ours), _sorted(theirs), "infos")


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_sorted(item) for item in value.ravel()], value.shape
    return value


def assert_same_step(ours: Any, theirs: Any) -> None:
    """Everything that reset or step returned is equal to the last bit."""
    for number, (one, other) in enumerate(zip(ours[:-1], theirs[:-1], strict=True)):
        assert_identical(one, other, f"result {number}")
    assert_same_infos(ours[-1], theirs[-1])


def assert_same_run(
    envs: VectorEnv[Any, Any, Any],
    reference: VectorEnv[Any, Any, Any],
    steps: int = 12,
    seed: int = 5,
) -> None:
    """Both give the same for the same seeds and actions."""
    disabled = envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    assert_same_step(envs.reset(seed=seed), reference.reset(seed=seed))
    for actions in samples(reference, seed, steps):
        result = envs.step(actions)
        assert_same_step(result, reference.step(actions))
        ended = result[2] | result[3]
        if disabled and ended.any():
            options = {"reset_mask": ended}
            assert_same_step(
                envs.reset(seed=seed, options=options),
                reference.reset(seed=seed, options=dict(options)),
            )


def _infos(envs: VectorEnv[Any, Any, Any]) -> dict[str, Any]:
    return envs.step(np.zeros(envs.num_envs, np.int64))[4]


class VectorEnvContract:
    """The behaviour of a vector env as a class of pytest tests; `make` is all that a subclass adds.

    Derive a class whose name begins with `Test`, in a file of tests. All arguments of
    `SyncVectorEnv` are used; a vector env that has none of `stats`, say, fails those tests.

    Example:
        >>> from vecspaces.testing import VectorEnvContract
        >>> from vecspaces.vector import SyncVectorEnv
        >>> class TestMine(VectorEnvContract):
        ...     def make(self, env_fns, **arguments):
        ...         return SyncVectorEnv(env_fns, **arguments)
        >>> TestMine().test_results_are_fresh_copies()

    Attributes:
        built_again_with_1_of_3: Which of three environments a reset builds again after number 1
            broke: more than itself where its worker runs it as one vector env with others.
    """

    built_again_with_1_of_3: tuple[int, ...] = (1,)

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        """Make the vector env under test."""
        raise NotImplementedError

    # ------------------------------------------------------------------ what it shows

    def test_shows_its_spaces_and_numbers(self) -> None:
        with self.make(ledgers(3)) as envs:
            assert envs.num_envs == 3
            assert envs.single_observation_space == Ledger.observation_space
            assert envs.single_action_space == Ledger.action_space
            assert envs.observation_space.shape == (3, 5)
            assert envs.action_space == spaces.MultiDiscrete([5, 5, 5])
            assert envs.spec is None
            assert envs.unwrapped is envs
            assert repr(envs) == f"{type(envs).__name__}(num_envs=3)"

    @pytest.mark.parametrize("mode", MODES)
    def test_metadata_tell_the_mode_and_leave_the_class_alone(self, mode: AutoresetMode) -> None:
        before = dict(Ledger.metadata)
        with self.make(ledgers(2), autoreset_mode=mode.value) as envs:
            assert envs.metadata == {**before, "autoreset_mode": mode}
            assert envs.autoreset_mode is mode
        assert Ledger.metadata == before

    def test_takes_gymnasiums_modes(self) -> None:
        gymnasium = pytest.importorskip("gymnasium")
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        with self.make(ledgers(2), autoreset_mode=mode) as envs:
            assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP

    def test_factories_may_come_from_an_iterator(self) -> None:
        with self.make(iter(ledgers(2))) as envs:
            assert envs.num_envs == 2

    def test_renders_all_or_chosen_environments(self) -> None:
        with self.make(ledgers(3, render_mode="rgb_array")) as envs:
            assert envs.render_mode == "rgb_array"
            envs.reset(seed=0)
            frames = envs.render()
            assert isinstance(frames, tuple)
            assert_identical(frames, tuple(np.full((2, 3, 3), i, np.uint8) for i in range(3)))
            assert_identical(envs.render(env_ids=[2, 0]), (frames[2], frames[0]))

    def test_generators_and_seeds_are_one_per_environment(self) -> None:
        with self.make(ledgers(3)) as envs:
            envs.reset(seed=[4, 5, 6])
            assert envs.np_random_seed == (4, 5, 6)
            for seed, generator in zip((4, 5, 6), envs.np_random, strict=True):
                expected = np.random.default_rng(seed)
                expected.integers(1000)  # the noise of the first observation
                assert generator.bit_generator.state == expected.bit_generator.state

    def test_an_env_fn_that_returns_no_environment_is_named(self) -> None:
        with pytest.raises(TypeError, match=r"env_fns\[1\].*dict.*observation_space"):
            self.make([*ledgers(1), dict])

    def test_an_env_fn_that_raises_gives_its_own_error(self) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            self.make([*ledgers(1), partial(divmod, 1, 0)])
        assert "environment 1" in str(caught.value.__cause__)

    def test_each_env_fn_is_called_once(self, tmp_path: Any) -> None:
        notes = tmp_path / "notes"
        with self.make([partial(Noted, notes, number) for number in range(3)]) as envs:
            envs.reset(seed=0)
            for actions in samples(envs, 0, 8):
                envs.step(actions)
            envs.reset()
            processes = envs.call("process")
        lines = sorted(line.split() for line in notes.read_text().splitlines())
        assert lines == [[str(i), str(processes[i])] for i in range(3)]

    # ------------------------------------------------------------------ reset and step

    def test_types_and_shapes_of_what_reset_and_step_return(self) -> None:
        with self.make(ledgers(3)) as envs:
            observations, infos = envs.reset(seed=0)
            assert observations.shape == (3, 5) and observations.dtype == np.int64
            assert isinstance(infos, dict)
            observations, rewards, terminations, truncations, infos = envs.step(np.zeros(3, int))
            assert observations.shape == (3, 5) and observations.dtype == np.int64
            assert rewards.shape == (3,) and rewards.dtype == np.float64
            assert terminations.shape == (3,) and terminations.dtype == np.bool_
            assert truncations.shape == (3,) and truncations.dtype == np.bool_
            assert isinstance(infos, dict)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("name", ["Box", "Dict", "Text", "all"])
    def test_a_run_equals_syncs_to_the_last_bit(self, name: str, mode: AutoresetMode) -> None:
        space = ALL_SPACES[name]
        env_fns = [partial(Sampler, space, space)] * 5
        with (
            self.make(env_fns, autoreset_mode=mode) as envs,
            make_reference(env_fns, autoreset_mode=mode) as reference,
        ):
            assert_same_run(envs, reference)

    @pytest.mark.parametrize("name", ALL_SPACES)
    def test_all_spaces_are_observed_and_acted_upon(self, name: str) -> None:
        space = ALL_SPACES[name]
        with self.make([partial(Sampler, space, space, shortest=9)] * 3) as envs:
            observations, _ = envs.reset(seed=3)
            assert observations in envs.observation_space
            for actions in samples(envs, 1, 4):
                envs.step(actions)
                for given, taken in zip(
                    iterate(envs.action_space, actions), envs.get_attr("action"), strict=True
                ):
                    assert_identical(taken, given)

    def test_results_are_fresh_copies(self) -> None:
        with self.make(ledgers(2)) as envs:
            first, _ = envs.reset(seed=0)
            kept = first.copy()
            results = [envs.step(np.full(2, action)) for action in range(4)]
            assert_identical(first, kept)
            arrays = [array for result in results for array in result[:4]]
            for number, array in enumerate(arrays):
                for other in arrays[number + 1 :]:
                    assert not np.shares_memory(array, other)

    def test_actions_of_the_same_kind_are_cast(self) -> None:
        space = spaces.Box(-1, 1, (2,), np.float32)
        with self.make([partial(Sampler, space, space)] * 2) as envs:
            envs.reset(seed=0)
            envs.step(np.full((2, 2), 0.1, np.float64))
            assert_identical(envs.get_attr("action"), (np.full(2, 0.1, np.float32),) * 2)
            envs.step([[0.25, 0.5], [1, 0]])
            assert_identical(envs.get_attr("action")[1], np.array([1, 0], np.float32))

    def test_the_actions_of_the_caller_are_not_kept(self) -> None:
        with self.make(ledgers(2, talks=False)) as envs:
            envs.reset(seed=0)
            actions = np.array([1, 2])
            envs.step_async(actions)
            actions[:] = 0
            assert envs.step_wait()[0][:, 3].tolist() == [1, 2]

    # ------------------------------------------------------------------ autoreset

    def test_next_step_resets_in_the_step_after_the_end(self) -> None:
        with self.make([partial(Ledger, 7, length=2)], autoreset_mode="NextStep") as envs:
            envs.reset(seed=0)
            envs.step([1])
            observations, rewards, terminations, _, infos = envs.step([2])
            assert observations[0, :4].tolist() == [7, 1, 2, 2]
            assert terminations.tolist() == [True]
            assert infos["time"].tolist() == [2]
            observations, rewards, terminations, truncations, infos = envs.step([3])
            assert observations[0, :4].tolist() == [7, 2, 0, -1]
            assert (rewards.tolist(), terminations.tolist(), truncations.tolist()) == (
                [0.0],
                [False],
                [False],
            )
            assert infos["episode"].tolist() == [2] and "time" not in infos
            assert envs.step([4])[0][0, :4].tolist() == [7, 2, 1, 4]

    def test_same_step_gives_final_observation_and_info(self) -> None:
        env_fns = [partial(Ledger, 7, length=2), partial(Ledger, 8, length=3)]
        with self.make(env_fns, autoreset_mode="SameStep") as envs:
            envs.reset(seed=0)
            assert "final_obs" not in envs.step([1, 1])[4]
            observations, rewards, terminations, _, infos = envs.step([2, 2])
            assert observations[:, :4].tolist() == [[7, 2, 0, -1], [8, 1, 2, 2]]
            assert rewards.tolist() == [7.25, 8.25]
            assert terminations.tolist() == [True, False]
            assert infos["_final_obs"].tolist() == [True, False]
            assert infos["final_obs"][0][:4].tolist() == [7, 1, 2, 2]
            assert infos["final_obs"][0].dtype == np.int64
            assert infos["final_obs"][1] is None
            assert infos["_final_info"].tolist() == [True, False]
            assert infos["final_info"]["time"].tolist() == [2, 0]
            assert infos["final_info"]["_time"].tolist() == [True, False]
            assert infos["episode"].tolist() == [2, 0]
            assert infos["_episode"].tolist() == [True, False]
            assert infos["_time"].tolist() == [False, True]

    def test_the_final_observation_is_copied_before_the_reset(self) -> None:
        with self.make([Reusing] * 2, autoreset_mode="SameStep") as envs:
            envs.reset()
            for _ in range(3):
                observations, *_, infos = envs.step([0, 0])
            assert observations["count"].tolist() == [[0, 0], [0, 0]]
            assert infos["final_obs"][1]["count"].tolist() == [3, 3]

    def test_final_observations_stay_as_they_are(self) -> None:
        with self.make([Reusing] * 2, autoreset_mode="SameStep", copy=False) as envs:
            envs.reset()
            finals = [envs.step([0, 0])[4].get("final_obs") for _ in range(9)]
            for final in (finals[2], finals[5], finals[8]):
                assert final[0]["count"].tolist() == [3, 3]

    def test_disabled_leaves_the_reset_to_the_caller(self) -> None:
        env_fns = [partial(Ledger, number, length=2 + number) for number in range(3)]
        with self.make(env_fns, autoreset_mode="Disabled") as envs:
            envs.reset(seed=0)
            envs.step([0, 0, 0])
            observations, _, terminations, _, _ = envs.step([1, 1, 1])
            assert terminations.tolist() == [True, False, False]
            after, infos = envs.reset(options={"reset_mask": terminations})
            assert after[0, :4].tolist() == [0, 2, 0, -1]
            assert_identical(after[1:], observations[1:])
            assert infos["_episode"].tolist() == [True, False, False]
            assert envs.step([2, 2, 2])[0][:, :3].tolist() == [[0, 2, 1], [1, 1, 3], [2, 1, 3]]

    def test_disabled_names_the_finished_environments_that_are_stepped(self) -> None:
        env_fns = [partial(Ledger, number, length=1 + number) for number in range(2)]
        with self.make(env_fns, autoreset_mode="Disabled") as envs:
            envs.reset(seed=0)
            envs.step([0, 0])
            for _ in range(2):
                with pytest.raises(ResetNeededError, match=r"^environment 0 finished.*reset_mask"):
                    envs.step([1, 1])
            observations, *_ = envs.reset(options={"reset_mask": np.array([True, False])})
            assert observations[:, :4].tolist() == [[0, 2, 0, -1], [1, 1, 1, 0]]

    # ------------------------------------------------------------------ reset_mask, seeds, options

    @pytest.mark.parametrize("mode", MODES)
    def test_a_partial_reset_touches_the_chosen_alone(self, mode: AutoresetMode) -> None:
        with self.make(ledgers(4), autoreset_mode=mode) as envs:
            envs.reset(seed=0)
            before, *_ = envs.step([1, 2, 3, 4])
            mask = np.array([False, True, False, True])
            options = {"reset_mask": mask, "time": 1}
            observations, infos = envs.reset(seed=[9, 9, 9, None], options=options)
            assert options == {"reset_mask": mask, "time": 1}
            assert_identical(observations[[0, 2]], before[[0, 2]])
            assert observations[[1, 3], :4].tolist() == [[1, 2, 1, -1], [3, 2, 1, -1]]
            assert infos["_episode"].tolist() == mask.tolist()
            seeds = envs.get_attr("seeds")
            assert seeds == ([0], [1, 9], [2], [3, None])
            given = envs.get_attr("options")
            assert given == ([None], [None, {"time": 1}], [None], [None, {"time": 1}])

    def test_a_partial_reset_takes_the_place_of_the_autoreset(self) -> None:
        with self.make([partial(Ledger, i, length=1) for i in range(2)]) as envs:
            envs.reset(seed=0)
            envs.step([0, 0])
            envs.reset(options={"reset_mask": np.array([True, False])})
            observations, rewards, *_ = envs.step([2, 2])
            assert observations[:, :4].tolist() == [[0, 2, 1, 2], [1, 2, 0, -1]]
            assert rewards.tolist() == [0.125, 0.0]

    def test_an_int_seed_counts_up(self) -> None:
        with self.make(ledgers(3)) as envs:
            envs.reset(seed=np.int64(5))
            assert envs.get_attr("seeds") == ([5], [6], [7])

    def test_a_sequence_of_seeds_may_hold_none(self) -> None:
        with self.make(ledgers(3)) as envs:
            envs.reset(seed=(1, None, 3))
            envs.reset(seed=np.array([4, 5, 6]))
            assert envs.get_attr("seeds") == ([1, 4], [None, 5], [3, 6])

    def test_a_seed_sequence_is_spawned(self) -> None:
        sequence, other = np.random.SeedSequence(3), np.random.SeedSequence(3)
        expected = [
            [child.generate_state(1)[0] & 0x7FFFFFFF for child in other.spawn(2)] for _ in range(2)
        ]
        with self.make(ledgers(2)) as envs:
            envs.reset(seed=sequence)
            envs.reset(seed=sequence)
            assert envs.get_attr("seeds") == tuple(map(list, zip(*expected, strict=True)))
        assert len({seed for pair in expected for seed in pair}) == 4

    def test_options_for_all_do_not_reach_autoresets(self) -> None:
        with self.make([partial(Ledger, i, length=1) for i in range(2)]) as envs:
            envs.reset(options={"time": 0})
            envs.step([0, 0])
            envs.step([0, 0])
            assert envs.get_attr("options") == ([{"time": 0}, None],) * 2

    @pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
    def test_options_of_one_environment_are_kept_for_its_autoresets(self, mode: str) -> None:
        with self.make(
            [partial(Ledger, i, length=2) for i in range(3)], autoreset_mode=mode
        ) as envs:
            given: Any = [{"time": 1}, None, {"time": 0}]
            envs.reset(seed=0, options=given)
            for _ in range(4):
                envs.step([0, 0, 0])
            options = envs.get_attr("options")
            assert len(options[0]) >= 3 and set(map(str, options[0])) == {"{'time': 1}"}
            assert set(map(str, options[1])) == {"None"}
            assert set(map(str, options[2])) == {"{'time': 0}"}
            envs.reset(seed=0)
            for _ in range(4):
                envs.step([0, 0, 0])
            assert envs.get_attr("options")[0][-1] is None

    # ------------------------------------------------------------------ observation modes

    def test_different_takes_other_bounds(self) -> None:
        boxes = [spaces.Box(0, high, (5,), np.int64) for high in (8, 9)]
        env_fns = [partial(Unlike, box, number) for number, box in enumerate(boxes)]
        with self.make(env_fns, observation_mode="different") as envs:
            assert envs.single_observation_space == boxes[0]
            assert envs.observation_space.high.tolist() == [[8] * 5, [9] * 5]
            assert envs.reset(seed=0)[0][:, 0].tolist() == [0, 1]

    def test_a_pair_gives_the_spaces_themselves(self) -> None:
        boxes = [spaces.Box(0, high, (5,), np.int64) for high in (8, 9)]
        single = spaces.Box(0, 9, (5,), np.int64)
        batched = spaces.Box(0, 9, (2, 5), np.int64)
        env_fns = [partial(Unlike, box, number) for number, box in enumerate(boxes)]
        with self.make(env_fns, observation_mode=(batched, single)) as envs:
            assert envs.observation_space == batched
            assert envs.single_observation_space == single
            assert envs.reset(seed=0)[0][:, 0].tolist() == [0, 1]

    @pytest.mark.parametrize("mode", ["same", "different"])
    def test_an_environment_that_does_not_fit_is_named_with_both_spaces(self, mode: str) -> None:
        odd = spaces.Box(0, 9, (6,), np.int64)
        with pytest.raises(RuntimeError) as caught:
            self.make([*ledgers(2), partial(Unlike, odd)], observation_mode=mode)
        for part in ("environment 2", str(odd), str(Ledger.observation_space), mode):
            assert part in str(caught.value)

    # ------------------------------------------------------------------ infos

    def test_infos_are_arrays_with_masks(self) -> None:
        env_fns = [partial(Ledger, 0), partial(Ledger, 1, talks=False), partial(Ledger, 2)]
        with self.make(env_fns) as envs:
            envs.reset(seed=0)
            infos = envs.step([0, 0, 0])[4]
            assert_same_infos(
                infos,
                {
                    "time": np.array([1, 0, 1]),
                    "_time": np.array([True, False, True]),
                    "of": {
                        "number": np.array([0, 0, 2]),
                        "_number": np.array([True, False, True]),
                    },
                    "_of": np.array([True, False, True]),
                },
            )
            assert infos_as_list(infos, 3) == [
                {"time": 1, "of": {"number": 0}},
                {},
                {"time": 1, "of": {"number": 2}},
            ]

    def test_empty_infos_are_an_empty_dict(self) -> None:
        with self.make(ledgers(2, talks=False)) as envs:
            assert envs.reset(seed=0)[1] == {}
            assert envs.step([0, 0])[4] == {}

    def test_numbers_of_one_key_are_promoted(self) -> None:
        values = [1, 1.75, True]
        with self.make([partial(talking, {"x": value}) for value in values]) as envs:
            envs.reset()
            assert_identical(envs.step([0, 0, 0])[4]["x"], np.array([1.0, 1.75, 1.0]))

    def test_values_that_are_no_numbers_are_objects(self) -> None:
        values = ["text", None, [1, 2], np.bool_(True)]
        with self.make([partial(talking, {"x": value}) for value in values]) as envs:
            envs.reset()
            found = envs.step([0] * 4)[4]["x"]
            assert found.dtype == object
            assert_identical(list(found), values)

    def test_arrays_of_unequal_shapes_are_objects(self) -> None:
        values = [np.zeros(2), np.zeros((3, 1)), np.zeros(2)]
        with self.make([partial(talking, {"x": value}) for value in values]) as envs:
            envs.reset()
            assert_identical(list(envs.step([0] * 3)[4]["x"]), values)

    def test_an_info_that_is_no_dict_names_the_environment(self) -> None:
        zero = np.zeros(1, np.float32)
        infos: list[Any] = [{}, None, [("a", 1)], 3]
        steps = [(zero, 0.0, False, False, info) for info in infos]
        with self.make([partial(Chosen, spaces.Box(0, 1, (1,)), [(zero, {})], steps)] * 2) as envs:
            for number, info in enumerate(infos[1:], 1):
                envs.reset()
                named = f"environment 0.*{type(info).__name__}"
                with pytest.raises(InvalidInfoError, match=named):
                    envs.step([number, 0])

    # ------------------------------------------------------------------ infos with a space

    @pytest.mark.parametrize("mode", MODES)
    def test_declared_infos_are_those_of_no_info_space(self, mode: AutoresetMode) -> None:
        with (
            self.make(informing(5, True), autoreset_mode=mode) as envs,
            make_reference(informing(5, False), autoreset_mode=mode) as reference,
        ):
            assert envs.info_space == INFO_SPACE
            assert reference.info_space is None
            assert_same_run(envs, reference)

    @pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
    def test_declared_infos_of_some_environments(self, mode: str) -> None:
        with (
            self.make(informing(4, True), autoreset_mode=mode) as envs,
            make_reference(informing(4, False), autoreset_mode=mode) as reference,
        ):
            assert_same_step(envs.reset(seed=2), reference.reset(seed=2))
            for ids in ([3, 1], [0], [2, 3, 0], [1, 0, 2, 3], [3], [1, 2]):
                actions = np.arange(len(ids))
                assert_same_step(envs.step(actions, ids), reference.step(actions, ids))
            mask = np.array([True, False, False, True])
            for number in (2, 1):
                for each in (envs, reference):
                    each.send([number], [number])
                assert_same_infos(envs.recv(1).infos, reference.recv(1).infos)
            options = {"reset_mask": mask}
            assert_same_step(
                envs.reset(seed=7, options=options), reference.reset(seed=7, options=options)
            )
            assert_same_infos(envs.recv(2).infos, reference.recv(2).infos)

    @pytest.mark.parametrize("mode", MODES)
    def test_declared_infos_of_vector_envs_as_environments(self, mode: AutoresetMode) -> None:
        def factories(declares: bool) -> list[Any]:
            one = informing(2, declares)[1]
            return [partial(informing_vector, 3, declares, mode), one]

        with (
            self.make(factories(True), autoreset_mode=mode) as envs,
            make_reference(factories(False), autoreset_mode=mode) as reference,
        ):
            assert_same_run(envs, reference)

    def test_an_info_space_given_to_the_vector_env_wins(self) -> None:
        space = spaces.Dict(cost=spaces.Box(-9, 9, (), np.float32))
        with self.make(informing(3, True), info_space=space) as envs:
            assert envs.info_space == space
            envs.reset(seed=0)
            costs = [envs.step([0, 0, 0])[4].get("cost") for _ in range(5)]
            assert {cost.dtype for cost in costs if cost is not None} == {np.dtype(np.float32)}
        with self.make(informing(3, True), info_space=spaces.Dict()) as envs:
            assert envs.info_space is None

    def test_declared_infos_of_a_rollout(self) -> None:
        with (
            self.make(informing(3, True), copy=False, buffers=4) as envs,
            make_reference(informing(3, False)) as reference,
        ):
            infos = [reference.reset(seed=0)[1]]
            envs.reset(seed=0)
            for _ in range(2):
                for actions in samples(reference, 1, 3):
                    found = envs.step(actions)[4]
                    infos.append(reference.step(actions)[4])
                    assert_same_infos(found, infos[-1])
                rollout = envs.rollout_view()
                assert set(rollout.infos) == {
                    *("mask", "cost", "level", "inner"),
                    *("_mask", "_cost", "_level", "_inner"),
                }
                for key in ("mask", "cost", "level"):
                    for time, info in enumerate(infos):
                        zeros = np.zeros(3, np.bool_)
                        assert_identical(rollout.infos[f"_{key}"][time], info.get(f"_{key}", zeros))
                        if key in info:
                            assert_identical(rollout.infos[key][time], info[key])
                        else:
                            assert not rollout.infos[key][time].any()
                assert rollout.infos["inner"]["deep"]["binary"].shape == (4, 3, 3)
                infos = infos[-1:]
            found = envs.step([1, 1, 1])[4]
            while "mask" not in found:
                found = envs.step([1, 1, 1])[4]
            assert any(np.shares_memory(row, found["mask"]) for row in rollout.infos["mask"])

    def test_declared_infos_are_fresh_copies(self) -> None:
        with self.make(informing(3, True)) as envs:
            envs.reset(seed=0)
            kept = [(infos, copy.deepcopy(infos)) for infos in (_infos(envs) for _ in range(6))]
            for infos, before in kept:
                assert_same_infos(infos, before)

    def test_an_info_outside_its_space_names_environment_and_key(self) -> None:
        info_space = spaces.Dict(
            mask=spaces.MultiBinary(2), inner=spaces.Dict(level=spaces.Box(0, 9, (), np.uint8))
        )
        wrong: list[tuple[Any, str]] = [
            ({"mask": np.zeros(3, np.int8)}, r"info\['mask'\]: expected int8 .*\(2,\), found .*3"),
            ({"mask": [0.5, 1]}, r"info\['mask'\]: expected int8"),
            ({"mask": None}, r"info\['mask'\]: .*found None.*leave the key out"),
            ({"inner": {"level": 300}}, r"info\['inner'\]\['level'\]: .*found.*300"),
            ({"inner": {"level": "x"}}, r"info\['inner'\]\['level'\]"),
            ({"inner": 3}, r"info\['inner'\]: expected a dict.*'level'.*found 3"),
        ]
        steps: list[Any] = [(np.zeros(1, np.float32), 0.0, False, False, {})]
        steps += [(np.zeros(1, np.float32), 0.0, False, False, info) for info, _ in wrong]
        first: list[Any] = [(np.zeros(1, np.float32), {})]
        env_fns = [partial(Chosen, spaces.Box(0, 1, (1,)), first, steps)] * 2
        with self.make(env_fns, info_space=info_space) as envs:
            for number, (_, where) in enumerate(wrong, 1):
                envs.reset()
                assert envs.step([0, 0])[4] == {}
                with pytest.raises(InvalidInfoError, match=f"environment 1 .*{where}"):
                    envs.step([0, number])

    # ------------------------------------------------------------------ rewards, observations

    def test_rewards_are_anything_that_converts_to_float(self) -> None:
        twos: list[Any] = [
            2,
            2.0,
            np.float32(2),
            np.int8(2),
            np.array(2.0),
            np.array([2.0]),
            np.array([2], np.uint8),
            Fraction(4, 2),
            Decimal(2),
        ]
        for others, middle in ((twos, 2.0), ([0.5] * len(twos), 0.5)):
            with self.make([partial(rewarding, *each) for each in (twos, others, twos)]) as envs:
                envs.reset()
                for _ in twos:
                    assert_identical(envs.step([0, 0, 0])[1], np.array([2.0, middle, 2.0]))

    def test_rewards_may_be_beyond_integers_and_even_nan(self) -> None:
        with self.make([partial(rewarding, r) for r in (10**30, True, np.nan, -np.inf)]) as envs:
            envs.reset()
            assert_identical(envs.step([0] * 4)[1], np.array([1e30, 1.0, np.nan, -np.inf]))

    def test_a_reward_that_is_no_number_names_the_environment(self) -> None:
        zero = np.zeros(1, np.float32)
        rewards: list[Any] = [1.0, None, "2", [2.0], 1j, np.array([1.0, 2.0]), np.zeros((1, 1)), {}]
        steps: list[Any] = [(zero, reward, False, False, {}) for reward in rewards]
        with self.make([partial(Chosen, spaces.Box(0, 1, (1,)), [(zero, {})], steps)] * 3) as envs:
            for number in range(1, len(rewards)):
                envs.reset()
                with pytest.raises(InvalidRewardError, match="environment 1 returned"):
                    envs.step([0, number, 0])

    def test_flags_are_anything_that_is_true_or_false(self) -> None:
        zero = np.zeros(1, np.float32)
        flags: list[Any] = [np.bool_(True), 1, np.array(True), np.array([True])]
        steps: list[Any] = [
            (zero, 0.0, *pair, {}) for flag in flags for pair in ((flag, False), (False, flag))
        ]
        echo = partial(Echo, spaces.Box(0, 1, (1,)), [(zero, {})], steps)
        with self.make([echo, partial(rewarding, 1.0)], autoreset_mode="SameStep") as envs:
            envs.reset()
            for _ in flags:
                _, _, terminated, truncated, _ = envs.step([0, 0])
                assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False] * 2)
                _, _, terminated, truncated, _ = envs.step([0, 0])
                assert (terminated.tolist(), truncated.tolist()) == ([False] * 2, [True, False])

    def test_observations_of_the_same_kind_are_cast(self) -> None:
        small = spaces.Box(0, 255, (2,), np.uint8)
        env = partial(observing, small, np.array([3, 255], np.int64), [7, 8])
        with self.make([env] * 2) as envs:
            assert_identical(envs.reset()[0][1], np.array([3, 255], np.uint8))
            assert_identical(envs.step([0, 0])[0][1], np.array([7, 8], np.uint8))
        real = spaces.Box(0, 1, (2,), np.float32)
        with self.make([partial(observing, real, np.array([0.1, 1], np.float64))]) as envs:
            assert_identical(envs.reset()[0][0], np.array([0.1, 1], np.float32))

    def test_an_observation_outside_its_space_names_environment_and_path(self) -> None:
        left = spaces.Dict(camera=spaces.Dict(left=spaces.Box(0, 255, (2,), np.uint8)))
        values: list[Any] = [
            np.zeros(2, np.uint8),
            np.zeros(3, np.uint8),
            np.zeros(1, np.uint8),
            np.array([300, 0]),
            np.array([0.5, 0]),
            None,
            "ab",
        ]
        observations = [{"camera": {"left": value}} for value in values]
        steps: list[Any] = [(observation, 0.0, False, False, {}) for observation in observations]
        with self.make([partial(Chosen, left, [(observations[0], {})], steps)] * 2) as envs:
            for number in range(1, len(values)):
                envs.reset()
                with pytest.raises(InvalidObservationError) as caught:
                    envs.step([0, number])
                assert "environment 1" in str(caught.value)
                assert "observation['camera']['left']: expected uint8" in str(caught.value)

    def test_an_observation_of_another_nesting_names_the_path(self) -> None:
        space = spaces.Dict(a=spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))))
        with (
            self.make([partial(observing, space, {"a": (1,)})]) as envs,
            pytest.raises(InvalidObservationError, match=r"observation\['a'\]"),
        ):
            envs.reset()

    # ------------------------------------------------------------------ actions

    def test_a_wrong_number_of_actions_reaches_nobody(self) -> None:
        with self.make(ledgers(3)) as envs:
            envs.reset(seed=0)
            for actions in (np.zeros(2, int), np.zeros(4, int), np.int64(0), [0, 0], (), None):
                with pytest.raises(InvalidActionError, match="actions"):
                    envs.step(actions)
            assert envs.get_attr("time") == (0, 0, 0)
            assert envs.step([1, 1, 1])[0][:, 2].tolist() == [1, 1, 1]

    # ------------------------------------------------------------------ calls and attributes

    def test_calls_give_one_result_per_environment(self) -> None:
        with self.make(ledgers(3)) as envs:
            assert envs.call("multiply", 10, plus=1) == (1, 11, 21)
            assert envs.call("number") == (0, 1, 2)
            assert envs.call("multiply", 2, env_ids=[2, 0]) == (4, 0)
            assert envs.call("multiply", 2, env_ids=np.array([1])) == (2,)
            assert envs.get_attr("number", env_ids=[1]) == (1,)
            envs.call_async("multiply", factor=3)
            assert envs.call_wait() == (0, 3, 6)
            assert envs.call("multiply", 1, env_ids=[]) == ()

    def test_set_attr_takes_a_value_or_one_per_environment(self) -> None:
        with self.make(ledgers(3)) as envs:
            envs.set_attr("length", 9)
            assert envs.get_attr("length") == (9, 9, 9)
            envs.set_attr("length", [1, 2, 3])
            assert envs.get_attr("length") == (1, 2, 3)
            envs.set_attr("length", (7, 8), env_ids=[2, 0])
            assert envs.get_attr("length") == (8, 2, 7)
            envs.set_attr("length", 5, env_ids=[1])
            assert envs.get_attr("length") == (8, 5, 7)
            envs.set_attr("novel", np.arange(3))
            assert_identical(envs.get_attr("novel"), (np.arange(3),) * 3)
            with pytest.raises(ValueError, match="2 values for 3 environments"):
                envs.set_attr("length", [1, 2])

    def test_calls_look_through_wrappers(self) -> None:
        with self.make([partial(wrapped_ledger, number) for number in range(2)]) as envs:
            assert envs.get_attr("layers") == (1, 1)
            assert envs.call("multiply", 2) == (0, 2)
            envs.set_attr("length", 4)
            envs.set_attr("layers", [2, 3])
            envs.set_attr("novel", 6)
            assert envs.get_attr("layers") == (2, 3)
            inner = envs.get_attr("unwrapped")
            assert [type(env) for env in inner] == [Ledger, Ledger]
            assert [(env.length, env.novel) for env in inner] == [(4, 6), (4, 6)]

    def test_a_missing_attribute_names_the_environment_and_breaks_nothing(self) -> None:
        with self.make(ledgers(3)) as envs:
            envs.reset(seed=0)
            with pytest.raises(AttributeError, match="no_such_name") as caught:
                envs.call("no_such_name")
            assert "environment 0" in str(caught.value.__cause__)
            assert envs.step([1, 1, 1])[0][:, 2].tolist() == [1, 1, 1]

    def test_a_call_that_raises_breaks_nothing(self) -> None:
        with self.make(ledgers(4)) as envs:
            envs.reset(seed=0)
            with pytest.raises(KeyError, match="number 1") as caught:
                envs.call("fail", (1,))
            assert "environment 1" in str(caught.value.__cause__)
            assert envs.call("fail") == ("fine",) * 4
            assert envs.step([1] * 4)[0][:, 2].tolist() == [1] * 4

    # ------------------------------------------------------------------ what may be called when

    def test_reset_in_two_halves(self) -> None:
        with self.make(ledgers(2)) as envs:
            envs.reset_async(seed=3, options={"time": 1})
            observations, infos = envs.reset_wait()
            assert observations[:, :4].tolist() == [[0, 1, 1, -1], [1, 1, 1, -1]]
            assert infos["episode"].tolist() == [1, 1]
            assert envs.np_random_seed == (3, 4)

    def test_nothing_works_after_close_but_close(self) -> None:
        envs = self.make(ledgers(2))
        assert not envs.closed
        envs.reset(seed=0)
        envs.close()
        envs.close()
        assert envs.closed
        for use in (
            envs.reset,
            partial(envs.step, [0, 0]),
            envs.step_wait,
            partial(envs.call, "number"),
            partial(envs.set_attr, "number", 1),
            envs.render,
        ):
            with pytest.raises(ClosedEnvironmentError, match="after close"):
                use()

    def test_the_context_manager_closes(self) -> None:
        with self.make(ledgers(2)) as envs:
            assert envs.reset(seed=0)[0].shape == (2, 5)
        assert envs.closed

    def test_close_takes_gymnasiums_arguments(self) -> None:
        for arguments in ({"timeout": 3}, {"terminate": True}, {"timeout": 0.0}):
            envs = self.make(ledgers(2))
            envs.reset(seed=0)
            with warnings.catch_warnings():  # whom no time at all is too short for, is warned about
                warnings.simplefilter("ignore", RuntimeWarning)
                envs.close(**arguments)
            assert envs.closed

    # ------------------------------------------------------------------ exceptions of environments

    def test_an_exception_in_step_has_its_own_type_and_names_the_environment(self) -> None:
        with self.make(failing(4)) as envs:
            envs.reset(seed=0)
            with pytest.raises(FloatingPointError, match=r"^number 1 got a four$") as caught:
                envs.step([0, 4, 0, 0])
            cause = str(caught.value.__cause__)
            assert "environment 1" in cause and "in step" in cause and "got a four" in cause

    def test_after_an_exception_in_step_a_full_reset_is_needed(self) -> None:
        with self.make(failing(3)) as envs:
            envs.reset(seed=0)
            with pytest.raises(FloatingPointError):
                envs.step([0, 4, 0])
            with pytest.raises(ResetNeededError, match="reset"):
                envs.step([0, 0, 0])
            with pytest.raises(ResetNeededError, match="reset"):
                envs.call("number")
            with pytest.raises(ResetNeededError, match="reset"):
                envs.reset(options={"reset_mask": np.array([False, True, False])})
            observations, _ = envs.reset(seed=0)
            assert observations[1, :4].tolist() == [1, 1, 0, -1], "it was built again"
            others = [1 if row in self.built_again_with_1_of_3 else 2 for row in (0, 2)]
            assert observations[[0, 2], 1].tolist() == others, "the others were not"
            assert envs.step([1, 1, 1])[0][:, 2].tolist() == [1, 1, 1]

    def test_an_exception_in_reset_breaks_too(self) -> None:
        bad = partial(observing, spaces.Discrete(2), 7.5)
        with self.make([partial(observing, spaces.Discrete(2), 1), bad]) as envs:
            for _ in range(2):
                with pytest.raises(InvalidObservationError, match=r"environment 1.*in reset"):
                    envs.reset()
            with pytest.raises(ResetNeededError):
                envs.step([0, 0])

    # ------------------------------------------------------------------ the ring

    def test_with_copy_false_a_result_is_valid_for_the_next_buffers_minus_one_steps(self) -> None:
        with self.make(ledgers(2, talks=False), copy=False, buffers=3) as envs:
            views = [envs.reset(seed=0)[0]]
            kept = [views[0].copy()]
            for action in range(7):
                views.append(envs.step([action % 5] * 2)[0])
                kept.append(views[-1].copy())
                for view, copy in zip(views[-3:], kept[-3:], strict=True):
                    assert_identical(view, copy)

    def test_with_copy_false_a_rollout_view_in_between_costs_one_step_of_validity(self) -> None:
        steps = 3
        with self.make(ledgers(2, talks=False), copy=False, buffers=steps + 1) as envs:
            views = [envs.reset(seed=0)[0]]
            kept = [views[0].copy()]
            for number in range(4 * steps):
                views.append(envs.step([number % 5] * 2)[0])
                kept.append(views[-1].copy())
                for view, copy in zip(views[-steps:], kept[-steps:], strict=True):
                    assert_identical(view, copy)
                if number % steps == steps - 1:
                    envs.rollout_view()

    def test_with_copy_false_a_partial_reset_writes_over_the_rows_that_it_chooses(self) -> None:
        with self.make(ledgers(2), copy=False, buffers=3, autoreset_mode="Disabled") as envs:
            envs.reset(seed=0)
            last = envs.step([1, 1])[0]
            before = last.copy()
            first, _ = envs.reset(options={"reset_mask": np.array([True, False])})
            assert_identical(last, first)
            assert_identical(last[1], before[1])
            assert not np.array_equal(last[0], before[0])

    def test_with_copy_false_nothing_is_copied(self) -> None:
        with self.make(ledgers(2), copy=False) as envs:
            first, _ = envs.reset(seed=0)
            results = [envs.step([1, 2]) for _ in range(3)]
            assert any(np.shares_memory(first, result[0]) for result in results)
            for one, other in zip(results[0][1:4], results[2][1:4], strict=True):
                assert not np.shares_memory(one, other)

    @pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
    def test_a_rollout_is_read_in_time_order_without_copies(self, mode: str) -> None:
        steps = 4
        arguments = {"autoreset_mode": mode}
        with (
            self.make(ledgers(3), copy=False, buffers=steps + 1, **arguments) as envs,
            make_reference(ledgers(3), **arguments) as reference,
        ):
            envs.reset(seed=0)
            observation, _ = reference.reset(seed=0)
            for _ in range(3):
                expected: list[Any] = [[observation], [], [], []]
                for actions in samples(envs, 1, steps):
                    result = envs.step(actions)
                    theirs = reference.step(actions)
                    assert_same_step(result, theirs)
                    for column, array in zip(expected, theirs, strict=False):
                        column.append(array)
                observation = theirs[0]
                rollout = envs.rollout_view()
                for found, column in zip(rollout[:4], expected, strict=True):
                    assert_identical(found, np.stack(column))
                assert np.shares_memory(rollout.observations, result[0])
                assert rollout.observations.shape == (steps + 1, 3, 5)
                assert rollout.rewards.shape == (steps, 3)

    def test_a_rollout_of_nested_observations(self) -> None:
        space = spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Tuple((spaces.Discrete(3),)))
        with self.make([partial(Sampler, space, spaces.Discrete(2))] * 2, buffers=3) as envs:
            kept = [envs.reset(seed=0)[0]]
            kept += [envs.step([0, 1])[0] for _ in range(2)]
            observations = envs.rollout_view().observations
            assert_identical(observations["a"], np.stack([batch["a"] for batch in kept]))
            assert_identical(observations["b"][0], np.stack([batch["b"][0] for batch in kept]))

    def test_a_partial_reset_is_no_step_of_a_rollout(self) -> None:
        arguments = {"autoreset_mode": "Disabled", "buffers": 3}
        with self.make([partial(Ledger, i, length=1 + i) for i in range(2)], **arguments) as envs:
            kept = [envs.reset(seed=0)[0]]
            envs.step([1, 1])
            kept.append(envs.reset(options={"reset_mask": np.array([True, False])})[0])
            observations, *_ = envs.step([2, 2])
            rollout = envs.rollout_view()
            assert_identical(rollout.observations, np.stack([*kept, observations]))
            assert rollout.rewards.tolist() == [[0.125, 1.125], [0.125, 1.25]]
            assert rollout.terminations.tolist() == [[1, 0], [1, 1]]

    # ------------------------------------------------------------------ vector envs as environments

    @pytest.mark.parametrize("mode", MODES)
    def test_an_env_fn_may_return_a_vector_env(self, mode: AutoresetMode) -> None:
        flat = ledgers(7)
        mixed = [*flat[:2], partial(ledger_vector, 2, 3, mode), *flat[5:]]
        with (
            self.make(mixed, autoreset_mode=mode) as envs,
            make_reference(flat, autoreset_mode=mode) as reference,
        ):
            assert envs.num_envs == 7
            assert envs.observation_space == reference.observation_space
            assert envs.action_space == reference.action_space
            assert_same_run(envs, reference)
            assert envs.get_attr("number") == tuple(range(7))

    def test_a_vectorised_simulator_runs_as_it_is(self) -> None:
        alone = Drift(3)
        with self.make([partial(Drift, 3)] * 2) as envs:
            assert envs.num_envs == 6
            observations, _ = envs.reset(seed=4)
            assert_identical(observations[:3], alone.reset(seed=4)[0])
            for actions in samples(envs, 1, 11):
                found = envs.step(actions)
                expected = alone.step(actions[:3])
                for ours, theirs in zip(found[:4], expected[:4], strict=True):
                    assert_identical(ours[:3], theirs)
                if "sum" in expected[4]:
                    assert_identical(found[4]["sum"][:3], expected[4]["sum"])

    def test_a_vector_env_in_another_mode_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"NEXT_STEP.*SAME_STEP"):
            self.make([partial(ledger_vector, 0, 2)], autoreset_mode="SameStep")

    # ------------------------------------------------------------------ stats

    def test_stats_count_steps_and_resets_of_each_environment(self) -> None:
        env_fns = [partial(Ledger, number, length=3 + number) for number in range(3)]
        with self.make(env_fns, stats=True) as envs:
            envs.reset(seed=0)
            for _ in range(12):
                envs.step([0, 0, 0])
            stats = envs.stats()
            assert stats.resets.tolist() == [3, 2, 2]
            assert stats.steps.tolist() == [9, 10, 10]
            for times in (stats.step_mean, stats.step_p99, stats.reset_mean, stats.reset_p99):
                assert times.shape == (3,) and (times > 0).all()
            for shares in (stats.env_waiting, stats.worker_waiting):
                assert ((shares >= 0) & (shares <= 1)).all()
            assert [row for rows in stats.worker_envs for row in rows] == [0, 1, 2]


class RefusalContract:
    """What the caller's side refuses before a command goes out, so that it is the same everywhere.

    One vector env in this process and one with workers run it: how environments are divided, what
    they share and how workers start cannot change the answer. Derive from it beside
    `VectorEnvContract`, whose `make` it uses.
    """

    make: Any

    def test_an_unknown_mode_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="Sometimes"):
            self.make(ledgers(1), autoreset_mode="Sometimes")

    def test_no_environments_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="at least one factory"):
            self.make([])

    @pytest.mark.parametrize(
        ("mask", "error", "said"),
        [
            ([True, False], TypeError, "numpy array, found list"),
            (np.array([1, 0]), TypeError, "dtype bool, found int64"),
            (np.array([True]), ValueError, r"shape \(2,\), found \(1,\)"),
            (np.array([False, False]), ValueError, "at least one"),
        ],
    )
    def test_a_wrong_mask_is_refused_and_nothing_happens(
        self, mask: Any, error: Any, said: str
    ) -> None:
        with self.make(ledgers(2)) as envs:
            envs.reset(seed=0)
            with pytest.raises(error, match=said):
                envs.reset(options={"reset_mask": mask})
            assert envs.get_attr("episode") == (1, 1)
            envs.step([0, 0])

    @pytest.mark.parametrize(
        ("seed", "error"), [([1], ValueError), ("12", TypeError), (1.5, TypeError)]
    )
    def test_a_wrong_seed_is_refused(self, seed: Any, error: Any) -> None:
        with self.make(ledgers(2)) as envs:
            with pytest.raises(error, match="seed"):
                envs.reset(seed=seed)
            envs.reset(seed=1)

    def test_wrong_options_are_refused(self) -> None:
        with self.make(ledgers(2)) as envs:
            with pytest.raises(ValueError, match=r"expected 2 options.*found 1"):
                envs.reset(options=[{}])
            with pytest.raises(TypeError, match=r"options\[1\].*found int"):
                envs.reset(options=[{}, 1])
            with pytest.raises(TypeError, match=r"mapping.*found int"):
                envs.reset(options=3)

    def test_other_bounds_do_not_fit_in_the_mode_same(self) -> None:
        other = spaces.Box(0, 9, (5,), np.int64)
        with pytest.raises(RuntimeError, match=r"environment 1.*use observation_mode='different'"):
            self.make([Ledger, partial(Unlike, other)])

    def test_a_pair_that_does_not_fit_names_the_environment(self) -> None:
        pair = (spaces.Box(0, 9, (2, 6), np.int64), spaces.Box(0, 9, (6,), np.int64))
        with pytest.raises(RuntimeError, match="environment 0"):
            self.make(ledgers(2), observation_mode=pair)

    def test_a_pair_whose_batch_is_no_batch_is_refused(self) -> None:
        single = Ledger.observation_space
        with pytest.raises((RuntimeError, ValueError), match="observation_space"):
            self.make(ledgers(2), observation_mode=(single, single))

    def test_action_spaces_must_be_equal(self) -> None:
        pair = [partial(Sampler, spaces.Discrete(2), spaces.Discrete(n)) for n in (2, 3)]
        with pytest.raises(RuntimeError, match=r"environment 1.*Discrete\(3\).*Discrete\(2\)"):
            self.make(pair)

    @pytest.mark.parametrize(
        ("mode", "error"), [("alike", ValueError), (("a", "b"), TypeError), (3, ValueError)]
    )
    def test_an_unknown_observation_mode_is_refused(self, mode: Any, error: Any) -> None:
        with pytest.raises(error, match="observation_mode"):
            self.make(ledgers(2), observation_mode=mode)

    @pytest.mark.parametrize(
        "actions",
        [
            {"move": np.zeros((2, 3)), "grip": (np.zeros(2, np.int64), ["a", "b"])},
            {"move": np.zeros((2, 2)), "grip": (np.zeros(2), ["a", "b"])},
            {"move": np.zeros((2, 2)), "grip": (np.zeros(2, np.int64), ["a"])},
            {"move": np.zeros((2, 2)), "grip": (np.zeros(2, np.int64), ["a", 3])},
            {"move": np.zeros((2, 2)), "grip": (np.zeros(2, np.int64),)},
            {"move": np.zeros((2, 2))},
            {"move": np.zeros((2, 2), complex), "grip": (np.zeros(2, np.int64), ["a", "b"])},
            [np.zeros((2, 2)), (np.zeros(2, np.int64), ["a", "b"])],
        ],
    )
    def test_actions_of_another_form_say_where_and_reach_nobody(self, actions: Any) -> None:
        space = spaces.Dict(
            move=spaces.Box(-1, 1, (2,), np.float32),
            grip=spaces.Tuple((spaces.Discrete(3), spaces.Text(4))),
        )
        with self.make([partial(Sampler, spaces.Discrete(2), space)] * 2) as envs:
            envs.reset(seed=0)
            with pytest.raises(InvalidActionError, match=r"^actions.*expected.*found"):
                envs.step(actions)
            assert envs.get_attr("action") == (None, None)
            envs.step(envs.action_space.sample())

    def test_an_action_of_one_environment_that_does_not_fit_names_it(self) -> None:
        space = spaces.Dict(say=spaces.Text(3))
        with self.make([partial(Sampler, spaces.Discrete(2), space)] * 3) as envs:
            envs.reset(seed=0)
            with pytest.raises(InvalidActionError, match=r"actions\['say'\].*environment 2"):
                envs.step({"say": ("a", "b", 5)})

    @pytest.mark.parametrize("ids", [[3], [-1], [0, 0]])
    def test_wrong_env_ids_are_refused(self, ids: list[int]) -> None:
        with self.make(ledgers(3)) as envs:
            with pytest.raises(ValueError, match="env_ids"):
                envs.call("number", env_ids=ids)
            with pytest.raises(ValueError, match="env_ids"):
                envs.set_attr("number", 0, env_ids=ids)
            assert envs.call("number") == (0, 1, 2)

    @pytest.mark.parametrize("ids", [1, [1.5], "01", np.array([1.0])], ids=repr)
    def test_env_ids_that_are_no_integers_are_refused(self, ids: Any) -> None:
        with self.make(ledgers(3)) as envs:
            with pytest.raises(TypeError, match="env_ids must be the numbers of environments"):
                envs.call("number", env_ids=ids)
            assert envs.call("number") == (0, 1, 2)

    @pytest.mark.parametrize(
        "mask", [[True, False], np.array([True, False])], ids=["list", "array"]
    )
    def test_a_mask_as_env_ids_is_refused(self, mask: Any) -> None:
        with self.make(ledgers(2)) as envs, pytest.raises(TypeError, match="flatnonzero"):
            envs.call("number", env_ids=mask)

    @pytest.mark.parametrize("name", ["reset", "step", "close"])
    def test_reset_step_and_close_are_not_called_past_the_books(self, name: str) -> None:
        with self.make(ledgers(2)) as envs:
            with pytest.raises(ValueError, match=name):
                envs.call(name)
            envs.reset()

    def test_two_calls_at_once_are_refused_and_the_first_goes_on(self) -> None:
        with self.make(ledgers(2)) as envs:
            envs.reset(seed=0)
            envs.step_async([1, 2])
            for second in (
                partial(envs.step_async, [0, 0]),
                envs.reset_async,
                partial(envs.call_async, "number"),
                partial(envs.set_attr, "number", 5),
            ):
                with pytest.raises(AlreadyPendingCallError, match="step"):
                    second()
            with pytest.raises(NoAsyncCallError, match="call_wait"):
                envs.call_wait()
            assert envs.step_wait()[0][:, 3].tolist() == [1, 2]
            assert envs.get_attr("number") == (0, 1)

    def test_waiting_for_nothing_is_refused(self) -> None:
        with self.make(ledgers(2)) as envs:
            for wait in (envs.reset_wait, envs.step_wait, envs.call_wait):
                with pytest.raises(NoAsyncCallError, match="_async first"):
                    wait()
            envs.reset(seed=0)

    def test_a_rollout_that_is_not_whole_is_refused(self) -> None:
        with self.make(ledgers(2), buffers=3) as envs:
            envs.reset(seed=0)
            envs.step([0, 0])
            with pytest.raises(ValueError, match=r"2 steps.*found 1"):
                envs.rollout_view()
            envs.step([0, 0])
            envs.rollout_view()
            envs.step([0, 0])
            with pytest.raises(ValueError, match=r"2 steps.*found 1"):
                envs.rollout_view()
        with self.make(ledgers(2)) as envs:
            envs.reset(seed=0)
            with pytest.raises(ValueError, match="buffers=T"):
                envs.rollout_view()

    def test_a_rollout_of_environments_that_were_stepped_alone_is_refused(self) -> None:
        with self.make(ledgers(2), buffers=3) as envs:
            envs.reset(seed=0)
            envs.step([0, 0])
            envs.step([1], env_ids=[1])
            envs.step([0, 0])
            with pytest.raises(ValueError, match="some were stepped alone"):
                envs.rollout_view()
            envs.reset(seed=0)
            for _ in range(2):
                envs.step([0, 0])
            assert envs.rollout_view().rewards.shape == (2, 2)

    def test_a_rollout_of_variable_observations_is_refused(self) -> None:
        space = spaces.Sequence(spaces.Discrete(3))
        with self.make([partial(Sampler, space, spaces.Discrete(2))], buffers=2) as envs:
            envs.reset(seed=0)
            envs.step([0])
            with pytest.raises(ValueError, match="Sequence"):
                envs.rollout_view()
            envs.step([0])

    @pytest.mark.parametrize("buffers", [0, -1])
    def test_a_ring_without_slots_is_refused(self, buffers: int) -> None:
        with pytest.raises(ValueError, match="buffers must be an integer of at least 1"):
            self.make(ledgers(1), buffers=buffers)

    def test_stats_must_be_asked_for(self) -> None:
        with self.make(ledgers(1)) as envs, pytest.raises(ValueError, match="stats=True"):
            envs.stats()
