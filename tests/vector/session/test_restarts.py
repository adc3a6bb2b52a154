"""Restart: a dead or late worker is replaced, its episodes are truncated, others go on."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.crosses import ordinarily
from tests.vector.bounds import stretched, within
from vecspaces.errors import ResetNeededError, StepTimeoutError, WorkerDiedError
from vecspaces.spaces import Discrete, Sequence
from vecspaces.testing.faulty_envs import (
    FAULTS,
    Factory,
    Fault,
    FaultyEnv,
    OddError,
    arm,
    built,
    factories,
)
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.vector.exchange.failures import Death, died, overdue
from vecspaces.vector.session import restarts as session_restarts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")

ACTIONS = np.array([0, 1, 2, 1])
LOST, KEPT = [2, 3], [0, 1]
LONG = 1000
MODES = list(AutoresetMode)
# A death is handled by `on_worker_death`, what hangs by `on_step_timeout`: the rest is the same.
LOSSES = ["SIGKILL", "hang"]
in_both = pytest.mark.parametrize("deed", LOSSES)


def restarts(deed: str) -> dict[str, Any]:
    """The arguments that let a worker be restarted after this."""
    if deed == "hang":
        return {"on_step_timeout": "restart", "step_timeout": stretched(0.25)}
    return {"on_worker_death": "restart"}


def start(
    folder: Path,
    where: str = "step",
    mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    deed: str = "SIGKILL",
    **arguments: Any,
) -> AsyncVectorEnv[Any, Any]:
    """Two workers of two environments, two steps into an episode; the second may be lost."""
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        factories(4, folder, deed, where, episode=LONG),
        num_workers=2,
        context="fork",
        autoreset_mode=mode,
        **{**restarts(deed), **arguments},
    )
    envs.reset(seed=5)
    for _ in range(2):
        envs.step(ACTIONS)
    return envs


@pytest.fixture(params=MODES, ids=lambda mode: mode.name)
def mode(request: pytest.FixtureRequest) -> AutoresetMode:
    return request.param  # type: ignore[no-any-return]  # pytest does not know


@pytest.fixture
def two_steps_on(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[SyncVectorEnv[Any, Any], Any]]:
    """The same environments in this process, where none dies, and what they observed last."""
    mode = AutoresetMode.NEXT_STEP
    if "mode" in request.fixturenames:
        mode = request.getfixturevalue("mode")
    with SyncVectorEnv(
        [Factory(index, episode=LONG) for index in range(4)], autoreset_mode=mode
    ) as envs:
        envs.reset(seed=5)
        envs.step(ACTIONS)
        observations, *_ = envs.step(ACTIONS)
        yield envs, observations


@pytest.fixture
def healthy(two_steps_on: tuple[SyncVectorEnv[Any, Any], Any]) -> SyncVectorEnv[Any, Any]:
    """The same environments in this process, where none dies, two steps into the episode."""
    return two_steps_on[0]


@pytest.fixture
def known(two_steps_on: tuple[SyncVectorEnv[Any, Any], Any]) -> Any:
    """The last observations before something dies."""
    return two_steps_on[1]


def restart_seed(seed: int, count: int) -> int:
    """As documented: the seed of the k-th restart."""
    return int(np.random.SeedSequence(seed, spawn_key=(count,)).generate_state(1)[0]) & 0x7FFFFFFF


def respawned(row: int, count: int = 1, seed: int = 5) -> FaultyEnv:
    """The environment that a restart makes, not yet reset; and its first observation."""
    env = FaultyEnv(row, episode=LONG)
    env.first = env.reset(seed=restart_seed(seed + row, count))[0]  # type: ignore[attr-defined]
    return env


def pick(batch: Any, rows: list[int]) -> Any:
    return {key: value[rows] for key, value in batch.items()}


def stack(observations: list[Any]) -> Any:
    return {
        "phase": np.array([one["phase"] for one in observations], np.int64),
        "place": np.stack([one["place"] for one in observations]),
    }


def check_others(result: Any, expected: Any) -> None:
    """The rows of the worker that lived are those of a run without deaths, bit for bit."""
    assert_identical(pick(result[0], KEPT), pick(expected[0], KEPT))
    for ours, theirs in zip(result[1:4], expected[1:4], strict=True):
        assert_identical(ours[KEPT], theirs[KEPT])
    assert_identical(result[4]["steps"][KEPT], expected[4]["steps"][KEPT])


def check_lost(result: Any) -> None:
    """The step that was lost says so."""
    _, rewards, terminations, truncations, infos = result
    assert rewards[LOST].tolist() == [0.0, 0.0]
    assert terminations[LOST].tolist() == [False, False]
    assert truncations[LOST].tolist() == [True, True]
    assert truncations[KEPT].tolist() == [False, False]
    assert infos["worker_restarted"].dtype == np.bool_
    assert infos["worker_restarted"].tolist() == [False, False, True, True]
    assert infos["_worker_restarted"].tolist() == [False, False, True, True]


# ---------------------------------------------------------------------- the step that was lost


@pytest.mark.parametrize("shared_memory", [True, False])
@in_both
def test_a_lost_step_is_a_truncation_in_every_autoreset_mode(
    deed: str, shared_memory: bool, tmp_path: Path, mode: AutoresetMode, healthy: Any, known: Any
) -> None:
    with start(tmp_path, mode=mode, deed=deed, shared_memory=shared_memory) as envs:
        arm(tmp_path)
        result = envs.step(ACTIONS)
        check_others(result, healthy.step(ACTIONS))
        check_lost(result)
        new = [respawned(row) for row in LOST]
        firsts = stack([env.first for env in new])  # type: ignore[attr-defined]
        last = pick(known, LOST)
        if mode is AutoresetMode.SAME_STEP:
            assert_identical(pick(result[0], LOST), firsts)
            assert result[4]["_final_obs"].tolist() == [False, False, True, True]
            assert_identical(stack(list(result[4]["final_obs"][LOST])), last)
        else:
            assert_identical(pick(result[0], LOST), last)
        if mode is AutoresetMode.NEXT_STEP:
            result = envs.step(ACTIONS)
            check_others(result, healthy.step(ACTIONS))
            assert_identical(pick(result[0], LOST), firsts)
            assert result[1][LOST].tolist() == [0.0, 0.0]
            assert not result[3].any()
            assert "worker_restarted" not in result[4]
        if mode is AutoresetMode.DISABLED:
            mask = np.array([False, False, True, True])
            observations, _ = envs.reset(options={"reset_mask": mask})
            # The new worker has reset them once already, with the seed of the restart.
            assert_identical(pick(observations, LOST), stack([env.reset()[0] for env in new]))
        result = envs.step(ACTIONS)
        check_others(result, healthy.step(ACTIONS))
        expected = [env.step(ACTIONS[row])[0] for row, env in zip(LOST, new, strict=True)]
        assert_identical(pick(result[0], LOST), stack(expected))
        assert result[1][LOST].tolist() == [2.0, 1.0]
        assert sorted(built(tmp_path)) == [0, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("deed", ["segfault", "os._exit", "hang in native code"])
def test_any_death_restarts(deed: str, tmp_path: Path) -> None:
    arguments = restarts("hang") if "hang" in deed else {}
    with start(tmp_path, deed=deed, **arguments) as envs:
        arm(tmp_path)
        check_lost(envs.step(ACTIONS))


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_other_start_methods_restart_too(context: str, tmp_path: Path) -> None:
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        factories(4, tmp_path, "SIGKILL"), num_workers=2, context=context, on_worker_death="restart"
    )
    with envs:
        envs.reset(seed=5)
        arm(tmp_path)
        check_lost(envs.step(ACTIONS))
        observations, *_ = envs.step(ACTIONS)
        firsts = stack([respawned(row).first for row in LOST])  # type: ignore[attr-defined]
        assert_identical(pick(observations, LOST), firsts)


def test_an_exception_is_no_death(tmp_path: Path) -> None:
    with start(tmp_path, deed="exception") as envs:
        arm(tmp_path)
        with pytest.raises(Exception, match="gripper"):
            envs.step(ACTIONS)
        envs.reset()


@in_both
def test_what_a_view_showed_stays_whole_when_a_worker_is_lost(deed: str, tmp_path: Path) -> None:
    with start(tmp_path, deed=deed, copy=False, buffers=3) as envs:
        shown = [envs.step(ACTIONS)[0] for _ in range(2)]
        kept = [{key: value.copy() for key, value in one.items()} for one in shown]
        arm(tmp_path)
        newest, *_ = envs.step(ACTIONS)
        assert_identical(shown[1], kept[1])
        assert_identical(pick(newest, LOST), pick(kept[1], LOST))


@in_both
def test_seeds_of_restarts_follow_from_the_reset_seed_and_their_number(
    deed: str, tmp_path: Path
) -> None:
    with start(tmp_path, deed=deed, max_restarts=5) as envs:
        for count in (1, 2, 3):
            arm(tmp_path)
            check_lost(envs.step(ACTIONS))
            observations, *_ = envs.step(ACTIONS)
            expected = stack([respawned(row, count).first for row in LOST])  # type: ignore[attr-defined]
            assert_identical(pick(observations, LOST), expected)


def test_a_restart_without_seeds_is_a_fresh_start(tmp_path: Path) -> None:
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        factories(4, tmp_path, "SIGKILL"), num_workers=2, context="fork", on_worker_death="restart"
    )
    with envs:
        envs.reset()
        arm(tmp_path)
        check_lost(envs.step(ACTIONS))
        observations, *_ = envs.step(ACTIONS)
        assert observations["place"][LOST, 2].tolist() == [0.0, 0.0]


# ---------------------------------------------------------------------- deaths elsewhere


def kill(envs: Any, worker: int) -> None:
    """Kill a worker that is idle, and wait until it is gone."""
    process = envs.processes[worker]
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_a_death_between_two_steps_loses_the_next_step(
    tmp_path: Path, mode: AutoresetMode, healthy: Any
) -> None:
    with start(tmp_path, mode=mode) as envs:
        kill(envs, 1)
        result = envs.step(ACTIONS)
        check_others(result, healthy.step(ACTIONS))
        check_lost(result)


@in_both
def test_a_loss_in_a_full_reset_repeats_it(deed: str, tmp_path: Path, healthy: Any) -> None:
    with start(tmp_path, "reset", deed=deed) as envs:
        arm(tmp_path)
        assert_identical(envs.reset(seed=9), healthy.reset(seed=9))
        for _ in range(3):
            assert_identical(envs.step(ACTIONS), healthy.step(ACTIONS))


@in_both
def test_a_loss_in_a_partial_reset_repeats_it_and_truncates_the_neighbour(
    deed: str, tmp_path: Path, mode: AutoresetMode, healthy: Any, known: Any
) -> None:
    mask = {"reset_mask": np.array([False, False, True, False])}
    with start(tmp_path, "reset", mode, deed) as envs:
        arm(tmp_path)
        observations, _ = envs.reset(seed=20, options=mask)
        expected, _ = healthy.reset(seed=20, options=mask)
        assert_identical(observations, expected)
        observations, rewards, _, truncations, infos = envs.step(ACTIONS)
        expected, *_ = healthy.step(ACTIONS)
        assert_identical(pick(observations, [0, 1, 2]), pick(expected, [0, 1, 2]))
        assert truncations.tolist() == [False, False, False, True]
        assert infos["worker_restarted"].tolist() == [False, False, False, True]
        assert rewards[3] == 0.0
        if mode is AutoresetMode.SAME_STEP:
            assert_identical(infos["final_obs"][3]["place"], known["place"][3])
        else:
            assert_identical(pick(observations, [3]), pick(known, [3]))


@pytest.mark.parametrize(
    "where, touch, expected",
    [
        ("call", lambda envs: envs.call("poke", 10), (10, 11, 12, 13)),
        ("get", lambda envs: envs.get_attr("strength"), (7, 7, 7, 7)),
        (
            "set",
            lambda envs: envs.set_attr("strength", [1, 2, 3, 4]) or envs.get_attr("strength"),
            (1, 2, 3, 4),
        ),
        ("render", lambda envs: tuple(frame[0, 0, 0] for frame in envs.render()), (0, 1, 2, 3)),
    ],
)
@in_both
def test_a_loss_in_a_call_repeats_it_and_the_next_step_is_a_truncation(
    deed: str,
    where: str,
    touch: Callable[[Any], Any],
    expected: Any,
    tmp_path: Path,
    mode: AutoresetMode,
    healthy: Any,
    known: Any,
) -> None:
    with start(tmp_path, where, mode, deed) as envs:
        arm(tmp_path)
        assert touch(envs) == expected
        result = envs.step(ACTIONS)
        check_others(result, healthy.step(ACTIONS))
        check_lost(result)
        if mode is AutoresetMode.SAME_STEP:
            assert_identical(stack(list(result[4]["final_obs"][LOST])), pick(known, LOST))
        else:
            assert_identical(pick(result[0], LOST), pick(known, LOST))


def test_a_death_in_a_call_of_other_environments_is_a_truncation_later(tmp_path: Path) -> None:
    with start(tmp_path) as envs:
        kill(envs, 1)
        assert envs.call("poke", env_ids=[0]) == (1,)
        check_lost(envs.step(ACTIONS))


@in_both
def test_a_loss_while_streaming_is_a_truncation(deed: str, tmp_path: Path, known: Any) -> None:
    with start(tmp_path, deed=deed, batch_size=2) as envs:
        arm(tmp_path)
        envs.send(ACTIONS)
        seen: dict[int, Any] = {}
        for _ in range(2):
            got = envs.recv()
            for place, row in enumerate(got.env_ids.tolist()):
                seen[row] = (
                    {key: value[place] for key, value in got.observations.items()},
                    got.rewards[place],
                    got.truncations[place],
                    bool(got.infos.get("worker_restarted", np.zeros(2, bool))[place]),
                )
        assert sorted(seen) == [0, 1, 2, 3]
        for row in KEPT:
            assert seen[row][1:] == (float(ACTIONS[row]), False, False)
            assert seen[row][0]["place"][2] == 3
        for row in LOST:
            assert seen[row][1:] == (0.0, True, True)
            assert_identical(seen[row][0]["place"], known["place"][row])
        envs.send(ACTIONS)
        after = [envs.recv() for _ in range(2)]
        steps = {
            row: float(place[2])
            for got in after
            for row, place in zip(got.env_ids.tolist(), got.observations["place"], strict=True)
        }
        assert steps == {0: 4.0, 1: 4.0, 2: 0.0, 3: 0.0}


def test_a_streaming_death_before_send_is_a_truncation_too(tmp_path: Path) -> None:
    with start(tmp_path) as envs:
        kill(envs, 1)
        envs.send(ACTIONS[[3]], env_ids=[3])
        envs.send(ACTIONS[KEPT], env_ids=KEPT)
        envs.send(ACTIONS[[2]], env_ids=[2])
        got = envs.recv()
        lost = np.isin(got.env_ids, LOST)
        assert (got.truncations == lost).all()
        assert (got.infos["worker_restarted"] == lost).all()


@in_both
def test_the_rows_of_a_vector_env_are_truncated_together(
    deed: str, tmp_path: Path, mode: AutoresetMode
) -> None:
    fns = factories(4, tmp_path, deed, episode=LONG)
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [
            lambda: SyncVectorEnv(fns[:2], autoreset_mode=mode),
            lambda: SyncVectorEnv(fns[2:], autoreset_mode=mode),
        ],
        num_workers=2,
        context="fork",
        autoreset_mode=mode,
        **restarts(deed),
    )
    with envs:
        envs.reset(seed=5)
        known, *_ = envs.step(ACTIONS)
        arm(tmp_path)
        result = envs.step(ACTIONS)
        check_lost(result)
        if mode is AutoresetMode.SAME_STEP:
            assert_identical(stack(list(result[4]["final_obs"][LOST])), pick(known, LOST))
            assert result[0]["place"][:, 2].tolist() == [2, 2, 0, 0]
        else:
            assert_identical(pick(result[0], LOST), pick(known, LOST))


# ---------------------------------------------------------------------- the budget


@pytest.mark.parametrize(
    "deed, kind, did, what, window",
    [
        (
            "SIGKILL",
            WorkerDiedError,
            "died",
            "worker 1 (environments 2, 3) was ended by SIGKILL",
            math.inf,
        ),
        ("hang", StepTimeoutError, "overran step_timeout", "step did not end within", 60.0),
    ],
)
def test_too_many_losses_raise_and_tell_the_history(
    deed: str,
    kind: type[WorkerDiedError | StepTimeoutError],
    did: str,
    what: str,
    window: float,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    within = " within 60 s" if window == 60 else ""
    with start(tmp_path, deed=deed, max_restarts=2, restart_window=window) as envs:
        for _ in range(2):
            arm(tmp_path)
            check_lost(envs.step(ACTIONS))
            envs.step(ACTIONS)
        arm(tmp_path)
        with pytest.raises(kind) as caught:
            envs.step(ACTIONS)
        error = caught.value
        assert error.env_ids == (2, 3)
        if isinstance(error, WorkerDiedError):
            assert (error.worker, error.command, error.running) == (1, "step", 2)
            assert (error.exitcode, error.signal is not None) == (-9, True)
        else:
            assert error.running == (2,)
        assert f"workers {did} 3 times{within}, and max_restarts is 2" in str(error)
        assert "\nenvironment 2 (" in str(error)
        assert str(error).count(f"s ago: {what}") == 3
        logged = [record for record in caplog.records if record.name == "vecspaces"]
        assert [(record.levelname, record.getMessage().count("\n")) for record in logged] == [
            ("WARNING", 0)
        ] * 2
        for left, record in zip((1, 0), logged, strict=True):
            line = record.getMessage()
            assert line.startswith(what)
            assert "environment 2" in line
            assert line.endswith(f": restarted; restarts left{within}: {left} of 2")
        envs.reset(seed=1)
        envs.step(ACTIONS)


@pytest.mark.parametrize(
    ("where", "deed"),
    ordinarily(
        lambda where, deed: deed == "SIGKILL" or where == "step",
        product(["reset", "step", "call"], LOSSES),
    ),
)
def test_a_loop_of_losses_ends(where: str, deed: str) -> None:
    fns = [Factory(index) for index in range(3)]
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [*fns, Doomed(where, deed)], num_workers=2, context="fork", **restarts(deed)
    )
    kinds = (WorkerDiedError, StepTimeoutError)
    with pytest.raises(kinds, match=r"workers (died|overran step_timeout) 4 times"):
        envs.reset()
        for _ in range(4):
            envs.call("poke")
            envs.step(ACTIONS)
            envs.step(ACTIONS)
    envs.close(terminate=True)


class Doomed:
    """Makes environments that are lost in one place, every time."""

    def __init__(self, where: str, deed: str) -> None:
        self.where, self.deed = where, deed

    def __call__(self) -> FaultyEnv:
        env = FaultyEnv(3)
        if self.where == "call":
            env.poke = FAULTS[self.deed]  # type: ignore[method-assign]
        else:
            setattr(env, self.where, lambda *_, **__: FAULTS[self.deed]())
        return env


def test_an_env_fn_that_fails_at_the_restart_is_heard(tmp_path: Path) -> None:
    factory = Factory(3, Fault("exception", "build", tmp_path / "trigger"))
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [Factory(0), Factory(1), Factory(2), factory],
        num_workers=2,
        context="fork",
        on_worker_death="restart",
    )
    with envs:
        envs.reset(seed=5)
        arm(tmp_path)
        kill(envs, 1)
        with pytest.raises(OddError) as caught:
            envs.step(ACTIONS)
        assert "environment 3 (worker 1) failed in build" in str(caught.value.__cause__)
        with pytest.raises(ResetNeededError):
            envs.step(ACTIONS)
        envs.reset(seed=5)
        envs.step(ACTIONS)


def test_an_env_fn_that_hangs_at_the_restart_is_bounded(tmp_path: Path) -> None:
    factory = Factory(3, Fault("hang", "build", tmp_path / "trigger"))
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [Factory(0), Factory(1), Factory(2), factory],
        num_workers=2,
        context="fork",
        on_worker_death="restart",
        start_timeout=stretched(0.5),
    )
    with envs:
        envs.reset(seed=5)
        arm(tmp_path)
        kill(envs, 1)
        with pytest.raises(StepTimeoutError, match="not built again within start_timeout") as late:
            envs.step(ACTIONS)
        assert late.value.env_ids == (2, 3)
        envs.reset(seed=5)
        envs.step(ACTIONS)


class WithOptions(FaultyEnv):
    """Shows the options of its last reset in its infos."""

    def __init__(self, index: int) -> None:
        super().__init__(index, episode=2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, _ = super().reset(seed=seed)
        return observation, {"options": (options or {}).get("level", -1)}


@pytest.mark.parametrize("as_vector", [False, True])
def test_options_that_were_to_be_kept_survive_a_restart(as_vector: bool) -> None:
    def make(index: int) -> Any:
        return WithOptions(index)

    fns: list[Any] = [lambda i=i: make(i) for i in range(2)]
    if as_vector:
        fns = [fns[0], lambda: SyncVectorEnv([lambda: make(1)])]
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        fns, num_workers=2, context="fork", on_worker_death="restart"
    )
    actions = np.zeros(2, np.int64)
    with envs:
        envs.reset(seed=5, options=[{"level": 3}, {"level": 4}])
        kill(envs, 1)
        envs.step(actions)
        infos = envs.step(actions)[4]
        assert infos["options"][1] == 4


class Growing(FaultyEnv):
    """Observations of variable size, some too large for the arena."""

    observation_space = Sequence(Discrete(1000))  # type: ignore[assignment]

    def _observe(self, spoil: str | None) -> Any:
        return tuple(range(self._steps * 200 + self.index))


@pytest.mark.parametrize("capacity", [64, 65536])
@pytest.mark.parametrize("shared_memory", [True, False])
def test_last_known_observations_of_variable_size_are_shown_too(
    capacity: int, shared_memory: bool, mode: AutoresetMode
) -> None:
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [lambda i=i: Growing(i, episode=LONG) for i in range(2)],
        num_workers=2,
        context="fork",
        on_worker_death="restart",
        autoreset_mode=mode,
        variable_capacity=capacity,
        shared_memory=shared_memory,
    )
    actions = np.zeros(2, np.int64)
    with envs:
        envs.reset(seed=5)
        known, *_ = envs.step(actions)
        kill(envs, 1)
        observations, *_, infos = envs.step(actions)
        assert len(observations[0]) == 400
        if mode is AutoresetMode.SAME_STEP:
            assert observations[1] == (0,)
            assert infos["final_obs"][1] == known[1]
        else:
            assert observations[1] == known[1]


def test_deaths_older_than_the_window_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(session_restarts.time, "monotonic", lambda: now)
    budget = session_restarts.RestartBudget(max_restarts=1, window=10.0)
    death = died(0, [0], "step", Death(-9), -1, "so it goes")
    budget.spend(death, Death(-9))
    now = 110.5
    loss = Death(-9)
    budget.spend(death, loss)
    budget.spend(death, loss)  # an interrupt may repeat what was counted
    now = 111.0
    late = overdue("step", 2.0, [1], [1], "hurry")
    expected = r"died or overran step_timeout 2 times.*0\.5 s ago: worker 0.*; 0\.0 s ago: step did"
    with pytest.raises(StepTimeoutError, match=expected):
        budget.spend(late, session_restarts.Late(late))


@in_both
def test_max_restarts_zero_raises_at_once(deed: str, tmp_path: Path) -> None:
    with start(tmp_path, deed=deed, max_restarts=0) as envs:
        arm(tmp_path)
        with pytest.raises((WorkerDiedError, StepTimeoutError), match=r"(died|step_timeout) once"):
            envs.step(ACTIONS)
        with within(3):  # what hangs is gone already
            envs.close()


def test_what_was_raised_is_no_free_restart_once_the_window_is_over(tmp_path: Path) -> None:
    with start(tmp_path, max_restarts=0, restart_window=0.2) as envs:
        for _ in range(2):
            envs.reset(seed=5)
            time.sleep(0.3)
            kill(envs, 1)
            with pytest.raises(WorkerDiedError, match="died once"):
                envs.step(ACTIONS)


def test_what_a_function_of_deaths_raises_ends_the_step_and_a_reset_goes_on(
    tmp_path: Path,
) -> None:
    def refuse(error: WorkerDiedError) -> None:
        raise ArithmeticError("enough")

    with start(tmp_path, on_worker_death=refuse) as envs:
        arm(tmp_path)
        with pytest.raises(ArithmeticError, match="enough"):
            envs.step(ACTIONS)
        with pytest.raises(ResetNeededError):
            envs.step_wait()
        envs.reset(seed=0)
        assert envs.step(ACTIONS)[1].tolist() == ACTIONS.tolist()


# ---------------------------------------------------------------------- what is late


def hanging(folder: Path, *rows: int) -> list[Factory]:
    """Four environments, of which these hang in a step while they are armed."""
    found = [Factory(row, episode=LONG) for row in range(4)]
    for row in rows:
        (folder / str(row)).mkdir()
        found[row] = Factory(row, Fault("hang", "step", folder / str(row) / "trigger"), None, LONG)
    return found


def test_workers_that_are_late_together_are_one_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        hanging(tmp_path, 1, 3), num_workers=2, max_restarts=1, **restarts("hang")
    )
    with envs:
        envs.reset(seed=5)
        for stream in (False, True):
            envs.step(ACTIONS)
            for row in (1, 3):
                arm(tmp_path / str(row))
            if stream:  # the second one is too many
                envs.send(ACTIONS[LOST], LOST)
                envs.send(ACTIONS[KEPT], KEPT)
                with pytest.raises(StepTimeoutError, match="overran step_timeout 2 times") as late:
                    envs.recv(4)
                assert sorted(late.value.env_ids) == [0, 1, 2, 3]
            else:
                *_, truncations, infos = envs.step(ACTIONS)
                assert truncations.all() and infos["worker_restarted"].all()
                assert len(caplog.records) == 1
        envs.close(terminate=True)


def test_a_function_is_asked_once_about_workers_that_are_late_together(tmp_path: Path) -> None:
    heard: list[StepTimeoutError] = []

    def judge(error: StepTimeoutError) -> None:
        heard.append(error)
        raise LookupError("no more")

    given = {**restarts("hang"), "on_step_timeout": judge}
    with AsyncVectorEnv(hanging(tmp_path, 1, 3), num_workers=2, **given) as envs:
        envs.reset(seed=5)
        for row in (1, 3):
            arm(tmp_path / str(row))
        with pytest.raises(LookupError):
            envs.step(ACTIONS)
        assert [error.env_ids for error in heard] == [(0, 1, 2, 3)]


def test_a_hung_row_of_a_stream_is_noticed_while_others_go_on(tmp_path: Path) -> None:
    with AsyncVectorEnv(hanging(tmp_path, 3), num_workers=4, **restarts("hang")) as envs:
        envs.reset(seed=5)
        arm(tmp_path / "3")
        envs.send(ACTIONS)
        began, heard, lost = time.monotonic(), 0, False
        while not lost:
            assert time.monotonic() - began < stretched(10)
            got = envs.recv(1)
            lost = bool(got.truncations[0])
            assert got.env_ids[0] == 3 if lost else got.env_ids[0] != 3
            envs.send(ACTIONS[got.env_ids], got.env_ids)
            heard += 1
        assert heard > 4
        assert got.infos["worker_restarted"].tolist() == [True]
        assert time.monotonic() - began > 0.25


class Wordy(FaultyEnv):
    """Has infos that no pipe holds."""

    def _inform(self, invalid: str | None) -> Any:
        return {"words": "x" * 20_000_000}


def test_a_row_that_answered_while_nobody_listened_is_not_late() -> None:
    fns = [lambda i=i: Wordy(i, episode=LONG) for i in range(2)]
    with AsyncVectorEnv(fns, num_workers=2, context="fork", **restarts("hang")) as envs:
        envs.reset()
        for count in (2, 1):
            envs.send(ACTIONS[:2])
            time.sleep(stretched(0.4))
            for _ in range(2 // count):
                assert not envs.recv(count).truncations.any()


def test_a_row_that_was_heard_in_part_before_the_caller_left_is_not_late() -> None:
    fns = [lambda i=i: (Wordy if i == 0 else FaultyEnv)(i, episode=LONG) for i in range(3)]
    with AsyncVectorEnv(fns, num_workers=3, context="fork", **restarts("hang")) as envs:
        envs.reset()
        envs.send(ACTIONS[:3])
        for _ in range(3):
            time.sleep(stretched(0.4))
            assert not envs.recv(1).truncations.any()


def test_a_bound_of_one_wait_restarts_nothing(tmp_path: Path) -> None:
    with start(tmp_path, deed="hang") as envs:
        pids = [process.pid for process in envs.processes]
        arm(tmp_path)
        envs.step_async(ACTIONS)
        for _ in range(2):
            with pytest.raises(StepTimeoutError, match=r"wait again, call reset\(\)") as late:
                envs.step_wait(timeout=stretched(0.3))
            assert (late.value.env_ids, late.value.running) == ((2, 3), (2,))
        assert [process.pid for process in envs.processes] == pids
        check_lost(envs.step_wait())


def test_deaths_and_timeouts_are_decided_one_by_one(tmp_path: Path) -> None:
    heard: list[Exception] = []
    with start(tmp_path, deed="hang") as envs:  # whose on_worker_death is "raise"
        kill(envs, 1)
        with pytest.raises(WorkerDiedError, match='on_worker_death="restart" goes on by itself'):
            envs.step(ACTIONS)
    both = {**restarts("hang"), "on_step_timeout": heard.append, "on_worker_death": heard.append}
    with start(tmp_path, deed="hang", max_restarts=1, **both) as envs:
        arm(tmp_path)
        check_lost(envs.step(ACTIONS))
        kill(envs, 1)
        expected = "workers died or overran step_timeout 2 times"
        with pytest.raises(WorkerDiedError, match=expected):
            envs.step(ACTIONS)
    assert [type(error) for error in heard] == [StepTimeoutError, WorkerDiedError]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"on_step_timeout": "restart"}, "step_timeout is None: pass .* such as step_timeout=60"),
        (
            {"on_step_timeout": "kill", "step_timeout": 1},
            "on_step_timeout must be 'raise' or 'restart', or a function of a StepTimeoutError, "
            "found 'kill'",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AsyncVectorEnv([Factory(0)], **arguments)
