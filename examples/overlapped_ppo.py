"""PPO that steps one half of the environments while the policy chooses actions for the other.

The halves take turns: `send` gives the worker the actions of one, and while it computes, the policy
sees what the other has returned. One worker steps in the order of the calls, so a seed repeats the
run. Caller and worker have a core each, since Linux often runs both on one although another is
free. Compare with `--halves 1`, which waits for all environments at each step.

Needs PyTorch: pip install torch. Run: python examples/overlapped_ppo.py
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from vecspaces import make_vec

GAMMA, LAMBDA, CLIP, EPOCHS = 0.99, 0.95, 0.2, 4
MINIBATCH, RATE = 1024, 1e-3
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def run_on(cores: list[int]) -> None:
    """Run this process on some cores, where the system supports it."""
    if cores:
        os.sched_setaffinity(0, cores)


def start_worker(number: int) -> None:
    """Keep the only worker to the second core; the caller has the first."""
    run_on(CORES[1:2])


def network(*sizes: int) -> nn.Sequential:
    """Linear layers with tanh between them; the last begins small."""
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise(sizes)):
        layer = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(layer.weight, 0.01 if number == len(sizes) - 2 else 2**0.5)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def train(halves: int, num_envs: int, steps: int, updates: int, seed: int) -> Any:
    """Train, and return the mean return of the last 100 episodes and the actor's weights."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    envs = make_vec(
        "Acrobot-v1",
        num_envs,
        num_workers=1,
        autoreset_mode="SameStep",
        worker_init_fn=start_worker,
    )
    run_on(CORES[:1])
    parts = np.arange(num_envs).reshape(halves, -1)
    actor, critic = network(6, 64, 64, 3), network(6, 64, 64, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=RATE, eps=1e-5)
    states = np.zeros((steps + 1, num_envs, 6), np.float32)
    actions = np.zeros((steps, num_envs), np.int64)
    rewards, ends = np.zeros((2, steps, num_envs))
    running = np.zeros(num_envs)
    returns: list[float] = []

    @torch.no_grad()
    def values(observations: torch.Tensor) -> np.ndarray:
        return critic(observations).squeeze(-1).numpy()

    def receive(t: int) -> None:
        """Write down what the part that was sent its actions first returned: state t."""
        observations, reward, terminated, truncated, infos, rows = envs.recv(num_envs // halves)
        running[rows] += reward
        over = terminated | truncated
        returns.extend(running[rows[over]])
        running[rows[over]] = 0.0
        if truncated.any():  # the episode would have gone on
            last = torch.as_tensor(np.stack(infos["final_obs"][truncated]))
            reward[truncated] += GAMMA * values(last)
        states[t, rows], rewards[t - 1, rows], ends[t - 1, rows] = observations, reward, over

    states[-1], _ = envs.reset(seed=seed)
    started, mean = time.perf_counter(), np.nan
    for update in range(1, updates + 1):
        states[0] = states[-1]
        for t in range(steps):
            for rows in parts:
                if t:
                    receive(t)
                with torch.no_grad():
                    logits = actor(torch.from_numpy(states[t, rows]))
                actions[t, rows] = torch.distributions.Categorical(logits=logits).sample().numpy()
                envs.send(actions[t, rows], rows)  # and on to the other half
        for _ in parts:
            receive(steps)

        estimates, gains = values(torch.from_numpy(states)), np.zeros((steps + 1, num_envs))
        for t in reversed(range(steps)):
            delta = rewards[t] + GAMMA * estimates[t + 1] * (1 - ends[t]) - estimates[t]
            gains[t] = delta + GAMMA * LAMBDA * (1 - ends[t]) * gains[t + 1]
        seen = torch.from_numpy(states[:-1]).flatten(0, 1)
        taken = torch.from_numpy(actions).flatten()
        gain = torch.from_numpy(gains[:-1]).float().flatten()
        goal = gain + torch.from_numpy(estimates[:-1]).flatten()
        with torch.no_grad():
            old = torch.distributions.Categorical(logits=actor(seen)).log_prob(taken)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(seen)).split(MINIBATCH):
                policy = torch.distributions.Categorical(logits=actor(seen[rows]))
                ratio = (policy.log_prob(taken[rows]) - old[rows]).exp()
                scaled = (gain[rows] - gain[rows].mean()) / (gain[rows].std() + 1e-8)
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                loss = -torch.min(ratio * scaled, clipped * scaled).mean()
                loss = loss + 0.5 * (critic(seen[rows]).squeeze(-1) - goal[rows]).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()
        mean = float(np.mean(returns[-100:] or np.nan))
        seconds = time.perf_counter() - started
        print(
            f"update {update:3}  steps {update * states[1:, :, 0].size:7,}  {seconds:5.1f} s  "
            f"mean return {mean:6.1f}"
        )
    envs.close()
    run_on(CORES)
    return mean, actor.state_dict()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--halves", type=int, default=2, choices=[1, 2])
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=64, help="steps of a rollout")
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    train(**vars(parser.parse_args()))
