"""Every episode of the conversations with a tool that fails is complete, or marked as lost."""

from __future__ import annotations

import re

import pytest

from tests.programs import ROOT, run_python

PROGRAM = ROOT / "examples" / "conversations.py"


@pytest.mark.parametrize("episodes", [40, pytest.param(200, marks=pytest.mark.full)])
def test_no_lost_episode_counts_as_reward_0(episodes: int) -> None:
    arguments = ["--episodes", str(episodes), "--num-envs", "8", "--step-timeout", "3"]
    run = run_python("-W", "error", PROGRAM, *arguments)
    match = re.search(r"(\d+) complete, mean return 3\.00\n(\d+) lost: (.*)", run.stdout)
    assert match is not None, run.stdout
    assert int(match[1]) + int(match[2]) == episodes
    # The workers live on, so an environment that hangs costs no other conversation its episode.
    assert "StepTimeoutError" in match[3] and "ToolError" in match[3]
    assert "WorkerDiedError" not in match[3]
