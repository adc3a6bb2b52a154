"""Nested observations: each leaf is one array over all environments.

A robot observes an image, its joints, a list of nearby objects of varying length, and an order as
text. All of it lies in shared memory.

Run: python examples/dict_observations.py
"""

from __future__ import annotations

import argparse
from typing import Any, TypeAlias

import numpy as np

from vecspaces import Env, spaces
from vecspaces.layout import Layout
from vecspaces.vector import AsyncVectorEnv

Nested: TypeAlias = dict[str, Any]

ORDERS = ("lift", "push", "wait")


class Robot(Env[Nested, Nested]):
    """Receives an order at every step, and is rewarded for obeying it."""

    observation_space = spaces.Dict(
        camera=spaces.Box(0, 255, (8, 8, 3), np.uint8),
        joints=spaces.Dict(angle=spaces.Box(-np.pi, np.pi, (6,)), locked=spaces.MultiBinary(6)),
        nearby=spaces.Sequence(spaces.Box(-1.0, 1.0, (2,)), stack=True),
        order=spaces.Text(8),
    )
    action_space = spaces.Dict(
        command=spaces.Discrete(len(ORDERS)), torque=spaces.Box(-1.0, 1.0, (6,))
    )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Nested, dict[str, Any]]:
        super().reset(seed=seed)
        self.angle = np.zeros(6, np.float32)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Nested) -> tuple[Nested, float, bool, bool, dict[str, Any]]:
        done = ORDERS[action["command"]] == self.order
        self.angle = np.clip(self.angle + 0.1 * action["torque"], -np.pi, np.pi)
        self.time += 1
        return self._observe(), float(done), False, self.time >= 20, {"obeyed": done}

    def _observe(self) -> Nested:
        random = self.np_random
        self.order = ORDERS[random.integers(len(ORDERS))]
        return {
            "camera": random.integers(0, 256, (8, 8, 3), dtype=np.uint8),
            "joints": {"angle": self.angle, "locked": np.zeros(6, np.int8)},
            "nearby": random.uniform(-1, 1, (random.integers(4), 2)).astype(np.float32),
            "order": self.order,
        }


def obedient(observations: Nested) -> Nested:
    """Return the commands that obey the orders, and move no joint."""
    commands = [ORDERS.index(order) for order in observations["order"]]
    torque = np.zeros_like(observations["joints"]["angle"])
    return {"command": np.array(commands), "torque": torque}


def main(num_envs: int, steps: int) -> float:
    """Roll out the obedient policy; return the share of orders that were obeyed."""
    print(Layout.compile(Robot.observation_space, num_envs))
    obeyed = []
    with AsyncVectorEnv([Robot] * num_envs, autoreset_mode="SameStep") as envs:
        observations, _ = envs.reset(seed=0)
        for _ in range(steps):
            observations, rewards, *_ = envs.step(obedient(observations))
            obeyed.append(rewards.mean())
    print("camera", observations["camera"].shape, observations["camera"].dtype)
    print("joints.angle", observations["joints"]["angle"].shape)
    print("nearby", [item.shape for item in observations["nearby"]])
    print("order", observations["order"])
    return float(np.mean(obeyed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    print(f"obeyed {main(**vars(parser.parse_args())):.0%} of the orders")
