"""What the logger `vecspaces` says, and that the documentation lists every message."""

from __future__ import annotations

import ast
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecspaces
from tests.envs import Echo
from tests.interrupts import Counting
from vecspaces import make_vec, spaces
from vecspaces.errors import StepTimeoutError
from vecspaces.vector import AsyncVectorEnv

PACKAGE = Path(vecspaces.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "reliability.md").read_text(encoding="utf-8")


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    records = [any_record for any_record in caplog.records if any_record.name == "vecspaces"]
    return [(record.levelname, record.getMessage()) for record in records]


def messages() -> list[tuple[str, str]]:
    """The level and the text of each message in the package; `...` stands for a value."""
    texts = []
    for file in sorted(PACKAGE.rglob("*.py")):
        code = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(code)) if "log." in code else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("log", "_log")
                and node.func.attr in ("info", "warning", "error")
                and isinstance(node.args[0], ast.Constant)
            ):
                text = re.sub(r"%[ds]", "...", str(node.args[0].value))
                texts.append((node.func.attr.upper(), text))
    return texts


def test_the_table_lists_every_message() -> None:
    texts = [(level, text) for level, text in messages() if text != "..."]
    assert len(texts) >= 3
    for level, text in texts:
        assert f"| {level} | `{text}` |" in PAGE


def test_the_bound_of_all_steps_is_logged_and_that_of_one_wait_is_not(
    caplog: pytest.LogCaptureFixture, hurry: Any
) -> None:
    options: Any = {"num_workers": 1, "env_kwargs": {"number": 0}, "step_timeout": 30.0}
    with make_vec(Counting, 1, **options) as envs:
        envs.reset(seed=0)
        envs.set_attr("seconds", 60.0)
        envs.step_async([0])
        with pytest.raises(StepTimeoutError):
            envs.step_wait(timeout=0.01)
        assert logged(caplog) == []
        hurry(lambda: True, 0)
        with pytest.raises(StepTimeoutError):
            envs.step_wait()
        text = "step did not end within 30 s: environment 0 still busy"
        assert logged(caplog) == [("WARNING", text)]
        envs.close(terminate=True)


def play(lengths: tuple[int, int], capacity: int) -> None:
    """Take steps with observations and actions of two lengths."""
    space = spaces.Sequence(spaces.Discrete(9), stack=True)
    first, observed, acted = (np.zeros(length, np.int64) for length in (1, *lengths))
    steps = [(observed, 0.0, False, False, {})]
    env_fns = [partial(Echo, space, [(first, {})], steps, space)] * 2
    with AsyncVectorEnv(env_fns, num_workers=1, variable_capacity=capacity) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            envs.step((acted,) * 2)


@pytest.mark.parametrize("lengths", [(200, 1), (1, 200)])
def test_values_beyond_the_capacity_are_logged_once_with_the_capacity_that_fits(
    lengths: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    play(lengths, 400)
    ((level, text),) = logged(caplog)
    assert level == "WARNING" and text.startswith("environment 0: a value of ")
    assert "variable_capacity=400" in text
    caplog.clear()
    play(lengths, int(text.split("variable_capacity=")[-1].split()[0]))
    assert logged(caplog) == []
