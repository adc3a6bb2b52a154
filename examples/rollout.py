from vecspaces import make_vec

if __name__ == "__main__":
    with make_vec("CartPole-v1", num_envs=64, num_workers=2) as envs:
        observations, infos = envs.reset(seed=0)
        ended = 0
        for _ in range(1_000):
            actions = envs.action_space.sample()  # your policy goes here
            observations, rewards, terminations, truncations, infos = envs.step(actions)
            ended += (terminations | truncations).sum()
        print(f"{ended} episodes, observations {observations.shape} {observations.dtype}")
