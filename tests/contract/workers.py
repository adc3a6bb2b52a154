"""Tests: workers that fail: exceptions that cannot be pickled, deaths, hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.comparing import MODES, Part, assert_same_step
from tests.envs.faulty import Factory, FaultyEnv, arm, built, factories
from vecspaces.errors import (
    AlreadyPendingCallError,
    InvalidInfoError,
    ResetNeededError,
    StepTimeoutError,
    WorkerDiedError,
    WorkerError,
)
from vecspaces.spaces.batch_values import pick
from vecspaces.vector import AutoresetMode, SyncVectorEnv
from vecspaces.vector.utils import concatenate

ACTIONS = np.array([0, 1, 2, 1])
LOST, KEPT = [2, 3], [0, 1]
LONG = 1000
# `on_worker_death` handles deaths, `on_step_timeout` handles hangs; the rest is the same.
LOSSES = ["SIGKILL", "hang"]
LOST_IN = [("SIGKILL", mode) for mode in MODES] + [("hang", MODES[0])]
LOST_IN += [pytest.param("hang", mode, marks=pytest.mark.full) for mode in MODES[1:]]  # type: ignore[misc]
SAME_STEP = AutoresetMode.SAME_STEP
TOUCHES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "call": (lambda envs: envs.call("poke", 10), (10, 11, 12, 13)),
    "get": (lambda envs: envs.get_attr("strength"), (7, 7, 7, 7)),
    "set": (
        lambda envs: envs.set_attr("strength", [1, 2, 3, 4]) or envs.get_attr("strength"),
        (1, 2, 3, 4),
    ),
    "render": (lambda envs: tuple(frame[0, 0, 0] for frame in envs.render()), (0, 1, 2, 3)),
}
# The ordinary run has each place once, and each deed and mode.
TOUCHED = [
    pytest.param(
        *(where, deed, mode),
        marks=[] if (turn, place) == (number % 3, number % 2) else pytest.mark.full,
    )
    for (number, where), (turn, mode), (place, deed) in product(
        enumerate(TOUCHES), enumerate(MODES), enumerate(LOSSES)
    )
]


def restart_seed(seed: int, count: int) -> int:
    """Return the seed of a row's reset after the k-th restart, as the documentation has it."""
    return int(np.random.SeedSequence(seed, spawn_key=(count,)).generate_state(1)[0]) & 0x7FFFFFFF


def respawned(row: int, count: int = 1) -> tuple[FaultyEnv, Any]:
    """Return the environment that a restart builds, and its first observation."""
    env = FaultyEnv(row, episode=LONG)
    return env, env.reset(seed=restart_seed(5 + row, count))[0]


# Rows of a batch of observations, and the batch of some observations.
take = partial(pick, FaultyEnv.observation_space)
stack = partial(concatenate, FaultyEnv.observation_space, out=None)


def assert_others_unchanged(result: Any, expected: Any) -> None:
    """The rows of the worker that lived are those of a run without losses, bit for bit."""
    assert_identical(take(result[0], KEPT), take(expected[0], KEPT))
    for ours, theirs in zip(result[1:4], expected[1:4], strict=True):
        assert_identical(ours[KEPT], theirs[KEPT])
    assert_identical(result[4]["steps"][KEPT], expected[4]["steps"][KEPT])


def assert_lost(result: Any) -> None:
    """The step in which rows were lost reports it."""
    lost = [False, False, True, True]
    _, rewards, terminations, truncations, infos = result
    assert rewards[LOST].tolist() == [0.0, 0.0]
    assert terminations[LOST].tolist() == [False, False]
    assert truncations.tolist() == lost
    assert infos["worker_restarted"].dtype == np.bool_
    assert infos["worker_restarted"].tolist() == infos["_worker_restarted"].tolist() == lost


def assert_shows_last_known(result: Any, known: Any, mode: AutoresetMode) -> None:
    """A step in which rows were lost shows their last known observations, where its mode does."""
    if mode is SAME_STEP:
        assert result[4]["_final_obs"].tolist() == [False, False, True, True]
        assert_identical(stack(result[4]["final_obs"][LOST]), take(known, LOST))
    else:
        assert_identical(take(result[0], LOST), take(known, LOST))


