"""A program whose own Ray cluster has a small object store and no disk: test_faults.py runs it."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

from tests.vector.backends.ray.clusters import HEAD, actor_of
from vecspaces import Env, spaces
from vecspaces.errors import ResetNeededError, WorkerError
from vecspaces.vector import RayVectorEnv
from vecspaces.vector.backends.ray.cluster import full_store_errors

MEGABYTE = 10**6
STORE = 80 * 2**20  # the least that Ray allows


class Large(Env[Any, Any]):
    """Returns observations of some megabytes."""

    observation_space = spaces.MultiBinary(20 * MEGABYTE)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._observation = np.zeros(20 * MEGABYTE, np.int8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observation, {}

    def step(self, action: Any) -> Any:
        return self._observation, 0.0, False, False, {}


def run(where: str) -> None:
    """Fill the caller's store, step, empty it, and go on."""
    resources = {"num_cpus": 0, where: 1}
    with RayVectorEnv(
        [Large], num_workers=1, resources_per_worker=resources, on_worker_death="restart"
    ) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(1, int))
        actors = envs.call(actor_of)
        held = []
        with suppress(*full_store_errors(ray)):
            while len(held) < STORE // (8 * MEGABYTE):
                held.append(ray.put(np.zeros(8 * MEGABYTE, np.uint8)))
        try:
            for _ in range(4):  # a reply of before may have left its room
                envs.step(np.zeros(1, int))
            raise AssertionError("there was room")
        except WorkerError as error:
            assert type(error) is WorkerError, "no actor died"
            assert (error.env_ids, error.worker, error.command) == ((0,), 0, "step")
            print(where, str(error))
        try:
            envs.step(np.zeros(1, int))
        except ResetNeededError:
            print(where, "needs a reset")
        held.clear()
        gc.collect()
        envs.reset(seed=0)
        envs.step(np.zeros(1, int))
        assert envs.call(actor_of) == actors
        print(where, "goes on")


def main() -> None:
    config = {**HEAD["_system_config"], "automatic_object_spilling_enabled": False}
    config |= {"local_fs_capacity_threshold": 1e-9, "local_fs_monitor_interval_ms": 100}
    head = {**HEAD, "num_cpus": 0, "resources": {"here": 8}, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": config})
    cluster.add_node(num_cpus=0, resources={"there": 8}, object_store_memory=4 * STORE)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        for where in ("here", "there"):
            run(where)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
