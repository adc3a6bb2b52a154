"""The programs of docs/cookbook.md run, each in a folder of its own."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.programs import here_or_apart, run_program

PAGE = (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^```python\n(# needs: ([^\n]*)\n.*?)^```", re.MULTILINE | re.DOTALL)
# The words that each program prints, by its title.
PRINTS = {
    "MuJoCo": "(16, 17) float64",
    "Atari with preprocessing": "(8, 4, 84, 84) uint8",
    "VecNormalize": "(",
}
LIGHT = {"numpy", "gymnasium"}
SECTIONS = {
    section.partition("\n")[0]: PROGRAM.search(section)
    for section in PAGE.split("\n## ")[1:]
    if "```" in section
}


def test_each_recipe_has_a_program() -> None:
    assert SECTIONS.keys() == PRINTS.keys()
    assert all(SECTIONS.values()) and PAGE.count("```python") == len(PRINTS)


def needs(title: str) -> list[str]:
    program = SECTIONS[title]
    assert program is not None
    return program[2].split(", ")


@here_or_apart({title: {*needs(title)} <= LIGHT for title in PRINTS})
def test_it_runs(name: str, apart: bool, tmp_path: Path) -> None:
    for module in needs(name):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    program = tmp_path / "program.py"
    program.write_text(SECTIONS[name][1], encoding="utf-8")  # type: ignore[index]  # it is there
    assert PRINTS[name] in run_program(program, apart=apart, folder=tmp_path)
