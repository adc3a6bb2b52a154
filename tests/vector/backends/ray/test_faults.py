"""Actors and nodes that die: what is particular to a cluster, and the contract's part on it."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract import WorkersContract
from tests.envs.faulty import Factory, OddError, Unloadable, arm, factories
from tests.vector.backends.ray.clusters import BERTH, actor_of, in_processes, more_nodes, node_of
from tests.vector.bounds import stretched, within
from vecspaces.errors import ResetNeededError, StepTimeoutError, WorkerDiedError
from vecspaces.vector import RayVectorEnv, SyncVectorEnv, infos_as_list
from vecspaces.vector.backends.ray.cluster import Reservation

ray = pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ray.cluster_utils import Cluster

NUM_ENVS = 4
ACTIONS = np.array([0, 1, 2, 1])


class TestFaultsOfActors(WorkersContract):
    """Each test starts actors, which takes seconds: conftest.py lists those of the ordinary run."""

    patience = stretched(2.0)

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        return RayVectorEnv(env_fns, num_workers=2, **arguments)


@pytest.mark.usefixtures("lent_actors")
class TestWhatCannotTravel:
    """The part of it that ends no actor, with actors that outlive a test."""

    make = TestFaultsOfActors.make
    restarts, started = WorkersContract.restarts, WorkersContract.started
    test_text = WorkersContract.test_what_cannot_travel_is_reported_as_text


def make(folder: Path, deed: str | None, where: str = "step", **arguments: Any) -> Any:
    arguments.setdefault("num_workers", 2)
    return RayVectorEnv(factories(NUM_ENVS, folder, deed, where), **arguments)


def patiently(seconds: float = 30.0) -> Iterator[int]:
    """Count until the caller has seen what it waits for, or until it would wait in vain."""
    began = time.monotonic()
    for number in itertools.count():
        yield number
        assert time.monotonic() - began < seconds, "nothing happened"


def assert_as_new(envs: Any) -> None:
    """From a reset on, everything is as in environments to which nothing ever happened."""
    with SyncVectorEnv([Factory(index) for index in range(NUM_ENVS)]) as healthy:
        assert_identical(envs.reset(seed=3), healthy.reset(seed=3))
        for _ in range(3):
            assert_identical(envs.step(ACTIONS), healthy.step(ACTIONS))


# ---------------------------------------------------------------------- one actor dies


def test_a_death_names_environments_worker_command_and_node(tmp_path: Path) -> None:
    with make(tmp_path, "SIGKILL") as envs:
        envs.reset(seed=0)
        envs.step(ACTIONS)
        node = envs.call(node_of)[0]
        arm(tmp_path)
        with pytest.raises(WorkerDiedError, match=r"worker 1 on node .*environments 2, 3") as died:
            envs.step(ACTIONS)
        error = died.value
        assert (error.env_ids, error.worker, error.command) == ((2, 3), 1, "step")
        assert error.node is not None and node[:12] in error.node
        assert isinstance(error.__cause__, ray.exceptions.RayActorError), "what Ray knows of it"
        with pytest.raises(ResetNeededError):
            envs.step(ACTIONS)
        assert_as_new(envs)


def make_nested(folder: Path, deed: str, inside: dict[str, Any], **arguments: Any) -> Any:
    """Make two actors, in each of which two environments have a process each."""
    env_fns = factories(NUM_ENVS, folder, deed, "step")
    actors = [partial(in_processes, env_fns[row : row + 2], **inside) for row in (0, 2)]
    return RayVectorEnv(actors, num_workers=2, **arguments)


def test_a_death_inside_an_actor_names_the_process_and_its_environment(tmp_path: Path) -> None:
    with make_nested(tmp_path, "SIGKILL", {}) as envs:
        envs.reset(seed=0)
        arm(tmp_path)
        named = r"worker 1 on node .*: process 0 \(environment 2\) .*SIGKILL"
        with pytest.raises(WorkerDiedError, match=named) as died:
            envs.step(ACTIONS)
        assert (died.value.env_ids, died.value.worker) == ((2,), 1)
        with pytest.raises(ResetNeededError):
            envs.step(ACTIONS)
        assert_as_new(envs)


@pytest.mark.parametrize(
    ("deed", "decides", "lost"),
    [
        # The process alone is restarted, or the actor as a whole.
        pytest.param("SIGKILL", "inside", [2], marks=pytest.mark.full),
        pytest.param("SIGKILL", "restart", [2, 3], marks=pytest.mark.full),
        ("SIGKILL", "function", [2, 3]),
        pytest.param("hang", "timeout", [2, 3], marks=pytest.mark.full),
    ],
)
def test_a_loss_of_a_process_of_an_actor_is_a_truncation(
    deed: str, decides: str, lost: list[int], tmp_path: Path
) -> None:
    seen: list[WorkerDiedError] = []
    late: Any = {"step_timeout": stretched(2.0), "on_step_timeout": "restart"}
    restart: Any = {"on_worker_death": "restart"}
    inside: Any = restart if decides == "inside" else {}
    arguments = {
        "inside": {},
        "restart": restart,
        "function": {"on_worker_death": seen.append},
        "timeout": late,
    }[decides]
    with make_nested(tmp_path, deed, inside, **arguments) as envs:
        envs.reset(seed=0)
        before = envs.call(actor_of_process)
        arm(tmp_path)
        _, rewards, _, truncations, infos = envs.step(ACTIONS)
        expected = np.isin(np.arange(NUM_ENVS), lost).tolist()
        assert truncations.tolist() == infos["worker_restarted"].tolist() == expected
        assert not rewards[lost].any()
        after = envs.call(actor_of_process)
        assert after[:2] == before[:2] and (after[2] == before[2]) == (len(lost) == 1)
        if decides == "function":
            assert [(error.env_ids, error.worker) for error in seen] == [((2,), 1)]
            assert seen[0].node is not None
        assert_as_new(envs)


def actor_of_process(env: Any) -> int:
    """The actor above the fork server of an environment's process."""
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    return parent.pid


