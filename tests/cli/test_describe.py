"""`vecspaces describe`: both spaces and their layouts."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import gymnasium
import pytest

from tests.cli.running import as_json, run
from vecspaces.adapters.gymnasium import from_gymnasium
from vecspaces.layout import Layout
from vecspaces.spaces import Discrete, from_description

MODULES = {
    "colours": """
from vecspaces import Env, Space, spaces

class Colour(Space):
    def __eq__(self, other):
        return isinstance(other, Colour)

class Painter(Env):
    observation_space = Colour()
    action_space = spaces.Discrete(2)
"""
}


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe without a reader fails in another way")
def test_a_reader_that_has_seen_enough_ends_it_without_a_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as output:
        command = [sys.executable, "-m", "vecspaces", "describe", "tests.envs:Ledger"]
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, timeout=60)
    assert ended.returncode == 1 and b"vecspaces:" not in ended.stderr


def test_it_shows_both_spaces_and_their_layouts_and_descriptions_give_the_spaces_back() -> None:
    result = run("describe CartPole-v1 --num-envs 3 --json -")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    env = gymnasium.make("CartPole-v1")
    space = from_description(found["observation_space"]["description"])
    assert space == from_gymnasium(env.observation_space)
    assert from_description(found["action_space"]["description"]) == Discrete(2)
    layout = Layout.compile(space, 3)
    assert found["observation_space"]["bytes"] == layout.size
    assert [leaf["offset"] for leaf in found["observation_space"]["leaves"]] == [0]
    # What is not for the file stands beside it.
    assert "observation_space: Box" in result.stderr and repr(layout) in result.stderr
    assert "action_space: Discrete(2)" in result.stderr
    assert repr(Layout.compile(Discrete(2), 3)) in result.stderr


def test_a_space_of_another_class_has_no_description() -> None:
    found = as_json("describe colours:Painter")
    assert found["observation_space"]["description"] is None
    assert found["observation_space"]["repr"] == "Colour()"


def test_a_vector_env_is_described_by_one_of_its_environments() -> None:
    result = run("describe gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv")
    assert "action_space: Discrete(2)" in result.output
