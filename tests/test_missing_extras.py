"""Without its extras the package works, and what needs one raises an ImportError that names it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Only the libraries of the core can be imported.
PROGRAM = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        library = name.partition(".")[0]
        core = {"numpy", "cloudpickle", "vecspaces", "tests", *sys.stdlib_module_names}
        if library not in core and not library.startswith("_"):
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)

sys.meta_path.insert(0, Missing())

from vecspaces import make_vec
from vecspaces.testing.envs import Ledger
from vecspaces.vector import AsyncVectorEnv

if __name__ == "__main__":
    with make_vec(Ledger, 2, backend="sync") as envs:
        envs.reset(seed=0)
        envs.step([1, 2])
    try:
        exec(sys.argv[1])
    except ImportError as error:
        print(error)
    except SystemExit as error:
        print(error)
"""
NEEDS = {
    "import vecspaces.adapters.gymnasium": "gymnasium",
    "make_vec('CartPole-v1')": "gymnasium",
    "import vecspaces.adapters.stable_baselines3": "sb3",
    "import vecspaces.adapters.tianshou": "tianshou",
    "make_vec(Ledger, 2, backend='ray')": "ray",
    "import vecspaces.testing.strategies": "testing",
    "import vecspaces.testing.contract": "testing",
    "from vecspaces.wrappers import RecordVideo; RecordVideo(make_vec("
    "Ledger, 2, backend='sync', render_mode='rgb_array'), 'a.gif')": "video",
    "from vecspaces.cli import main; main()": "cli",
}


@pytest.mark.parametrize("statement", NEEDS)
def test_what_needs_an_extra_names_it(statement: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, statement],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    printed = run.stdout + run.stderr
    assert f'pip install "vecspaces[{NEEDS[statement]}]"' in printed, printed
    assert "Traceback" not in printed


def test_each_extra_is_known_to_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", section, re.MULTILINE))
    assert set(NEEDS.values()) <= extras
    # Those that no module asks for: they put others together, or are for developers.
    assert extras - set(NEEDS.values()) == {"all", "dev", "docs", "plot", "test"}
