"""The example of restarts: every step is accounted for, and the crashes are the same each time."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

EXAMPLE = "restart_after_crash"


@pytest.mark.parametrize("steps", [400, pytest.param(2_000, marks=pytest.mark.full)])
def test_lost_steps_are_counted_and_a_seed_repeats_them(
    steps: int, example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        example.main(steps)
    first, again = capsys.readouterr().out.splitlines()
    learnt, lost = map(int, re.findall(r"\d+", first))
    assert learnt + lost == 8 * steps
    assert lost > 0
    assert again == first
