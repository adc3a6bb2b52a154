"""Every command that draws actions draws those that the environment's masks allow."""

from __future__ import annotations

from tests.cli.running import run
from tests.crosses import diagonal

COMMANDS = [
    "rollout tests.envs.masked:{} --num-envs 3 --steps 200 --num-workers 2",
    "rollout tests.envs.masked:{} --num-envs 3 --steps 200 --autoreset-mode SameStep",
    "check tests.envs.masked:{} --num-steps 30",
    "bench tests.envs.masked:{} --num-envs 4 --seconds 0.05",
    "evaluate tests.envs.masked:{} --policy random --episodes 5 --num-workers 2",
]


@diagonal(command=COMMANDS, env=["Strict", "Unequal", "Later"])
def test_commands_draw_what_masks_allow(command: str, env: str, in_process: None) -> None:
    result = run(command.format(env))
    assert result.exit_code == 0, result.output
    assert "is not allowed" not in result.output
