"""Without its extras the package works, and what needs one raises an ImportError that names it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.programs import run_python

ROOT = Path(__file__).parents[1]

# Only the libraries of the core can be imported. Prints what each of the statements ends with.
PROGRAM = """
import contextlib, importlib.abc, io, json, sys, traceback

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        library = name.partition(".")[0]
        core = {"numpy", "cloudpickle", "vecspaces", "tests", *sys.stdlib_module_names}
        if library not in core and not library.startswith("_"):
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)

sys.meta_path.insert(0, Missing())

from vecspaces import make_vec
from tests.envs import Ledger
from vecspaces.vector import AsyncVectorEnv

if __name__ == "__main__":
    with make_vec(Ledger, 2, backend="sync") as envs:
        envs.reset(seed=0)
        envs.step([1, 2])
    said = {}
    for statement in json.loads(sys.argv[1]):
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            try:
                exec(statement)
            except (ImportError, SystemExit) as error:
                print(error, file=sys.stderr)
            except BaseException:
                traceback.print_exc()
        said[statement] = shown.getvalue()
    print(json.dumps(said))
"""
NEEDS = {
    "import vecspaces.adapters.gymnasium": "gymnasium",
    "make_vec('CartPole-v1')": "gymnasium",
    "import vecspaces.adapters.stable_baselines3": "sb3",
    "import vecspaces.adapters.tianshou": "tianshou",
    "make_vec(Ledger, 2, backend='ray')": "ray",
    "make_vec('parallel/spread_v0', 2, agents='rows')": "pettingzoo",
    "from vecspaces.wrappers import RecordVideo; RecordVideo.to_file(make_vec("
    "Ledger, 2, backend='sync', render_mode='rgb_array'), 'a.gif')": "video",
    "from vecspaces.cli import main; main()": "cli",
}


def test_what_needs_an_extra_names_it(tmp_path: Path) -> None:
    run = run_python("-c", PROGRAM, json.dumps(list(NEEDS)), cwd=tmp_path)
    assert run.stderr == ""
    said = json.loads(run.stdout)
    assert list(said) == list(NEEDS)
    for statement, extra in NEEDS.items():
        assert f'pip install "vecspaces[{extra}]"' in said[statement], (statement, said[statement])
        assert "Traceback" not in said[statement]


def test_each_extra_is_known_to_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", section, re.MULTILINE))
    assert set(NEEDS.values()) <= extras
    # Those that no module asks for: they put others together, or are for developers.
    assert extras - set(NEEDS.values()) == {"all", "dev", "docs", "plot", "test"}
