"""Commands draw actions that masks allow; tests/test_sampling.py has evaluations and checks."""

from __future__ import annotations

from tests.cli.running import run
from tests.crosses import diagonal

COMMANDS = [
    "rollout tests.envs.masked:{} --num-envs 3 --steps 200 --num-workers 2",
    "bench tests.envs.masked:{} --num-envs 4 --seconds 0.05",
]


@diagonal(command=COMMANDS, env=["Strict", "Unequal", "Later"])
def test_commands_draw_what_masks_allow(command: str, env: str) -> None:
    result = run(command.format(env))
    assert result.exit_code == 0, result.output
    assert "is not allowed" not in result.output
