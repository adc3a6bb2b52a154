"""The diff of docs/cleanrl.md is complete, fits CleanRL's file, and its lines run."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

from vecspaces.adapters.gymnasium import AsyncVectorEnv

PAGE = (Path(__file__).parents[2] / "docs" / "cleanrl.md").read_text("utf-8")
DIFF = PAGE.partition("```diff\n")[2].partition("```")[0]
# A clone of CleanRL, whose file is not copied into this repository.
CLONE = Path(os.environ.get("CLEANRL", "cleanrl"))


def hunks() -> list[tuple[int, int, list[str], list[str]]]:
    """Return line numbers and lines of each hunk, before and after; check its counts."""
    header, *parts = re.split(r"^@@ -(\d+),(\d+) \+(\d+),(\d+) @@\n", DIFF, flags=re.MULTILINE)
    assert header == "--- ppo.py\n+++ ppo.py\n"
    result = []
    for old, old_count, new, new_count, text in zip(*(parts[k::5] for k in range(5)), strict=True):
        lines = text.splitlines()
        before, after = ([line[1:] for line in lines if line[:1] != sign] for sign in "+-")
        assert (len(before), len(after)) == (int(old_count), int(new_count))
        changed = [k for k, line in enumerate(lines) if line[0] in "+-"]
        assert (changed[0], len(lines) - changed[-1]) == (3, 4)  # three lines of context
        result.append((int(old) - 1, int(new) - 1, before, after))
    return result


def apply(lines: list[str]) -> list[str]:
    """Return the file with the changes of all hunks."""
    changed = list(lines)
    for old, new, before, after in hunks():
        assert lines[old : old + len(before)] == before
        changed[new : new + len(before)] = after
    return changed


def test_the_hunks_apply() -> None:
    lines = [""] * 400
    for old, _, before, _ in hunks():
        lines[old : old + len(before)] = before
    changed = apply(lines)
    for _, new, _, after in hunks():
        assert changed[new : new + len(after)] == after


@pytest.mark.skipif(not CLONE.exists(), reason="there is no clone of CleanRL")
def test_the_diff_applies_to_the_file_of_a_clone() -> None:
    lines = (CLONE / "cleanrl" / "ppo.py").read_text("utf-8").splitlines()
    changed = "\n".join(apply(lines))
    compile(changed, "ppo.py", "exec")
    assert "gym.vector.SyncVectorEnv(" not in changed


class Writer:
    """Keeps the scalars that the script logs."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, float(value), step))


def play(vector_env: Any) -> list[tuple[str, float, int]]:
    """Run the constructor and the logging of the diff; return what is logged in 60 steps."""
    _, constructor, logging = ["\n".join(after) + "\n" for *_, after in hunks()]
    make = re.search(r"^    envs = .*?^    \)\n", constructor, re.MULTILINE | re.DOTALL)
    log = logging[
        logging.index('            if "final_info"') : logging.index("        # bootstrap")
    ]
    assert make is not None

    def make_env(env_id: str, *_: Any) -> Any:
        return lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(env_id))

    names: dict[str, Any] = {
        "AsyncVectorEnv": vector_env,
        "args": SimpleNamespace(env_id="CartPole-v1", capture_video=False, num_envs=3),
        "gym": gymnasium,
        "make_env": make_env,
        "run_name": "",
        "writer": Writer(),
    }
    exec(textwrap.dedent(make[0]), names)
    envs = names["envs"]
    try:
        envs.reset(seed=1)
        for names["global_step"] in range(60):
            *_, names["infos"] = envs.step([0, 1, names["global_step"] % 2])
            exec(textwrap.dedent(log), names)
    finally:
        envs.close()
    scalars: list[tuple[str, float, int]] = names["writer"].scalars
    return scalars


def test_its_lines_log_what_gymnasiums_vector_env_gives() -> None:
    scalars = play(AsyncVectorEnv)
    assert len(scalars) > 10
    assert scalars == play(gymnasium.vector.SyncVectorEnv)
