"""The README, .ci and the pages name files and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import here_or_apart, run_program, run_python

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_readme_is_short() -> None:
    assert README.count("\n") <= 110


def test_quick_start_is_two_commands_of_one_line() -> None:
    quick_start = README.partition("## Quick start")[2].partition("\n## ")[0]
    commands = blocks("bash", quick_start)
    assert len(commands) == 2
    assert all(command.count("\n") == 1 for command in commands)


def test_its_ten_lines_are_the_example() -> None:
    (lines,) = blocks("python")
    assert lines == (ROOT / "examples" / "rollout.py").read_text(encoding="utf-8")
    assert len([line for line in lines.splitlines() if line]) <= 10


@pytest.mark.usefixtures("start_method")
@here_or_apart({"rollout": True})
def test_its_ten_lines_run(
    name: str, apart: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    printed = run_program(ROOT / "examples" / f"{name}.py", apart=apart, folder=tmp_path)
    assert re.fullmatch(r"\d+ episodes, observations \(64, 4\) float32\n", printed)
    assert capfd.readouterr().err == ""


CRASH = """\
import os, signal
from functools import partial
from types import SimpleNamespace
from gymnasium import Wrapper
from vecspaces import make_vec

class Simulator(Wrapper):
    def step(self, action):
        native = SimpleNamespace(update_contacts=partial(os.kill, os.getpid(), signal.SIGSEGV))
        result = self.env.step(action)
        if result[2]:  # the pole fell
            native.update_contacts()
        return result

if __name__ == "__main__":
    with make_vec("CartPole-v1", 64, num_workers=2, wrappers=[Simulator]) as envs:
        envs.reset(seed=0)
        while True:
            envs.step(envs.action_space.sample() * 0)
"""


def test_its_error_is_what_a_crash_prints(tmp_path: Path) -> None:
    program = tmp_path / "simulator.py"
    program.write_text(CRASH, encoding="utf-8")
    printed = run_python(program, code=1, cwd=tmp_path).stderr.replace(str(program), program.name)
    (shown,) = blocks("text")
    assert " ".join(shown.split()) in " ".join(printed.split())


def test_its_links_into_the_repository_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target


PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
# sb3 runs the tests of another library.
SCRIPTS = [path for path in sorted((ROOT / ".ci").iterdir()) if path.name != "sb3"]


def test_the_tests_that_pages_and_scripts_name_exist() -> None:
    known = [f"/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "tests").rglob("*")]
    for file in (*PAGES, *SCRIPTS):
        name = r"(?:\w[\w./]*/)?\btest_\w+\.py\b"
        if file in SCRIPTS:
            name += r"|(?<![\w/{])tests/[\w/.]*\w"
        names = re.findall(name, file.read_text(encoding="utf-8"))
        missing = {name for name in names if not any(path.endswith(f"/{name}") for path in known)}
        assert missing == set(), file
