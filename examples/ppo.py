"""PPO whose rollout buffer is the vector env's own memory: CartPole-v1 to a mean return of 475.

The workers write T + 1 observations one after the other into shared memory, and `rollout_view()`
returns them as one array: no observation is copied between the worker that wrote it and the
optimiser that reads it.

Needs PyTorch: pip install torch. Run: python examples/ppo.py
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from vecspaces import make_vec
from vecspaces.spaces import Box, Discrete
from vecspaces.wrappers import RecordEpisodeStatistics

GAMMA, LAMBDA, CLIP, EPOCHS = 0.98, 0.9, 0.2, 10
MINIBATCH, RATE = 256, 1e-3


def network(inputs: int, outputs: int, scale: float) -> nn.Sequential:
    """Two hidden layers of 64, orthogonal; `scale` of the last keeps the first outputs small."""
    sizes = [inputs, 64, 64, outputs]
    layers: list[nn.Module] = []
    for number, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        layer = nn.Linear(fan_in, fan_out)
        nn.init.orthogonal_(layer.weight, scale if number == 2 else 2**0.5)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def advantages(
    rewards: np.ndarray, values: np.ndarray, terminations: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """Generalised advantage estimation (Schulman et al. 2016) over T steps of n environments.

    In NEXT_STEP mode the observation after an end is the episode's last one, so a truncated episode
    is bootstrapped from it.
    """
    following = np.where(terminations, 0.0, values[1:])
    deltas = rewards + GAMMA * following - values[:-1]
    result: np.ndarray = np.zeros_like(deltas)
    running = np.zeros(deltas.shape[1])
    for t in reversed(range(len(deltas))):
        running = deltas[t] + GAMMA * LAMBDA * running * ~ends[t]
        result[t] = running
    return result


def train(num_envs: int, steps: int, updates: int, seed: int, target: float) -> float:
    """Train until the mean return of the last 100 episodes reaches a target; return it."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    envs = RecordEpisodeStatistics(make_vec("CartPole-v1", num_envs, buffers=steps + 1, copy=False))
    with envs:
        assert isinstance(envs.single_observation_space, Box)
        assert isinstance(envs.single_action_space, Discrete)
        inputs = envs.single_observation_space.shape[0]
        actor = network(inputs, int(envs.single_action_space.n), 0.01)
        critic = network(inputs, 1, 1.0)
        parameters = [*actor.parameters(), *critic.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=RATE, eps=1e-5)
        observations, _ = envs.reset(seed=seed)
        ended = np.zeros(num_envs, dtype=bool)  # the step after an end only resets
        started = time.perf_counter()
        mean = 0.0
        for update in range(1, updates + 1):
            actions = np.zeros((steps, num_envs), dtype=np.int64)
            for t in range(steps):
                with torch.no_grad():
                    logits = actor(torch.from_numpy(observations))
                actions[t] = torch.distributions.Categorical(logits=logits).sample().numpy()
                observations, *_ = envs.step(actions[t])

            rollout = envs.rollout_view()  # (T + 1, n, ...): views, no copies
            states = torch.from_numpy(rollout.observations)
            ends = rollout.terminations | rollout.truncations
            real = ~np.concatenate([ended[None], ends[:-1]])
            ended = ends[-1]
            with torch.no_grad():
                values = critic(states).squeeze(-1).numpy()
                old_logits = actor(states[:-1])
            gains = advantages(rollout.rewards, values, rollout.terminations, ends)

            chosen = torch.from_numpy(np.flatnonzero(real))
            batch_states = states[:-1].reshape(-1, inputs)
            batch_actions = torch.from_numpy(actions).reshape(-1)
            batch_gains = torch.from_numpy(gains).float().reshape(-1)
            batch_returns = batch_gains + torch.from_numpy(values[:-1]).reshape(-1)
            old = torch.distributions.Categorical(
                logits=old_logits.reshape(-1, old_logits.shape[-1])
            )
            old_logs = old.log_prob(batch_actions)
            fraction = 1.0 - (update - 1) / updates
            optimizer.param_groups[0]["lr"] = RATE * fraction
            for _ in range(EPOCHS):
                for rows in chosen[torch.randperm(len(chosen))].split(MINIBATCH):
                    policy = torch.distributions.Categorical(logits=actor(batch_states[rows]))
                    ratio = (policy.log_prob(batch_actions[rows]) - old_logs[rows]).exp()
                    gain = batch_gains[rows]
                    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                    clipped = ratio.clamp(1 - CLIP * fraction, 1 + CLIP * fraction)
                    policy_loss = -torch.min(ratio * gain, clipped * gain).mean()
                    estimates = critic(batch_states[rows]).squeeze(-1)
                    value_loss = (estimates - batch_returns[rows]).pow(2).mean()
                    optimizer.zero_grad()
                    (policy_loss + 0.5 * value_loss).backward()
                    nn.utils.clip_grad_norm_(parameters, 0.5)
                    optimizer.step()

            if envs.return_queue:
                mean = float(np.mean(envs.return_queue))
            seconds = time.perf_counter() - started
            print(
                f"update {update:3}  steps {update * steps * num_envs:7,}  {seconds:5.1f} s  "
                f"mean return of {len(envs.return_queue)} episodes {mean:6.1f}"
            )
            if mean >= target and len(envs.return_queue) == 100:
                break
    return mean


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=128, help="steps of a rollout")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=475.0)
    train(**vars(parser.parse_args()))
