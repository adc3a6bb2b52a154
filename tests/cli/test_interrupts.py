"""Ctrl-C at each stage of each command: one line, and the environment that hangs."""

from __future__ import annotations

import os
import re
import signal
import warnings
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli import running

pytestmark = pytest.mark.skipif(os.name == "nt", reason="SIGINT is sent in another way")

# An environment that interrupts the command at the stage that the test names, and waits then.
MODULES = {
    "staged": """
import os, signal, time

def stop_at(stage):
    if stage != os.environ["STAGE"]:
        return
    try:
        os.mkdir(os.environ["REACHED"])  # one system call, with nothing to close after it
    except FileExistsError:
        return
    if "HANGS" in os.environ:
        time.sleep(float(os.environ["HANGS"]))
    os.kill(int(os.environ["CALLER"]), signal.SIGINT)
    for _ in range(600):  # a signal may come right before a sleep
        time.sleep(0.1)

stop_at("import")

from vecspaces import Env, spaces

class Staged(Env):
    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Discrete(2)
    steps = 0

    def __init__(self):
        stop_at("build")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        stop_at("reset")
        return self.observation_space.low, {}

    def step(self, action):
        stop_at("step")
        self.steps += 1
        return self.observation_space.low, 1.0, self.steps % 5 == 0, False, {}

    def close(self):
        stop_at("close")
"""
}

COMMANDS = {
    "rollout": "--num-envs 2 --num-workers 1 --steps 20",
    "evaluate": "--policy random --episodes 2 --num-workers 1",
    "check": "--num-steps 10",
    "bench": "--num-envs 2 --seconds 0.05",
}


def run(command: str, stage: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> Result:
    reached = Path("reached").absolute()
    for name, value in {"STAGE": stage, "REACHED": reached, "CALLER": os.getpid()}.items():
        monkeypatch.setenv(name, str(value))
    result = running.run(f"{command} staged:Staged {COMMANDS[command]}", *more)
    assert reached.exists(), f"no environment reached {stage!r}"
    return result


@pytest.mark.parametrize(
    ("command", "stage"),
    [
        ("rollout", "import"),
        ("rollout", "build"),
        ("rollout", "step"),
        ("rollout", "close"),
        ("evaluate", "build"),
        ("evaluate", "step"),
        ("check", "step"),
        ("bench", "reset"),
        ("bench", "close"),
    ],
)
def test_ctrl_c_is_reported_once(command: str, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # `check` forks, and pytest-xdist has threads; a terminal's command has none.
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)
        result = run(command, stage, monkeypatch)
    assert result.exit_code == 130, result.output
    assert result.output.count("interrupted") == 1
    announced = ("Measuring",)
    errors = [line for line in result.stderr.splitlines() if not line.startswith(announced)]
    assert errors[0].startswith("vecspaces: interrupted")
    assert result.stdout == ""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("command", "stage", "more"),
    [
        ("rollout", "step", ()),
        ("rollout", "reset", ("--backend", "sync")),
        ("evaluate", "reset", ("--journal", "runs.jsonl")),
        ("rollout", "import", ()),
    ],
)
def test_ctrl_c_after_a_long_wait_names_the_environment_and_its_line(
    command: str, stage: str, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGS", "0.3")
    monkeypatch.setattr("vecspaces.cli.errors.LONG_SECONDS", 0.2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)
        result = run(command, stage, monkeypatch, *more)
    assert result.exit_code == 130, result.output
    lines = result.output.splitlines()
    (number,) = [k for k, line in enumerate(lines) if "interrupted" in line]
    text = "\n".join(lines[number:])
    assert re.search(r'File "[^"]*staged\.py", line \d+, in stop_at$', text, re.M)
    if not {"sync", "import"} & {*more, stage}:
        assert re.search(rf"^{stage} was waiting [0-9]+\.[0-9] s for environment", text, re.M)
        assert re.search(r"^environment 0 \((last seed|no seed).*\):", text, re.M)
    assert ("goes on from runs.jsonl" in text) == ("--journal" in more)
