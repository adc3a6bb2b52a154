"""PPO in one file, in the style of CleanRL, on Gymnasium 1.4's vocabulary: one import is ours.

Replace it by `from gymnasium import make_vec` and the program trains the same network, step for
step, on Gymnasium's own vector env. Run: python examples/cleanrl_style_ppo.py
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from vecspaces.adapters.gymnasium import make_vec


def layer(inputs: int, outputs: int, scale: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, scale)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    def __init__(self, envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        super().__init__()
        assert isinstance(envs.single_observation_space, Box)
        assert isinstance(envs.single_action_space, Discrete)
        inputs = int(np.prod(envs.single_observation_space.shape))
        actions = int(envs.single_action_space.n)
        self.critic = nn.Sequential(
            layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0)
        )
        self.actor = nn.Sequential(
            layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, 0.01)
        )

    def value(self, observations: torch.Tensor) -> torch.Tensor:
        return self.critic(observations).squeeze(-1)

    def policy(self, observations: torch.Tensor) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=self.actor(observations))


def train(args: argparse.Namespace) -> tuple[float, Agent]:
    """Return the mean return of the last 100 episodes, and the agent."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    envs = make_vec(
        args.env_id,
        args.num_envs,
        vectorization_mode=args.vectorization_mode,
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    states = torch.zeros((*shape, *(envs.single_observation_space.shape or ())))
    actions, logs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))

    start = time.perf_counter()
    state = torch.as_tensor(envs.reset(seed=args.seed)[0])
    updates = args.total_timesteps // (args.num_steps * args.num_envs)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - update / updates)
        for t in range(args.num_steps):
            with torch.no_grad():
                policy = agent.policy(state)
                action = policy.sample()
                values[t] = agent.value(state)
            states[t], actions[t], logs[t] = state, action, policy.log_prob(action)
            observation, reward, terminated, truncated, infos = envs.step(action.numpy())
            # An episode that was cut off goes on in the value of its last observation.
            if truncated.any():
                last = torch.as_tensor(np.stack(infos["final_obs"][truncated]))
                with torch.no_grad():
                    reward[truncated] += args.gamma * agent.value(last).numpy()
            rewards[t], dones[t] = torch.as_tensor(reward), torch.as_tensor(terminated | truncated)
            state = torch.as_tensor(observation)

        with torch.no_grad():
            following, gain = agent.value(state), torch.zeros(args.num_envs)
            gains = torch.zeros(shape)
            for t in reversed(range(args.num_steps)):
                delta = rewards[t] + args.gamma * following * (1 - dones[t]) - values[t]
                gain = delta + args.gamma * args.gae_lambda * (1 - dones[t]) * gain
                gains[t], following = gain, values[t]
        flat = [x.flatten(0, 1) for x in (states, actions, logs, gains, gains + values)]
        for _ in range(args.update_epochs):
            for rows in torch.randperm(len(flat[0])).split(len(flat[0]) // args.num_minibatches):
                b_states, b_actions, b_logs, b_gains, b_returns = (x[rows] for x in flat)
                policy = agent.policy(b_states)
                ratio = (policy.log_prob(b_actions) - b_logs).exp()
                b_gains = (b_gains - b_gains.mean()) / (b_gains.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                policy_loss = -torch.min(ratio * b_gains, clipped * b_gains).mean()
                value_loss = 0.5 * (agent.value(b_states) - b_returns).pow(2).mean()
                loss = policy_loss + args.vf_coef * value_loss
                loss -= args.ent_coef * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()

        mean = float(np.mean(envs.return_queue)) if envs.return_queue else 0.0
        steps = (update + 1) * args.num_steps * args.num_envs
        speed = steps / (time.perf_counter() - start)
        print(f"steps {steps:7,}  {speed:7,.0f} steps/s  mean return {mean:6.1f}")
    envs.close()
    return mean, agent


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--vectorization-mode", default="sync", choices=["sync", "async"])
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--total-timesteps", type=int, default=100_000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=4)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    parser.add_argument("--ent-coef", type=float, default=0.01)
    parser.add_argument("--vf-coef", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    train(parse())
