"""Past the bound of `step`: two halves in turns by `send` and `recv`, against both limits.

    pip install "gymnasium[mujoco]"
    python -m benchmarks.halves --policy-ms 0,1

While the caller's policy computes the actions of one half, the workers step the other. A policy
takes its milliseconds for the batch of all environments, and half of them for a half. Every way
takes its turn in each round; ratios are medians of the rounds' ratios to loops that never wait.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from benchmarks.common import BareLoops, cart_pole, race, repeat, show
from benchmarks.contenders import open_share, prepare_actions
from benchmarks.environments import find_environment
from benchmarks.overlap import spin
from benchmarks.real import TASKS
from vecspaces.cores import count_usable_cores
from vecspaces.vector import AsyncVectorEnv


def main(
    num_envs: int = 64,
    num_workers: Annotated[int, typer.Option(help="0: as many as usable cores.")] = 0,
    policy_ms: Annotated[str, typer.Option(metavar="MS,MS,...")] = "0,1",
    rounds: int = 5,
    seconds: Annotated[float, typer.Option(help="Of each round, for each way.")] = 0.5,
) -> None:
    """Print a table for each environment and policy."""
    workers = num_workers or count_usable_cores()
    half_cheetah, _ = TASKS["HalfCheetah-v5"]
    tasks = {"CartPole": cart_pole, "HalfCheetah": half_cheetah, "image": find_environment("image")}
    for name, make in tasks.items():
        actions = prepare_actions(make().action_space, num_envs)
        loops = BareLoops(partial(open_share, make), num_envs, workers)
        with AsyncVectorEnv([make] * num_envs, num_workers=workers) as envs:

            def step(policy: float, turn: int, envs: Any = envs, actions: Any = actions) -> None:
                spin(policy)
                envs.step(actions[turn % len(actions)])

            def half(policy: float, turn: int, envs: Any = envs, actions: Any = actions) -> None:
                rows = envs.recv(num_envs // 2).env_ids
                spin(policy / 2)
                envs.send(actions[turn % len(actions)][rows], rows)

            def speed_of_steps(policy: float, seconds: float, envs: Any = envs) -> float:
                envs.reset(seed=0)
                return num_envs * repeat(partial(step, policy), seconds)

            def speed_of_halves(policy: float, seconds: float, envs: Any = envs) -> float:
                envs.reset(seed=0)
                return num_envs / 2 * repeat(partial(half, policy), seconds)

            for policy in (float(text) / 1000 for text in policy_ms.split(",")):
                print(f"\n{num_envs} {name}, {workers} workers, a policy of {policy * 1e3:g} ms")
                ways = {
                    "loops that never wait": loops.speed,
                    "loops in step": loops.speed_in_step,
                    "step": partial(speed_of_steps, policy),
                    "halves": partial(speed_of_halves, policy),
                }
                show(race(ways, rounds, seconds))
        loops.close()


if __name__ == "__main__":
    typer.run(main)
