"""A training script in the style of CleanRL; tests change its import, and nothing else."""

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv


def make_env(env_id, seed):
    def thunk():
        env = gym.make(env_id)
        env = gym.wrappers.RecordEpisodeStatistics(env)
        env.action_space.seed(seed)
        return env

    return thunk


def train(env_id="CartPole-v1", seed=1, num_envs=4, num_steps=32, updates=6, lr=0.02):
    """Policy gradient with a linear softmax policy; gives everything that a log would hold."""
    rng = np.random.default_rng(seed)
    envs = SyncVectorEnv([make_env(env_id, seed + i) for i in range(num_envs)])
    assert isinstance(envs.single_action_space, gym.spaces.Discrete)
    assert isinstance(envs, gym.vector.VectorEnv)
    features = int(np.prod(envs.single_observation_space.shape))
    weights = np.zeros((features, envs.single_action_space.n))
    log = []
    next_obs, _ = envs.reset(seed=seed)
    next_done = np.zeros(num_envs)
    for _ in range(updates):
        gradient = np.zeros_like(weights)
        returns = np.zeros(num_envs)
        for _ in range(num_steps):
            obs, done = next_obs, next_done
            logits = obs @ weights
            probs = np.exp(logits - logits.max(axis=1, keepdims=True))
            probs /= probs.sum(axis=1, keepdims=True)
            action = (rng.random((num_envs, 1)) > np.cumsum(probs, axis=1)).sum(axis=1)
            next_obs, reward, terminations, truncations, infos = envs.step(action)
            next_done = np.logical_or(terminations, truncations)
            returns = reward + returns * (1 - done)
            onehot = np.eye(weights.shape[1])[action]
            gradient += obs.T @ ((onehot - probs) * returns[:, None])
            if "episode" in infos:
                for i in np.flatnonzero(infos["_episode"]):
                    log.append((float(infos["episode"]["r"][i]), int(infos["episode"]["l"][i])))
        weights += lr * gradient / (num_steps * num_envs)
        log.append(weights.tobytes())
    log.append(envs.action_space.sample().tolist())
    envs.close()
    return log
