"""A policy that plans eight actions at once: steps one by one, and in chunks.

The environment moves a hand to a goal. A camera renders an image for each observation: in every
step, or once per chunk, if it is outside of `ActionChunks`.

Run: python examples/action_chunks.py
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import numpy as np

from vecspaces import Env, make_vec
from vecspaces.envs import ActionChunks
from vecspaces.spaces import Box, Dict

LENGTH = 8
Array = np.ndarray[Any, Any]


class Reach(Env[Any, Array]):
    """A hand in the plane is to reach a goal."""

    observation_space = Dict(hand=Box(-2, 2, (2,)), goal=Box(-1, 1, (2,)))
    action_space = Box(-0.1, 0.1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.hand = np.zeros(2, np.float32)
        self.goal = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self.time = 0
        return {"hand": self.hand, "goal": self.goal}, {}

    def step(self, action: Array) -> Any:
        self.hand = np.clip(self.hand + action, -2, 2)
        self.time += 1
        distance = float(np.linalg.norm(self.goal - self.hand))
        observation = {"hand": self.hand, "goal": self.goal}
        return observation, -distance, distance < 0.05, self.time >= 100, {}


class Camera(Env[Any, Any]):
    """Adds an image to each observation of an environment; it is slow."""

    def __init__(self, env: Any) -> None:
        self.env, self.action_space, self.info_space = env, env.action_space, env.info_space
        image = Box(0, 255, (64, 64), np.uint8)
        self.observation_space = Dict({**env.observation_space.spaces, "camera": image})
        self.rendered = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = self.env.reset(seed=seed, options=options)
        return self.observe(observation), info

    def step(self, action: Array) -> Any:
        observation, *results = self.env.step(action)
        return self.observe(observation), *results

    def observe(self, observation: Any) -> Any:
        x, y = np.meshgrid(np.linspace(-1, 1, 64), np.linspace(-1, 1, 64))
        hand = observation["hand"]
        blob = np.exp(-((x - hand[0]) ** 2) - (y - hand[1]) ** 2)
        self.rendered += 1
        return {**observation, "camera": (255 * blob).astype(np.uint8)}


def plan(observations: Any) -> Array:
    """Plan steps of equal length towards the goal: shape (num_envs, LENGTH, 2)."""
    way = (observations["goal"] - observations["hand"]) / LENGTH
    return np.clip(np.repeat(way[:, None], LENGTH, axis=1), -0.1, 0.1).astype(np.float32)


def make(in_chunks: bool) -> Camera:
    return Camera(ActionChunks(Reach(), LENGTH) if in_chunks else Reach())


def play(num_envs: int, plans: int, in_chunks: bool) -> None:
    env_fn = partial(make, in_chunks)
    with make_vec(env_fn, num_envs, num_workers=2, autoreset_mode="SameStep") as envs:
        observations, _ = envs.reset(seed=0)
        began, steps, reached = time.perf_counter(), 0, 0
        for _ in range(plans):
            actions = plan(observations)
            # With single steps, a row whose episode has ended goes on with its old plan.
            for action in [actions] if in_chunks else actions.swapaxes(0, 1):
                observations, _, terminations, _, infos = envs.step(action)
                reached += int(terminations.sum())
                # At the end of an episode, the infos of its last chunk are in `final_info`.
                taken = [infos, infos.get("final_info", {})] if in_chunks else []
                steps += sum(int(part["steps"].sum()) for part in taken if "steps" in part)
                steps += 0 if in_chunks else num_envs
        took = time.perf_counter() - began
        rendered = sum(envs.get_attr("rendered"))
    name = "chunks" if in_chunks else "steps"
    print(
        f"{name:10}  {steps / took:8,.0f} steps/s  {rendered / steps:5.2f} images per step  "
        f"reached {reached} goals"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare single steps with chunks.")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--plans", type=int, default=40)
    arguments = parser.parse_args()
    for in_chunks in (False, True):
        play(arguments.num_envs, arguments.plans, in_chunks)
