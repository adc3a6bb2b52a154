"""A text game with a tool that sometimes hangs or crashes: each episode is complete, or lost.

An agent is asked three sums. It may ask a calculator, which is a process of its own: one call in
100 never returns, and one in 50 ends the calculator. Episodes run as coroutines. The pool of
environments bounds each step, builds again what hangs or failed, and tells the one conversation
that it concerns. A lost episode has no return, so it does not count as one with reward 0.

Run: python examples/conversations.py --episodes 200
"""

from __future__ import annotations

import argparse
import asyncio
import re
import string
import subprocess
import sys
from collections import Counter
from typing import Any

from vecspaces import Env
from vecspaces.aio import Pool
from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.spaces import Text

# Answers one sum per line; on "hang" it waits for the end of its input, on "crash" it ends.
CALCULATOR = """
import os, sys
for line in sys.stdin:
    if line.startswith("hang"):
        sys.stdin.read()
    elif line.startswith("crash"):
        os._exit(1)
    else:
        first, second = line.split("+")
        print(int(first) + int(second), flush=True)
"""
HANGS, CRASHES = 0.01, 0.02
LINES = string.ascii_letters + string.digits + string.punctuation + " "


class ToolError(RuntimeError):
    """The calculator ended."""


class Sums(Env[str, str]):
    """Asks three sums; takes `calc 12+30` to ask the calculator, and `answer 42`."""

    observation_space = Text(200, charset=LINES)
    action_space = Text(200, min_length=0, charset=LINES)

    def __init__(self) -> None:
        self.calculator = subprocess.Popen(
            [sys.executable, "-c", CALCULATOR],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.asked = 0
        return self.ask(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        tool, _, text = action.partition(" ")
        if tool == "calc":
            return f"calculator: {self.calculate(text)}", 0.0, False, False, {}
        reward = float(tool == "answer" and text == str(self.first + self.second))
        return self.ask(), reward, self.asked > 3, False, {}

    def ask(self) -> str:
        self.asked += 1
        self.first, self.second = self.np_random.integers(1_000, size=2).tolist()
        return f"question {self.asked}: {self.first}+{self.second}"

    def calculate(self, sum_of: str) -> str:
        chance = self.np_random.random()
        order = "hang" if chance < HANGS else "crash" if chance < HANGS + CRASHES else sum_of
        assert self.calculator.stdin is not None and self.calculator.stdout is not None
        print(order, file=self.calculator.stdin, flush=True)
        line = self.calculator.stdout.readline()
        if not line:
            raise ToolError("the calculator ended")
        return line.strip()

    def close(self) -> None:
        self.calculator.kill()
        self.calculator.communicate()


def policy(observation: str) -> str:
    """A scripted agent: it asks the calculator, and repeats what it says."""
    if observation.startswith("calculator"):
        return f"answer {observation.split()[-1]}"
    return f"calc {re.findall('[0-9]+[+][0-9]+', observation)[0]}"


async def play(pool: Pool, seed: int) -> float | Exception:
    """Play an episode; return its return, or why it was lost."""
    async with pool.acquire() as env:
        try:
            observation, _ = await env.reset(seed=seed)
            total, over = 0.0, False
            while not over:
                observation, reward, terminated, truncated, _ = await env.step(policy(observation))
                total += reward
                over = terminated or truncated
            return total
        except (ToolError, StepTimeoutError, WorkerDiedError) as error:
            return error


async def play_all(episodes: int, num_envs: int, timeout: float) -> list[float | Exception]:
    """Play all episodes at once, as far as there are environments."""
    async with Pool(Sums, num_envs, step_timeout=timeout) as pool:
        results = await asyncio.gather(*(play(pool, seed) for seed in range(episodes)))
        print(pool.stats())
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Play conversations with a tool that fails.")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--step-timeout", type=float, default=1.0)
    options = parser.parse_args()
    results = asyncio.run(play_all(options.episodes, options.num_envs, options.step_timeout))
    lost = Counter(type(result).__name__ for result in results if isinstance(result, Exception))
    returns = [result for result in results if not isinstance(result, Exception)]
    print(f"{len(returns)} complete, mean return {sum(returns) / len(returns):.2f}")
    print(f"{lost.total()} lost: {dict(lost)}")


if __name__ == "__main__":
    main()
