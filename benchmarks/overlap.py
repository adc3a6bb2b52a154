"""Steps per second of two halves of the environments in turns, against `step` of all.

    python -m benchmarks.overlap

While the policy chooses actions for one half, a worker steps the other. Environments and policy
compute (they do not sleep), and a policy's time grows with the number of observations. Three ways
take turns in rounds; ratios are medians of the rounds' ratios to `step` with one worker. Two vector
envs have a worker each, so they can gain more where the policy takes less time.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import make_table, repeat, show
from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv


def spin(seconds: float) -> None:
    """Compute for some seconds of processor time, which sharing a core does not shorten."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Spinner(Env[Any, Any]):
    """Computes for some seconds in each step."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._observation = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._observation, {}

    def step(self, action: Any) -> Any:
        spin(self._seconds)
        return self._observation, 1.0, False, False, {}


def make(count: int, env_seconds: float) -> AsyncVectorEnv[Any, Any]:
    return AsyncVectorEnv([lambda: Spinner(env_seconds)] * count, num_workers=1)


def step_in_turn(count: int, env: float, policy: float, seconds: float) -> float:
    """Step all environments with one worker; return their steps per second."""
    actions = np.zeros(count, np.int64)
    with make(count, env) as envs:
        envs.reset()

        def turn(_: int) -> None:
            spin(policy * count)
            envs.step(actions)

        return count * repeat(turn, seconds)


def two_vector_envs(count: int, env: float, policy: float, seconds: float) -> float:
    """Step two vector envs of one worker each in turns."""
    half = count // 2
    actions = np.zeros(half, np.int64)
    with make(half, env) as first, make(half, env) as second:
        halves = first, second
        for envs in halves:
            envs.reset()
            envs.step_async(actions)

        def turn(number: int) -> None:
            envs = halves[number % 2]
            envs.step_wait()
            spin(policy * half)
            envs.step_async(actions)

        speed = half * repeat(turn, seconds)
        for envs in halves:
            envs.step_wait()
        return speed


def send_and_recv(count: int, env: float, policy: float, seconds: float) -> float:
    """Send one worker the actions of the two halves of its environments in turns."""
    half = count // 2
    actions = np.zeros(half, np.int64)
    with make(count, env) as envs:
        envs.reset()
        envs.recv()
        for rows in (range(half), range(half, count)):
            envs.send(actions, list(rows))

        def turn(_: int) -> None:
            rows = envs.recv(half).env_ids
            spin(policy * half)
            envs.send(actions, rows)

        speed = half * repeat(turn, seconds)
        envs.recv()
        return speed


WAYS = {
    "step": step_in_turn,
    "two vector envs": two_vector_envs,
    "send, recv": send_and_recv,
}


def main(
    num_envs: int = 16,
    env_us: Annotated[str, typer.Option(help="Microseconds of a step of one.")] = "25,100",
    ratios: Annotated[str, typer.Option(help="Policy time / environment time.")] = "0.25,0.5,1,2",
    rounds: int = 5,
    seconds: Annotated[float, typer.Option(help="Of each round, for each way.")] = 0.6,
) -> None:
    """Time all ways in turns."""
    table = make_table(
        f"{num_envs} environments, {rounds} rounds",
        "us per environment",
        "policy / environments",
        *(f"{name}: steps/s" for name in WAYS),
        *(f"{name}: ratio" for name in list(WAYS)[1:]),
        left=0,
    )
    for env_time in map(float, env_us.split(",")):
        for ratio in map(float, ratios.split(",")):
            samples = np.array(
                [
                    [
                        way(num_envs, env_time * 1e-6, ratio * env_time * 1e-6, seconds)
                        for way in WAYS.values()
                    ]
                    for _ in range(rounds)
                ]
            )
            speeds = np.median(samples, axis=0)
            gains = np.median(samples / samples[:, :1], axis=0)[1:]
            cells = [*(f"{speed:,.0f}" for speed in speeds), *(f"{gain:.2f}" for gain in gains)]
            table.add_row(f"{env_time:g}", f"{ratio:g}", *cells)
    show(table)


if __name__ == "__main__":
    typer.run(main)
