"""Every command that draws actions draws those that the environment's masks allow."""

from __future__ import annotations

from typing import Any

from tests.cli.running import run
from tests.crosses import diagonal
from tests.envs.masked import Later, Strict
from vecspaces.cli.contenders import open_vecspaces

COMMANDS = [
    "rollout tests.envs.masked:{} --num-envs 3 --steps 200 --num-workers 2",
    "rollout tests.envs.masked:{} --num-envs 3 --steps 200 --autoreset-mode SameStep",
    "check tests.envs.masked:{} --num-steps 30",
    "tune tests.envs.masked:{} --num-envs 4 --seconds 0.2",
    "profile tests.envs.masked:{} --num-envs 3 --seconds 0.1",
    "evaluate tests.envs.masked:{} --policy random --episodes 5 --num-workers 2",
]


@diagonal(command=COMMANDS, env=["Strict", "Unequal", "Later"])
def test_commands_draw_what_masks_allow(command: str, env: str, in_process: None) -> None:
    result = run(command.format(env))
    assert result.exit_code == 0, result.output
    assert "is not allowed" not in result.output


@diagonal(env=[Strict, Later], options=[("sync", 4), ("async", 4), ("async", 2)])
def test_what_tune_compares_draws_what_masks_allow(env: Any, options: tuple[str, int]) -> None:
    backend, batch_size = options
    runner = open_vecspaces(backend, env, 4, batch_size=batch_size)
    assert runner.run(100) == 100 * batch_size
    runner.close()
