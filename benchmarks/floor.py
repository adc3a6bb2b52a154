"""Is vecspaces ever slower than Gymnasium? The least ratio of some rounds, in turns.

    python -m benchmarks.floor

*sync* is `SyncVectorEnv` over Gymnasium's; *default* is `make_vec` without arguments over the
faster of Gymnasium's two vector envs.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer

from benchmarks.common import cart_pole, make_table, repeat, show
from benchmarks.contenders import prepare_actions
from benchmarks.environments import Infos, Nothing, Robot, find_environment
from vecspaces import make_vec
from vecspaces.vector import SyncVectorEnv


class Ends(Nothing):
    """Ends in each step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """End."""
        return self._observation, 1.0, True, False, {}


class Masks(Nothing):
    """Has a mask of its actions in its infos."""

    def __init__(self) -> None:
        super().__init__()
        self._info = {"action_mask": np.ones(16, np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the mask."""
        return self._observation, 0.0, False, False, self._info


ENVS = {
    "idle": Nothing,
    "ends": Ends,
    "infos": Infos,
    "masks": Masks,
    "Dict": Robot,
    "image": find_environment("image"),
    "CartPole": cart_pole,
}


def compare(make: Any, num_envs: int, rounds: int, seconds: float) -> list[str]:
    """Return the least and the median ratio of `SyncVectorEnv` and of `make_vec`'s default."""
    with ExitStack() as stack:
        vector = gymnasium.vector
        makes = [make] * num_envs
        ways = [SyncVectorEnv(makes), vector.SyncVectorEnv(makes)]
        ways += [make_vec(make, num_envs), vector.AsyncVectorEnv(makes)]
        actions = prepare_actions(ways[1].single_action_space, num_envs)
        for envs in ways:
            stack.callback(envs.close)
            envs.reset(seed=0)

        def speed(envs: Any) -> float:
            return repeat(lambda turn: envs.step(actions[turn % len(actions)]), seconds)

        turns = [[speed(envs) for envs in ways] for _ in range(rounds + 1)][1:]
    sync = [ours / theirs for ours, theirs, _, _ in turns]
    default = [ours / max(sync, both) for _, sync, ours, both in turns]
    return [f"{min(ratios):.2f} ({median(ratios):.2f})" for ratios in (sync, default)]


def main(
    num_envs: Annotated[str, typer.Option(metavar="N,N,...")] = "1,2,4,8,16,64",
    rounds: int = 5,
    seconds: Annotated[float, typer.Option(help="Of each round, for each way.")] = 0.15,
) -> None:
    """Print the least ratios, and the medians in parentheses."""
    table = make_table("vecspaces over Gymnasium", "environment", "number", "sync", "default")
    for name, make in ENVS.items():
        for number in map(int, num_envs.split(",")):
            table.add_row(name, str(number), *compare(make, number, rounds, seconds))
    show(table)


if __name__ == "__main__":
    typer.run(main)