class WorkersContract(Part):
    """What goes wrong in workers; for vector envs whose environments run in other processes.

    `make` divides four environments between two workers.

    Attributes:
        patience: The `step_timeout` of environments that hang, in seconds.
        unfinished: The environments that have not finished a step in which environment 2 hangs.
    """

    patience = 0.25
    unfinished: tuple[int, ...] = (2, 3)

    def restarts(self, deed: str) -> dict[str, Any]:
        """Return the arguments with which a worker is replaced after this."""
        if deed == "hang":
            return {"on_step_timeout": "restart", "step_timeout": self.patience}
        return {"on_worker_death": "restart"}

    @contextmanager
    def started(
        self,
        folder: Path,
        deed: str,
        where: str = "step",
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        **arguments: Any,
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Give a vector env two steps into an episode, its healthy twin, and what both observe."""
        env_fns: list[Any] = [*factories(4, folder, deed, where, episode=LONG)]
        arguments = {"autoreset_mode": mode, **self.restarts(deed), **arguments}
        healthy_fns = [Factory(row, episode=LONG) for row in range(4)]
        with (
            self.make(env_fns, **arguments) as envs,
            SyncVectorEnv(healthy_fns, autoreset_mode=mode) as healthy,
        ):
            for vector_env in (envs, healthy):
                vector_env.reset(seed=5)
                vector_env.step(ACTIONS)
            envs.step(ACTIONS)
            yield envs, healthy, healthy.step(ACTIONS)[0]

    @pytest.mark.parametrize(
        ("deed", "error", "text"),
        [
            ("SystemExit", WorkerError, "SystemExit: 7"),
            ("unpicklable exception", WorkerError, "the gripper is locked"),
            ("unloadable exception", WorkerError, r"the gripper is lost \(41\)"),
            ("info that cannot be pickled", InvalidInfoError, r"environment 2: info\['lock'\]"),
            ("info that cannot be unpickled", WorkerError, "could not be unpickled"),
        ],
    )
    def test_what_cannot_travel_is_reported_as_text(
        self, deed: str, error: type[Exception], text: str, tmp_path: Path
    ) -> None:
        with self.started(tmp_path, deed) as (envs, healthy, _):
            arm(tmp_path)
            with pytest.raises(error, match=text):
                envs.step(ACTIONS)
            assert_same_step(envs.reset(seed=3), healthy.reset(seed=3))
            assert_same_step(envs.step(ACTIONS), healthy.step(ACTIONS))

    @pytest.mark.parametrize("deed", LOSSES)
    def test_a_loss_is_an_error_and_a_reset_builds_again(self, deed: str, tmp_path: Path) -> None:
        arguments: Any = {"on_worker_death": "raise", "on_step_timeout": "raise"}
        with self.started(tmp_path, deed, **arguments) as (envs, healthy, _):
            arm(tmp_path)
            kinds: Any = (WorkerDiedError, StepTimeoutError)
            with pytest.raises(kinds) as caught:
                envs.step(ACTIONS)
            assert caught.value.env_ids == (self.unfinished if deed == "hang" else (2, 3))
            with pytest.raises((ResetNeededError, AlreadyPendingCallError), match="reset"):
                envs.step(ACTIONS)
            assert_same_step(envs.reset(seed=3), healthy.reset(seed=3))
            assert_same_step(envs.step(ACTIONS), healthy.step(ACTIONS))
            assert sorted(built(tmp_path)) == [0, 1, 2, 2, 3, 3]

    @pytest.mark.parametrize(("deed", "mode"), LOST_IN)
    def test_a_lost_step_is_a_truncation(
        self, deed: str, mode: AutoresetMode, tmp_path: Path
    ) -> None:
        with self.started(tmp_path, deed, mode=mode, copy=False, buffers=3) as started:
            envs, healthy, _ = started
            view, known = envs.step(ACTIONS)[0], healthy.step(ACTIONS)[0]
            arm(tmp_path)
            result = envs.step(ACTIONS)
            assert_identical(view, known)
            assert_others_unchanged(result, healthy.step(ACTIONS))
            assert_lost(result)
            assert_shows_last_known(result, known, mode)
            new, firsts = zip(*(respawned(row) for row in LOST), strict=True)
            if mode is SAME_STEP:
                assert_identical(take(result[0], LOST), stack(firsts))
            if mode is AutoresetMode.NEXT_STEP:
                result = envs.step(ACTIONS)
                assert_others_unchanged(result, healthy.step(ACTIONS))
                assert_identical(take(result[0], LOST), stack(firsts))
                assert result[1][LOST].tolist() == [0.0, 0.0]
                assert not result[3].any()
                assert "worker_restarted" not in result[4]
            if mode is AutoresetMode.DISABLED:
                mask = np.array([False, False, True, True])
                observations, _ = envs.reset(options={"reset_mask": mask})
                # The new worker has reset them once already, with the seed of the restart.
                assert_identical(take(observations, LOST), stack([env.reset()[0] for env in new]))
            result = envs.step(ACTIONS)
            assert_others_unchanged(result, healthy.step(ACTIONS))
            expected = [env.step(ACTIONS[row])[0] for row, env in zip(LOST, new, strict=True)]
            assert_identical(take(result[0], LOST), stack(expected))
            assert result[1][LOST].tolist() == [2.0, 1.0]
            assert sorted(built(tmp_path)) == [0, 1, 2, 2, 3, 3]

    @pytest.mark.parametrize("deed", LOSSES)
    def test_a_loss_in_a_full_reset_repeats_it(self, deed: str, tmp_path: Path) -> None:
        with self.started(tmp_path, deed, "reset") as (envs, healthy, _):
            arm(tmp_path)
            assert_same_step(envs.reset(seed=9), healthy.reset(seed=9))
            for _ in range(3):
                assert_same_step(envs.step(ACTIONS), healthy.step(ACTIONS))

    @pytest.mark.parametrize(("deed", "mode"), [*zip(LOSSES, MODES[:2], strict=True)])
    def test_a_loss_in_a_partial_reset_repeats_it_and_truncates_the_neighbour(
        self, deed: str, mode: AutoresetMode, tmp_path: Path
    ) -> None:
        mask = {"reset_mask": np.array([False, False, True, False])}
        with self.started(tmp_path, deed, "reset", mode) as (envs, healthy, known):
            arm(tmp_path)
            observations, _ = envs.reset(seed=20, options=mask)
            assert_identical(observations, healthy.reset(seed=20, options=mask)[0])
            observations, rewards, _, truncations, infos = envs.step(ACTIONS)
            expected = healthy.step(ACTIONS)[0]
            assert_identical(take(observations, [0, 1, 2]), take(expected, [0, 1, 2]))
            neighbour = [False, False, False, True]
            assert truncations.tolist() == infos["worker_restarted"].tolist() == neighbour
            assert rewards[3] == 0.0
            shown = infos["final_obs"][3] if mode is SAME_STEP else take(observations, 3)
            assert_identical(shown["place"], known["place"][3])

    @pytest.mark.parametrize(("where", "deed", "mode"), TOUCHED)
    def test_a_loss_in_a_call_repeats_it_and_the_next_step_is_a_truncation(
        self, where: str, deed: str, mode: AutoresetMode, tmp_path: Path
    ) -> None:
        touch, expected = TOUCHES[where]
        with self.started(tmp_path, deed, where, mode) as (envs, healthy, known):
            arm(tmp_path)
            assert touch(envs) == expected
            result = envs.step(ACTIONS)
            assert_others_unchanged(result, healthy.step(ACTIONS))
            assert_lost(result)
            assert_shows_last_known(result, known, mode)

    @pytest.mark.parametrize("deed", LOSSES)
    def test_a_loss_in_a_stream_is_a_truncation(self, deed: str, tmp_path: Path) -> None:
        with self.started(tmp_path, deed, batch_size=2) as (envs, _, known):
            arm(tmp_path)
            envs.send(ACTIONS)
            batches = [envs.recv() for _ in range(2)]
            for got in batches:
                lost = np.isin(got.env_ids, LOST)
                rewards = np.where(lost, 0.0, ACTIONS[got.env_ids])
                assert (got.rewards == rewards).all()
                assert (got.truncations == lost).all()
                assert (got.infos.get("worker_restarted", np.zeros(2, bool)) == lost).all()
                places = got.observations["place"]
                assert_identical(places[lost], known["place"][got.env_ids[lost]])
                assert (places[~lost, 2] == 3).all()
            assert sorted(np.concatenate([got.env_ids for got in batches])) == [0, 1, 2, 3]
            envs.send(ACTIONS)
            for got in (envs.recv(), envs.recv()):
                expected = np.where(np.isin(got.env_ids, LOST), 0.0, 4.0)
                assert (got.observations["place"][:, 2] == expected).all()
