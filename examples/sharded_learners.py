"""One learner per shard of a Ray cluster steps environments on its nodes; all share a policy.

A node belongs to a shard by a resource: ray start --address=HEAD:6379 --resources='{"shard0": 1}'
Run: python examples/sharded_learners.py --shards 10 --nodes 10 --num-envs 10240 --processes 64
Here: python examples/sharded_learners.py --local, which starts the nodes on this machine
"""

from __future__ import annotations

import argparse
import os
import socket
from functools import partial
from typing import Any

import numpy as np
import ray

from vecspaces import make_vec
from vecspaces.vector import RayVectorEnv


def find_node(env: Any) -> str:
    """The node of an environment: runs in its process."""
    return f"{socket.gethostname()}, raylet {os.environ['RAY_RAYLET_PID']}"


class Learner:
    """Steps the environments of one shard, and computes gradients of the policy there."""

    def __init__(self, shard: int, nodes: int, num_envs: int, processes: int) -> None:
        # One actor per node, whose environments have processes of their own.
        make_node = partial(
            make_vec,
            "CartPole-v1",
            num_envs // nodes,
            num_workers=processes,
            context="forkserver",
            autoreset_mode="SameStep",
        )
        self.envs = RayVectorEnv(
            [make_node] * nodes,
            num_workers=nodes,
            resources_per_worker={"num_cpus": processes, f"shard{shard}": 0.9},
            autoreset_mode="SameStep",
        )
        self.observations, _ = self.envs.reset(seed=shard * num_envs)
        self.rng = np.random.default_rng(shard)
        # Of each episode so far: sum of d log p / d weights.
        self.scores = np.zeros((self.envs.num_envs, 4))
        self.lengths = np.zeros(self.envs.num_envs)

    def find_nodes(self) -> list[str]:
        return sorted(set(self.envs.call(find_node)))

    def collect(self, weights: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and the lengths of all episodes that end within some steps."""
        scores, lengths = [], []
        for _ in range(steps):
            right = 1.0 / (1.0 + np.exp(-self.observations @ weights))
            actions = (self.rng.random(len(right)) < right).astype(np.int64)
            self.scores += (actions - right)[:, None] * self.observations
            self.lengths += 1
            self.observations, _, terminations, truncations, _ = self.envs.step(actions)
            ended = terminations | truncations
            scores.append(self.scores[ended])
            lengths.append(self.lengths[ended])
            self.scores[ended] = self.lengths[ended] = 0
        return np.concatenate(scores), np.concatenate(lengths)

    def gradient(self, weights: np.ndarray, steps: int) -> tuple[np.ndarray, int, float]:
        """Return the gradient of the policy (REINFORCE), the number of episodes, their steps."""
        scores, lengths = self.collect(weights, steps)
        advantages = lengths - lengths.mean() if len(lengths) else lengths
        return advantages @ scores, len(lengths), float(lengths.sum())


def start_nodes(shards: int, nodes: int, processes: int) -> Any:
    """Start a cluster on this machine, with so many nodes per shard."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    for shard in range(shards):
        for _ in range(nodes):
            cluster.add_node(num_cpus=processes + 1, resources={f"shard{shard}": 1})
    return cluster


def main() -> None:
    parser = argparse.ArgumentParser(description="Train one policy with a learner per shard.")
    parser.add_argument("--local", action="store_true", help="start the nodes on this machine")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=2, help="per shard")
    parser.add_argument("--num-envs", type=int, default=64, help="per shard")
    parser.add_argument("--processes", type=int, default=2, help="per node")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200, help="per update and environment")
    options = parser.parse_args()

    nodes = options.shards, options.nodes, options.processes
    cluster = start_nodes(*nodes) if options.local else None
    ray.init(address=cluster.address if cluster else "auto", log_to_driver=False)
    try:
        learners = [
            # The learner needs its share of a node of the shard, and one CPU.
            ray.remote(num_cpus=1, resources={f"shard{shard}": 0.1})(Learner).remote(
                shard, options.nodes, options.num_envs, options.processes
            )
            for shard in range(options.shards)
        ]
        node_names = ray.get([learner.find_nodes.remote() for learner in learners])
        for shard, names in enumerate(node_names):
            print(f"learner {shard}: environments on {len(names)} nodes: {'; '.join(names)}")
        weights = np.zeros(4)
        for update in range(1, options.updates + 1):
            parts = [learner.gradient.remote(weights, options.steps) for learner in learners]
            gradients, episodes, steps = zip(*ray.get(parts), strict=True)
            gradient = np.sum(gradients, axis=0)
            weights += 0.5 * gradient / (np.linalg.norm(gradient) + 1e-9)
            length = sum(steps) / max(1, sum(episodes))
            print(f"update {update:3d}  episodes {sum(episodes):5d}  mean return {length:6.1f}")
    finally:
        ray.shutdown()
        if cluster:
            cluster.shutdown()


if __name__ == "__main__":
    main()
