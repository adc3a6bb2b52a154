"""Tests: the attributes of a vector env, and what `reset` and `step` take and return."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.comparing import ALL_SPACES, MODES, Part, assert_same_run, samples
from tests.envs import Drift, Ledger, Noted, Sampler, ledgers
from vecspaces import spaces
from vecspaces.vector import AutoresetMode, SyncVectorEnv

# A Dict of all spaces in each mode, and a root of each kind of memory.
RUNS = [("every", mode) for mode in MODES]
RUNS += zip(("Box", "Discrete", "Text", "Sequence", "Graph", "OneOf"), 2 * MODES, strict=True)


class SteppingContract(Part):
    """What a vector env shows, and what `reset` and `step` take and return."""

    def test_shows_its_spaces_and_numbers(self) -> None:
        before = dict(Ledger.metadata)
        with self.make(iter(ledgers(3))) as envs:
            assert envs.num_envs == 3
            assert envs.single_observation_space == Ledger.observation_space
            assert envs.single_action_space == Ledger.action_space
            assert envs.observation_space.shape == (3, 5)
            assert envs.action_space == spaces.MultiDiscrete([5, 5, 5])
            assert envs.spec is None
            assert envs.unwrapped is envs
            assert envs.metadata == {**before, "autoreset_mode": AutoresetMode.NEXT_STEP}
            assert repr(envs).startswith(f"{type(envs).__name__}(num_envs=3")
            assert repr(envs).endswith(", autoreset_mode='NextStep')")
        assert Ledger.metadata == before

    def test_renders_all_or_chosen_environments(self) -> None:
        with self.make(ledgers(3, render_mode="rgb_array")) as envs:
            assert envs.render_mode == "rgb_array"
            envs.reset(seed=0)
            frames = envs.render()
            assert isinstance(frames, tuple)
            assert_identical(frames, tuple(np.full((2, 3, 3), i, np.uint8) for i in range(3)))
            assert_identical(envs.render(env_ids=[2, 0]), (frames[2], frames[0]))

    def test_each_env_fn_is_called_once(self, tmp_path: Any) -> None:
        notes = tmp_path / "notes"
        with self.begun([partial(Noted, notes, number) for number in range(3)]) as envs:
            for actions in samples(envs, 0, 8):
                envs.step(actions)
            envs.reset()
            processes = envs.call("process")
        lines = sorted(line.split() for line in notes.read_text().splitlines())
        assert lines == [[str(i), str(processes[i])] for i in range(3)]

    @pytest.mark.parametrize(("name", "mode"), RUNS)
    def test_a_run_equals_syncs_to_the_last_bit(self, name: str, mode: AutoresetMode) -> None:
        """Rewards are digests of the actions, so that these are compared too."""
        space = spaces.Dict(ALL_SPACES) if name == "every" else ALL_SPACES[name]
        env_fns = [partial(Sampler, space, space)] * 3
        with (
            self.make(env_fns, autoreset_mode=mode) as envs,
            SyncVectorEnv(env_fns, autoreset_mode=mode) as reference,
        ):
            assert_same_run(envs, reference)

    def test_a_vectorised_simulator_runs_as_it_is(self) -> None:
        alone = Drift(3)
        with self.make([partial(Drift, 3)] * 2) as envs:
            assert envs.num_envs == 6
            assert_identical(envs.reset(seed=4)[0][:3], alone.reset(seed=4)[0])
            for actions in samples(envs, 1, 11):
                result, expected = envs.step(actions), alone.step(actions[:3])
                for ours, theirs in zip(result[:4], expected[:4], strict=True):
                    assert_identical(ours[:3], theirs)
                if "sum" in expected[4]:
                    assert_identical(result[4]["sum"][:3], expected[4]["sum"])
