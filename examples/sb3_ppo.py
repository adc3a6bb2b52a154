"""Stable-Baselines3's PPO on a vector env of vecspaces and on its own SubprocVecEnv.

Needs Stable-Baselines3: pip install ".[sb3]". Run: python examples/sb3_ppo.py
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecMonitor

from vecspaces import make_vec
from vecspaces.adapters.stable_baselines3 import as_vec_env

ENV_ID = "CartPole-v1"


def ours(num_envs: int) -> VecEnv:
    """Return a VecEnv with many environments per worker and one worker per core."""
    return as_vec_env(make_vec(ENV_ID, num_envs, autoreset_mode="SameStep"))


def theirs(num_envs: int) -> VecEnv:
    """Return a VecEnv with one process per environment."""
    return SubprocVecEnv([lambda: gymnasium.make(ENV_ID)] * num_envs)


def train(vec_env: VecEnv, timesteps: int, seed: int) -> tuple[PPO, float]:
    """Train; return the model, and environment steps per second."""
    model = PPO(
        "MlpPolicy",
        VecMonitor(vec_env),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gae_lambda=0.8,
        gamma=0.98,
        ent_coef=0.0,
        learning_rate=lambda remaining: 1e-3 * remaining,
        clip_range=lambda remaining: 0.2 * remaining,
        seed=seed,
        device="cpu",
    )
    started = time.perf_counter()
    model.learn(timesteps)
    return model, model.num_timesteps / (time.perf_counter() - started)


def main(num_envs: int, timesteps: int, seed: int, compare: bool) -> float:
    """Train and evaluate; return the mean return of 20 episodes."""
    torch.set_num_threads(1)
    vec_env = ours(num_envs)
    model, speed = train(vec_env, timesteps, seed)
    mean, deviation = evaluate_policy(model, VecMonitor(vec_env), n_eval_episodes=20)
    vec_env.close()
    assert not isinstance(mean, list)  # as it is if each episode's return is asked for
    print(f"as_vec_env    {speed:7,.0f} steps/s, mean return {mean:.1f} ± {deviation:.1f}")
    if compare:
        vec_env = theirs(num_envs)
        _, speed = train(vec_env, timesteps, seed)
        vec_env.close()
        print(f"SubprocVecEnv {speed:7,.0f} steps/s")
    return float(mean)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--timesteps", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="train on SubprocVecEnv too")
    main(**vars(parser.parse_args()))
