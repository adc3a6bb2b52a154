"""RayVectorEnv: how it divides environments, what crosses the cluster, and when Ray ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.contract import assert_same_run
from tests.envs import Sampler, ledgers
from tests.envs.faulty import GATE, arm, factories, open_gate
from tests.leaks import read_stat
from tests.vector.backends.ray.clusters import BERTH, actor_of, in_processes, more_nodes, node_of
from tests.vector.bounds import settled, within
from vecspaces import spaces
from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector import RayVectorEnv, SyncVectorEnv
from vecspaces.vector.backends.ray.cluster import Reservation

ray = pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


@pytest.mark.full
@pytest.mark.parametrize(
    ("count", "arguments", "expected"),
    [
        (7, {"num_workers": 3}, [2, 2, 3]),
        # As many actors as the cluster of four CPUs has room for, and environments to run.
        (9, {"resources_per_worker": {"num_cpus": 2}}, [4, 5]),
        (1, {}, [1]),
    ],
)
def test_actors_get_slices(count: int, arguments: Any, expected: list[int]) -> None:
    with RayVectorEnv(ledgers(count), **arguments) as envs:
        actors = envs.call(actor_of)
        assert [actors.count(actor) for actor in dict.fromkeys(actors)] == expected
        assert envs.num_workers == len(expected)


@pytest.mark.full
def test_actors_take_all_nodes(cluster: Cluster) -> None:
    with (
        more_nodes(cluster, 4, 4) as (_, ids),
        RayVectorEnv(ledgers(2), num_workers=2, resources_per_worker=BERTH) as envs,
    ):
        assert sorted(envs.call(node_of)) == sorted(ids)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_workers": 5}, "num_workers=5 is more than the 4 environments"),
        ({"num_workers": 0}, "num_workers must be an integer of at least 1"),
        ({"resources_per_worker": {"num_cpus": -1}}, r"resources_per_worker\['num_cpus'\].*-1"),
        ({"resources_per_worker": {"num_cpus": 0}}, "must request something"),
        (
            {"num_workers": 1, "batch_size": 5},
            "batch_size must lie between 1 and num_envs=4, found 5",
        ),
        ({"address": "192.0.2.1:6379"}, r"connected to the Ray cluster at .* already"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RayVectorEnv(ledgers(4), **arguments)


def test_a_cluster_with_too_few_cpus_says_what_was_asked_for_and_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = Reservation.start

    def start_slowly(room: Reservation, kind: type, place: int) -> Any:
        time.sleep(0.05)
        return start(room, kind, place)

    monkeypatch.setattr(Reservation, "start", start_slowly)
    with within(4.0), pytest.raises(StepTimeoutError) as late:
        # The interval of `slow_warning` ends a wait between the first and the last start.
        RayVectorEnv(ledgers(9), num_workers=9, start_timeout=2.0, slow_warning=2.2)
    assert late.value.env_ids == tuple(range(9))
    for part in ("start_timeout (2 s)", "9 of 9 actors", "CPU: 9 x 1 asked for; 4 in the cluster"):
        assert part in str(late.value)


@pytest.mark.usefixtures("lent_actors")
@pytest.mark.parametrize("num_envs", [2, 64])
def test_a_step_is_one_object_of_a_few_arrays_however_many_environments(
    num_envs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = spaces.Dict(
        camera=spaces.Box(0, 255, (32, 32, 3), np.uint8), joints=spaces.Box(-1, 1, (7,))
    )
    env_fns = [partial(Sampler, image, spaces.Discrete(2), shortest=99)] * num_envs
    with RayVectorEnv(env_fns, num_workers=2) as envs:
        envs.reset(seed=0)
        objects = []
        get = ray.get
        monkeypatch.setattr(
            ray, "get", lambda *args, **kw: objects.append(get(*args, **kw)) or objects[-1]
        )
        envs.step(np.zeros(num_envs, int))
        monkeypatch.undo()
        assert len(objects) == 2, "one for each actor"
        for _, _, (rows, numbers, parts) in objects:
            assert rows.stop - rows.start == num_envs // 2
            arrays = [*numbers, *(array for part in parts for array in part)]
            assert len(arrays) == 5, "two leaves, rewards, terminations, truncations"
            assert all(len(array) == num_envs // 2 for array in arrays)
            if num_envs == 64:
                camera = max(arrays, key=lambda array: array.nbytes)
                assert not camera.flags.owndata and not camera.flags.writeable, "read in place"


@pytest.mark.usefixtures("lent_actors")
def test_recv_gives_the_first_that_are_ready(tmp_path: Path) -> None:
    env_fns = factories(4, tmp_path, GATE, "step", row=0)
    with RayVectorEnv(env_fns, num_workers=2, batch_size=2) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.send(np.zeros(2, int), envs.recv().env_ids)
        for _ in range(2):
            envs.recv()
        arm(tmp_path)
        envs.send(np.zeros(4, int))
        for _ in range(3):
            batch = envs.recv()
            assert sorted(batch.env_ids.tolist()) == [2, 3], "0 and 1 wait at the gate"
            envs.send(np.zeros(2, int), batch.env_ids)
        open_gate(tmp_path)
        seen: set[int] = set()
        while not seen >= {0, 1}:
            batch = envs.recv()
            seen.update(batch.env_ids.tolist())
            envs.send(np.zeros(2, int), batch.env_ids)


def test_an_actor_of_many_processes_gives_the_same(tmp_path: Path) -> None:
    first, second = ledgers(6)[:3], ledgers(6)[3:]
    with (
        RayVectorEnv([partial(in_processes, part) for part in (first, second)]) as envs,
        SyncVectorEnv(ledgers(6)) as reference,
    ):
        assert_same_run(envs, reference)
        assert len(set(envs.call("process"))) == 4
        assert len(set(envs.get_attr("np_random_seed", env_ids=[5, 0]))) == 2
        envs.set_attr("length", [7, 8], env_ids=[4, 1])
        assert envs.get_attr("length")[1] == 8 and envs.get_attr("length")[4] == 7


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_processes_of_an_actor_end_with_it(is_killed: bool) -> None:
    """The actor ends by `close`, or is killed."""
    with RayVectorEnv([partial(in_processes, ledgers(3))]) as envs:
        envs.reset(seed=0)
        processes = {*envs.call("process"), *envs.call(parent_of)}
        assert len(processes) == 3
        if is_killed:
            os.kill(envs.call(parent_of)[0], signal.SIGKILL)
            assert_gone(processes)
            with pytest.raises(WorkerDiedError):
                envs.step([0] * 3)
            envs.reset(seed=0)
    assert_gone(processes)


def parent_of(env: Any) -> int:
    """The process that started an environment's: to be sent into it with `call`."""
    return multiprocessing.parent_process().pid  # type: ignore[union-attr]


