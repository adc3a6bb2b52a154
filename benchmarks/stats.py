"""What `stats=True` and `validate=True` add to a step of CartPole.

    python -m benchmarks.stats

Two equal SyncVectorEnvs, one of them with the option, take turns with the same actions. What is
compared is processor time, of which a busy machine disturbs less; the overhead is the median of the
differences over the median of a step.
"""

from __future__ import annotations

import statistics
import time
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import cart_pole, make_table, show
from vecspaces.vector import SyncVectorEnv


def nanoseconds(envs: Any, actions: list[Any]) -> float:
    """Return the processor time of one step of one environment."""
    began = time.thread_time_ns()
    for batch in actions:
        envs.step(batch)
    return (time.thread_time_ns() - began) / len(actions) / envs.num_envs


def measure(option: str, num_envs: int, rounds: int) -> tuple[float, float]:
    """Return a step without the option, and what that adds, in nanoseconds."""
    generator = np.random.default_rng(0)
    steps = max(1, 512 // num_envs)
    plain: list[float] = []
    added: list[float] = []
    env_fns = [cart_pole] * num_envs
    with (
        SyncVectorEnv(env_fns) as without,
        SyncVectorEnv(env_fns, **{option: True}) as with_option,  # type: ignore[arg-type]
    ):
        for number in range(rounds):
            if number % 50 == 0:
                without.reset(seed=number)
                with_option.reset(seed=number)
            actions = [generator.integers(0, 2, num_envs) for _ in range(steps)]
            turns = (without, with_option) if number % 2 else (with_option, without)
            times = {envs: nanoseconds(envs, actions) for envs in turns}
            plain.append(times[without])
            added.append(times[with_option] - times[without])
    return statistics.median(plain), statistics.median(added)


def main(
    num_envs: Annotated[str, typer.Option(metavar="N,N,...")] = "8,32,128", rounds: int = 1000
) -> None:
    """Measure for some numbers of environments."""
    columns = ("environments", "ns per step", "ns added", "overhead")
    for option in ("stats", "validate"):
        table = make_table(f"CartPole-v1 with {option}=True", *columns, left=0)
        for count in map(int, num_envs.split(",")):
            plain, added = measure(option, count, rounds)
            share = f"{added / plain * 100:.2f} %"
            table.add_row(str(count), f"{plain:,.0f}", f"{added:,.0f}", share)
        show(table)


if __name__ == "__main__":
    typer.run(main)
