"""`vecspaces describe`: both spaces and their layouts."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from vecspaces.cli.app import app
from vecspaces.layout import Layout
from vecspaces.spaces import Box, Discrete


def test_it_shows_both_spaces_and_their_layouts() -> None:
    result = CliRunner().invoke(app, ["describe", "CartPole-v1", "--num-envs", "64"])
    assert result.exit_code == 0
    assert "action_space: Discrete(2)" in result.output
    assert repr(Layout.compile(Discrete(2), 64)) in result.output
    assert repr(Layout.compile(Box(0, 1, (4,)), 64)) in result.output


def test_a_vector_env_is_described_by_one_of_its_environments() -> None:
    name = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"
    result = CliRunner().invoke(app, ["describe", name])
    assert "action_space: Discrete(2)" in result.output


@pytest.mark.parametrize("arguments", [["CartPol-v1"], ["CartPole-v1", "--num-envs", "0"]])
def test_bad_input_is_one_clear_line(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["describe", *arguments])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