def assert_gone(processes: set[int]) -> None:
    """Check that none of these processes is there, but for zombies that nobody has asked about."""
    assert settled(lambda: [pid for pid in processes if is_alive(pid)], []) == []


def is_alive(pid: int) -> bool:
    try:
        return read_stat(pid)[1] != "Z"
    except OSError:
        return False


def test_a_vector_env_that_is_dropped_ends_its_actors() -> None:
    envs = RayVectorEnv(ledgers(2), num_workers=1)
    envs.reset(seed=0)
    with pytest.warns(ResourceWarning, match="dropped without close"):
        del envs
        gc.collect()


ALONE = """
import os, sys
import ray
from tests.envs import ledgers
from vecspaces.vector import RayVectorEnv

if __name__ == "__main__":
    first = RayVectorEnv(ledgers(2), num_workers=1)
    second = RayVectorEnv(ledgers(2), num_workers=1)
    first.reset(seed=0)
    first.close()
    assert ray.is_initialized(), "the second needs it"
    assert ray.get_runtime_context().gcs_address != sys.argv[1], "this is not ours"
    second.reset(seed=0)
    second.close()
    assert not ray.is_initialized()
    third = RayVectorEnv(ledgers(2), num_workers=1)
    ray.shutdown()
    third.close()  # there is nothing left to close
    print("fine")
"""


def test_a_ray_that_we_started_ends_with_its_last_user(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    # There Ray notes which clusters run on this machine; the tests' own is to be none of them.
    # Not in `tmp_path`: the names of Ray's sockets would be too long.
    with tempfile.TemporaryDirectory() as environment["RAY_TMPDIR"]:
        run = subprocess.run(
            [sys.executable, str(script), cluster.address],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert run.stdout.endswith("fine\n"), run.stderr
