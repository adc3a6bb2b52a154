"""MaskablePPO of sb3-contrib, with action masks that come with the infos of each step.

The environment declares its mask in an `info_space`, so that the masks of all environments are one
array in shared memory, and MaskablePPO gets them without a call into the workers.

Needs sb3-contrib: pip install ".[sb3]" sb3-contrib. Run: python examples/masked_ppo.py
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO

from vecspaces import Env, make_vec, spaces
from vecspaces.adapters.stable_baselines3 import VecspacesVecEnv, as_vec_env

SIZE = 8
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


class Maze(Env[Any, Any]):
    """A walk to the last cell of a grid with walls; the mask shows which moves are possible.

    A move into a wall does nothing. Each step costs 0.1, and the last cell is worth 1: the shortest
    way, of 14 moves, has the return -0.3.
    """

    observation_space = spaces.Box(0, 1, (SIZE * SIZE,))
    action_space = spaces.Discrete(len(MOVES))
    info_space = spaces.Dict(action_mask=spaces.MultiBinary(len(MOVES)))

    def __init__(self) -> None:
        self.free = np.zeros((SIZE + 2, SIZE + 2), np.bool_)
        self.free[1:-1, 1:-1] = np.random.default_rng(5).random((SIZE, SIZE)) > 0.25
        self.free[1, 1:-1] = self.free[1:-1, SIZE] = True  # one way is always open
        self.masks = {
            (row, column): np.array(
                [self.free[row + down, column + right] for down, right in MOVES], np.int8
            )
            for row in range(1, SIZE + 1)
            for column in range(1, SIZE + 1)
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell, self.steps = (1, 1), 0
        return self.observe(), {"action_mask": self.masks[self.cell]}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.masks[self.cell][action]:
            down, right = MOVES[action]
            self.cell = (self.cell[0] + down, self.cell[1] + right)
        arrived = self.cell == (SIZE, SIZE)
        reward = 1.0 if arrived else -0.1
        info = {"action_mask": self.masks[self.cell]}
        return self.observe(), reward, arrived, self.steps == 100, info

    def observe(self) -> Any:
        observation = np.zeros(SIZE * SIZE, np.float32)
        observation[(self.cell[0] - 1) * SIZE + self.cell[1] - 1] = 1
        return observation


def train(algorithm: type[Any], vec_env: VecspacesVecEnv, timesteps: int, seed: int) -> Any:
    """Train; return the model, and the steps per second while it samples."""
    model = algorithm(
        "MlpPolicy",
        vec_env,
        n_steps=64,
        batch_size=512,
        n_epochs=4,
        learning_rate=1e-3,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
    )
    times: list[float] = []

    def note(*_: Any) -> bool:
        times.append(time.perf_counter())
        return True

    model.learn(timesteps, callback=note)
    # The median step: none of those in which it learns.
    return model, vec_env.num_envs / float(np.median(np.diff(times)))


def evaluate(model: Any, vec_env: VecspacesVecEnv) -> float:
    """Return the mean return of the first episode of each environment."""
    observations = vec_env.reset()
    returns, running = np.zeros(vec_env.num_envs), np.ones(vec_env.num_envs)
    while running.any():
        masks = np.stack(vec_env.env_method("action_masks"))
        actions, _ = model.predict(observations, deterministic=True, action_masks=masks)
        observations, rewards, dones, _ = vec_env.step(actions)
        returns += rewards * running
        running *= ~dones
    return float(returns.mean())


def main(num_envs: int, timesteps: int, seed: int, compare: bool) -> float:
    """Train and evaluate; return the mean return."""
    torch.set_num_threads(1)
    vec_env = as_vec_env(make_vec(Maze, num_envs, autoreset_mode="SameStep"))
    model, speed = train(MaskablePPO, vec_env, timesteps, seed)
    mean = evaluate(model, vec_env)
    print(f"MaskablePPO {speed:7,.0f} steps/s, mean return {mean:.2f}")
    if compare:
        _, speed = train(PPO, vec_env, timesteps, seed)
        print(f"PPO         {speed:7,.0f} steps/s")
    vec_env.close()
    return mean


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--timesteps", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="train PPO without masks too")
    main(**vars(parser.parse_args()))
