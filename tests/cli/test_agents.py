"""The commands on parallel environments of PettingZoo (`--agents`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import as_json, run
from tests.envs.agents import Crowd
from vecspaces import evaluate

CROWD, TAG = "tests.envs.agents:Crowd", "tests.envs:Tag"


@pytest.fixture
def registered() -> str:
    """Return an id of PettingZoo's registry."""
    pettingzoo: Any = pytest.importorskip("pettingzoo", "1.27")
    pettingzoo.register("parallel", "tests/Tag-v0", entry_point=TAG)
    return "tests/Tag-v0"


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_check(in_process: None) -> None:
    report = as_json(f"check {CROWD} --agents dict --num-steps 30")
    assert not [entry for entry in report["findings"] if entry["severity"] == "error"]
    assert run(f"check {TAG} --num-steps 5").exit_code == 1
    assert "columns" in run(f"check {TAG} --agents columns").output


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_rollout(registered: str) -> None:
    arguments = "--backend sync --seed 1 --steps 200"
    rows = as_json(f"rollout {CROWD} --agents rows --num-envs 2 {arguments}")
    assert rows["num_envs"] == 6 and rows["episodes"] > 20
    # Crowd's agents earn their number and a quarter of the time; an agent acts at least once.
    assert 1 <= rows["min_length"] <= rows["max_length"] <= 6
    # Steps of agents that are gone do not count.
    assert rows["steps"] >= rows["episodes"] * rows["mean_length"]
    dicts = as_json(f"rollout {registered} --agents dict --num-envs 2 {arguments}")
    assert dicts["num_envs"] == 2 and 0 < dicts["episodes"] < rows["episodes"] * 3
    refused = run(f"rollout {CROWD} --num-envs 2 --steps 10 --backend sync")
    assert refused.exit_code == 1 and "agents='rows'" in refused.stderr


def stay(observations: Any) -> Any:
    return {agent: np.ones(len(rows), int) for agent, rows in observations.items()}


def test_evaluate() -> None:
    policy = "tests.cli.test_agents:stay"
    command = f"evaluate {CROWD} --policy {policy} --agents dict --episodes 6 --seed 3"
    document = as_json(f"{command} --backend sync --num-envs 2 --journal played.jsonl")
    result = evaluate(stay, Crowd, agents="dict", episodes=6, seed=3, num_envs=3, backend="sync")
    assert [episode["return"] for episode in document["episodes"]] == result.returns.tolist()
    # The journal knows that agents are Dicts, and goes on from there.
    again = as_json(f"{command} --num-workers 1 --journal played.jsonl")
    assert again["episodes"] == document["episodes"]
    lines = Path("played.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["arguments"]["agents"] == "dict" and len(lines) == 7
    assert run(f"evaluate {CROWD} --policy {policy} --agents rows").exit_code == 2
