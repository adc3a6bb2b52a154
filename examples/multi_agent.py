"""One shared policy learns cooperation: PPO in plain PyTorch on PettingZoo's simple_spread.

Each agent is a row of the batch, so the policy is an ordinary one: its inputs are the rows. Rows of
agents that are gone (`infos["alive"]`) take part in no update. Run: python examples/multi_agent.py
(needs torch and mpe2). On two cores it takes about four minutes: the mean return of an episode, all
agents together, rises from -80 (random actions) to -50.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from vecspaces import make_vec

GAMMA, LAMBDA, CLIP, EPOCHS, MINIBATCHES = 0.95, 0.95, 0.2, 6, 4


def network(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh()]
    last = nn.Linear(128, outputs)
    nn.init.orthogonal_(last.weight, gain)
    return nn.Sequential(*layers, last)


def play(envs: Any, actor: nn.Module | None, steps: int) -> float:
    """Play without learning; return the mean return of an environment, all agents together."""
    observations, _ = envs.reset(seed=1_000_000)
    envs.action_space.seed(0)
    total, episodes = 0.0, 0
    num_agents = envs.num_envs // len(envs.rows_per_env)
    for _ in range(steps):
        if actor is None:
            actions = envs.action_space.sample()
        else:
            with torch.no_grad():
                logits = actor(torch.from_numpy(observations))
            actions = Categorical(logits=logits).sample().numpy()
        observations, rewards, _, _, infos = envs.step(actions)
        total += rewards.sum()
        episodes += int(infos["episode_over"].sum()) // num_agents
    return float(total / episodes)


def main(num_envs: int, num_workers: int, updates: int, steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    with make_vec(
        "mpe2.simple_spread_v3:parallel_env",
        num_envs,
        agents="rows",
        autoreset_mode="SameStep",
        num_workers=num_workers,
    ) as envs:
        rows = envs.num_envs
        observation_space: Any = envs.single_observation_space  # a Box
        action_space: Any = envs.single_action_space  # a Discrete
        width = observation_space.shape[0]
        actor = network(width, int(action_space.n), 0.01)
        critic = network(width, 1, 1.0)
        parameters = [*actor.parameters(), *critic.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=1e-3)
        before = play(envs, None, 4 * steps)
        print(f"random actions: mean return {before:.1f}", flush=True)

        began = time.perf_counter()
        observations, infos = envs.reset(seed=seed)
        for update in range(1, updates + 1):
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 - (update - 1) / updates)
            seen = np.zeros((steps, rows, width), np.float32)
            following = np.zeros((steps, rows, width), np.float32)
            actions = np.zeros((steps, rows), np.int64)
            rewards, ends, cuts = (np.zeros((steps, rows), np.float32) for _ in range(3))
            alive = np.zeros((steps, rows), np.bool_)
            for t in range(steps):
                seen[t], alive[t] = observations, infos["alive"]
                with torch.no_grad():
                    logits = actor(torch.from_numpy(observations))
                actions[t] = Categorical(logits=logits).sample().numpy()
                observations, rewards[t], ends[t], cuts[t], infos = envs.step(actions[t])
                following[t] = observations
                if "final_obs" in infos:  # the last observations of agents that have ended
                    ended = infos["_final_obs"]
                    following[t, ended] = np.stack(infos["final_obs"][ended])

            rewards *= 0.1
            with torch.no_grad():
                values = critic(torch.from_numpy(seen))[..., 0].numpy()
                next_values = critic(torch.from_numpy(following))[..., 0].numpy()
            errors = rewards + GAMMA * next_values * (1 - ends) - values
            advantages = np.zeros_like(errors)
            last = np.zeros(rows, np.float32)
            for t in reversed(range(steps)):
                last = errors[t] + GAMMA * LAMBDA * (1 - np.maximum(ends[t], cuts[t])) * last
                advantages[t] = last
            # Rows of agents that were gone hold nothing to learn from.
            batch = [
                torch.from_numpy(array[alive])
                for array in (seen, actions, advantages, advantages + values)
            ]
            with torch.no_grad():
                old = Categorical(logits=actor(batch[0])).log_prob(batch[1])
            for _ in range(EPOCHS):
                for part in torch.randperm(len(old)).chunk(MINIBATCHES):
                    inputs, chosen, gains, targets = (array[part] for array in batch)
                    gains = (gains - gains.mean()) / (gains.std() + 1e-8)
                    policy = Categorical(logits=actor(inputs))
                    ratio = (policy.log_prob(chosen) - old[part]).exp()
                    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                    loss = (
                        -torch.min(ratio * gains, clipped * gains).mean()
                        + 0.5 * (critic(inputs)[:, 0] - targets).pow(2).mean()
                        - 0.01 * policy.entropy().mean()
                    )
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(parameters, 0.5)
                    optimizer.step()
            if update % 50 == 0 or update == updates:
                mean = 10 * rewards.sum() * 25 / steps / num_envs
                seconds = time.perf_counter() - began
                print(f"update {update:4d}  return {mean:7.1f}  {seconds:4.0f} s", flush=True)
        after = play(envs, actor, 4 * steps)
        print(f"learned: mean return {after:.1f}, random {before:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--updates", type=int, default=350)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