def test_restart_replaces_an_actor(tmp_path: Path) -> None:
    with make(tmp_path, None) as envs:
        envs.reset(seed=0)
        before = envs.call(actor_of)
        assert envs.restart([3]).tolist() == [2, 3]
        with pytest.raises(ResetNeededError, match="environments 2, 3 must be reset first"):
            envs.step(ACTIONS)
        assert_as_new(envs)
        after = envs.call(actor_of)
        assert after[:2] == before[:2] and not {*after[2:]} & {*before}


def test_an_actor_that_dies_in_build_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerDiedError, match=r"environments 2, 3.*during build") as died:
        make(tmp_path, "SIGKILL", "build")
    assert (died.value.env_ids, died.value.worker) == ((2, 3), 1)


def test_actors_that_never_come_are_tried_again_in_moderation_and_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    start = Reservation.start

    def start_in_vain(room: Reservation, kind: type, place: int) -> Any:
        tries.append(time.monotonic())
        actor = start(room, kind, place)
        ray.kill(actor)
        return actor

    monkeypatch.setattr(Reservation, "start", start_in_vain)
    with pytest.raises(StepTimeoutError, match="did not end within start_timeout") as late:
        make(tmp_path, None, num_workers=1, start_timeout=1.5)
    assert isinstance(late.value.__cause__, ray.exceptions.RayActorError), "what Ray says of it"
    assert len(tries) >= 2
    # The first is repeated at once, and the time limit ends the last pauses.
    assert np.median(np.diff(tries)) >= 0.05, np.diff(tries)


# ---------------------------------------------------------------------- exceptions


@pytest.mark.usefixtures("lent_actors")
def test_arguments_of_a_call_that_cannot_be_unpickled_break_nothing(tmp_path: Path) -> None:
    with make(tmp_path, None) as envs:
        envs.reset(seed=0)
        with pytest.raises(OddError):
            envs.call("poke", Unloadable())
        assert envs.call("poke") == (1, 2, 3, 4)


# ---------------------------------------------------------------------- nodes die


def test_a_node_that_dies_in_mid_rollout_is_named(cluster: Cluster, tmp_path: Path) -> None:
    with (
        more_nodes(cluster, 2, 2) as (nodes, _),
        make(tmp_path, None, resources_per_worker=BERTH) as envs,
    ):
        envs.reset(seed=0)
        envs.step(ACTIONS)
        homes = envs.call(node_of)
        assert homes[0] != homes[2], "spread over both"
        nodes.remove(homes[2])
        with pytest.raises(WorkerDiedError) as died:
            for _ in patiently():
                envs.step(ACTIONS)
        assert (died.value.env_ids, died.value.worker) == ((2, 3), 1)
        assert died.value.node is not None and homes[2][:12] in died.value.node
        assert_as_new(envs)
        assert set(envs.call(node_of)) == {homes[0]}


