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


@diagonal(
    env=[Strict, Later],
    options=[{"backend": "sync"}, {"backend": "async"}, {"backend": "async", "batch_size": 2}],
)
def test_what_tune_compares_draws_what_masks_allow(env: Any, options: dict[str, Any]) -> None:
    runner = open_vecspaces(env, 4, **options)
    assert runner.run(100) == 100 * options.get("batch_size", 4)
    runner.close()
