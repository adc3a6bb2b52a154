"""A policy that plans eight actions at once: steps one by one, and in chunks.

The environment moves a hand to a goal and renders an image; with chunks it renders only what the
policy looks at.

Run: python examples/action_chunks.py
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from vecspaces import Env, make_vec
from vecspaces.spaces import Box, Dict

LENGTH = 8
Array = np.ndarray[Any, Any]


class Reach(Env[dict[str, Array], Array]):
    """A hand in the plane is to reach a goal; its camera is slow."""

    observation_space = Dict(
        camera=Box(0, 255, (64, 64), np.uint8), hand=Box(-2, 2, (2,)), goal=Box(-1, 1, (2,))
    )
    action_space = Box(-0.1, 0.1, (2,))
    info_space = Dict(distance=Box(0, np.inf, ()))
    needs_observation = True  # False in steps of a chunk but the last

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.hand = np.zeros(2, np.float32)
        self.goal = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self.camera = np.zeros((64, 64), np.uint8)
        self.rendered = getattr(self, "rendered", 0)
        self.time = 0
        return self.observe(), {"distance": self.distance}

    @property
    def distance(self) -> float:
        return float(np.linalg.norm(self.goal - self.hand))

    def observe(self) -> dict[str, Array]:
        x, y = np.meshgrid(np.linspace(-1, 1, 64), np.linspace(-1, 1, 64))
        blob = np.exp(-((x - self.hand[0]) ** 2) - (y - self.hand[1]) ** 2)
        self.camera = (255 * blob).astype(np.uint8)
        self.rendered += 1
        return {"camera": self.camera, "hand": self.hand, "goal": self.goal}

    def step(self, action: Array) -> Any:
        self.hand = np.clip(self.hand + action, -2, 2)
        self.time += 1
        done, late = self.distance < 0.05, self.time >= 100
        # The last observation of an episode is always looked at.
        if self.needs_observation or done or late:
            observation = self.observe()
        else:
            observation = {"camera": self.camera, "hand": self.hand, "goal": self.goal}
        return observation, -self.distance, done, late, {"distance": self.distance}


def plan(observations: Any) -> Array:
    """Plan steps of equal length towards the goal: shape (num_envs, LENGTH, 2)."""
    way = (observations["goal"] - observations["hand"]) / LENGTH
    return np.clip(np.repeat(way[:, None], LENGTH, axis=1), -0.1, 0.1).astype(np.float32)


def play(num_envs: int, plans: int, in_chunks: bool) -> None:
    with make_vec(Reach, num_envs, num_workers=2, autoreset_mode="SameStep") as envs:
        observations, _ = envs.reset(seed=0)
        began, steps, reached = time.perf_counter(), 0, 0
        for _ in range(plans):
            actions = plan(observations)
            if in_chunks:
                chunk = envs.step_chunk(actions)
                observations = chunk.observations
                steps += int(chunk.steps.sum())
                reached += int(chunk.terminations.sum())
                continue
            for number in range(LENGTH):
                # A row whose episode has ended would go on with the rest of its old plan.
                observations, _, terminations, _, _ = envs.step(actions[:, number])
                steps += num_envs
                reached += int(terminations.sum())
        took = time.perf_counter() - began
        rendered = sum(envs.get_attr("rendered"))
    name = "step_chunk" if in_chunks else "step"
    print(
        f"{name:10}  {steps / took:8,.0f} steps/s  {rendered / steps:5.2f} images per step  "
        f"reached {reached} goals"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare step with step_chunk.")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--plans", type=int, default=40)
    arguments = parser.parse_args()
    for in_chunks in (False, True):
        play(arguments.num_envs, arguments.plans, in_chunks)
