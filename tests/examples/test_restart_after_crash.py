"""The example of restarts: every step is accounted for, and the crashes are the same each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run() -> str:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, ROOT / "examples" / "restart_after_crash.py"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    ).stdout


def test_lost_steps_are_counted_and_a_seed_repeats_them() -> None:
    first = run()
    learnt, lost = map(int, re.findall(r"\d+", first))
    assert learnt + lost == 8 * 2_000
    assert lost > 0
    assert run() == first