@pytest.mark.full
def test_a_run_that_loses_one_of_three_nodes_equals_one_that_does_not_but_for_the_lost_rows(
    cluster: Cluster, tmp_path: Path
) -> None:
    with (
        more_nodes(cluster, 1, 1, 1) as (nodes, ids),
        make(
            tmp_path, None, resources_per_worker=BERTH, num_workers=3, on_worker_death="restart"
        ) as envs,
        SyncVectorEnv([Factory(index) for index in range(NUM_ENVS)]) as reference,
    ):
        assert_identical(envs.reset(seed=3), reference.reset(seed=3))
        homes = envs.call(node_of)
        assert set(homes) == set(ids)
        lost = [row for row in range(NUM_ENVS) if homes[row] == homes[3]]
        kept = [row for row in range(NUM_ENVS) if row not in lost]
        joined, left = nodes.add(1), 5  # the others have no room
        with within(30.0):
            for number in patiently():
                if number == 3:
                    nodes.remove(homes[3])
                result, expected = envs.step(ACTIONS), reference.step(ACTIONS)
                assert_identical(rows_of(result, kept), rows_of(expected, kept))
                if left == 5 and "worker_restarted" not in result[-1]:
                    assert_identical(result, expected)
                    continue
                restarted = result[-1].get("worker_restarted", np.zeros(NUM_ENVS, bool))
                truncated = result[3] & ~expected[3]
                marked = lost if left == 5 else []
                assert np.flatnonzero(restarted).tolist() == marked
                assert np.flatnonzero(truncated).tolist() == marked
                assert not (left == 5 and result[1][lost].any())
                left -= 1
                if not left:
                    break
        assert [envs.call(node_of)[row] for row in lost] == [joined] * len(lost)
        assert_as_new(envs)


def rows_of(step: tuple[Any, ...], rows: list[int]) -> list[Any]:
    """What a step returned for some rows, with their own infos."""
    observations, *numbers, infos = step
    of_rows = {key: values[rows] for key, values in observations.items()}
    row_infos = infos_as_list(infos, NUM_ENVS)
    return [of_rows, *(values[rows] for values in numbers), [row_infos[row] for row in rows]]


@pytest.mark.full
def test_where_no_node_has_room_a_restart_says_so_and_goes_on_when_one_has(
    cluster: Cluster, tmp_path: Path
) -> None:
    with (
        more_nodes(cluster, 1, 1) as (nodes, _),
        make(
            tmp_path, None, resources_per_worker=BERTH, on_worker_death="restart", start_timeout=8.0
        ) as envs,
    ):
        envs.reset(seed=0)
        nodes.remove(envs.call(node_of)[3])
        said = r"start_timeout.*berth: 2 x 1 asked"
        with within(20.0), pytest.raises(StepTimeoutError, match=said) as late:
            for _ in patiently():
                envs.step(ACTIONS)
        assert late.value.env_ids == (2, 3)
        nodes.add(1)
        assert_as_new(envs)


@pytest.mark.usefixtures("lent_actors")
def test_a_full_object_store_is_named_and_breaks_no_actor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ray.exceptions.ObjectStoreFullError

    with make(tmp_path, None) as envs:
        envs.reset(seed=0)
        with monkeypatch.context() as patch:
            patch.setattr(ray, "get", refuse)
            with pytest.raises(ray.exceptions.ObjectStoreFullError) as full:
                envs.step(ACTIONS)
        assert "failed in step" in str(full.value.__cause__)
        assert_as_new(envs)


# ---------------------------------------------------------------------- the end


def test_close_ends_while_an_environment_hangs(tmp_path: Path) -> None:
    envs = make(tmp_path, "hang", "close")
    envs.reset(seed=0)
    arm(tmp_path)
    said = r"environments 2, 3 did not close within 0.5 s"
    with within(1.5), pytest.warns(RuntimeWarning, match=said):
        envs.close(timeout=0.5)


@pytest.mark.full
def test_a_death_in_close_is_told_and_all_is_freed(tmp_path: Path) -> None:
    envs = make(tmp_path, "SIGKILL", "close")
    envs.reset(seed=0)
    arm(tmp_path)
    with pytest.raises(WorkerDiedError, match="during close"):
        envs.close()
