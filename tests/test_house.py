"""The house: imports point up the list of rooms only, and the core stands on two libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "vecspaces"

# A room may import from itself and from the rooms above it. An exception is a pair of its own.
ROOMS = (
    ("errors",),
    ("seeding",),
    ("spaces",),
    ("env", "foreign"),
    ("memory",),
    ("layout",),
    ("vector",),
    ("wrappers",),
    ("make",),
    ("adapters",),
    ("bench",),
    ("cli",),
)
RANK = {name: rank for rank, room in enumerate(ROOMS) for name in room}
ALLOWED_ELSEWHERE = {
    "numpy": RANK,
    "cloudpickle": RANK,
    "gymnasium": {"adapters", "make", "bench"},
    "rich": {"cli"},
    "typer": {"cli"},
}

FILES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).as_posix() not in {"__init__.py", "__main__.py"}
)


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports_of(path: Path, *, types_too: bool = True) -> set[str]:
    """Every module that a file imports, also inside functions, as a dotted name."""
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not types_too:
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: an import that is relative"
            module = node.module or ""
            found.add(module)
            if module == "vecspaces":
                found.update(f"vecspaces.{alias.name}" for alias in node.names)
                found.discard("vecspaces")
        pending.extend(ast.iter_child_nodes(node))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_up_the_list(path: Path) -> None:
    room = room_of(path)
    assert room in RANK, f"{room} is in no room: give it a place in ROOMS"
    for module in imports_of(path):
        if not module.startswith("vecspaces."):
            continue
        target = module.split(".")[1]
        if target == "__version__":
            continue
        assert RANK[target] <= RANK[room], f"{room} imports {module}, which lies below it"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_only_its_own_rooms_import_a_library(path: Path) -> None:
    for module in imports_of(path, types_too=False):
        library = module.partition(".")[0]
        if library == "vecspaces" or library in sys.stdlib_module_names:
            continue
        assert library in ALLOWED_ELSEWHERE, f"{path.name} imports {library}: which extra is it?"
        assert room_of(path) in ALLOWED_ELSEWHERE[library], f"{path.name} imports {library}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_file_says_its_job_and_stays_short(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source))
    assert docstring, "no docstring"
    assert docstring.splitlines()[0].endswith((".", ":")), "its first line is no sentence"
    length = len(source.splitlines())
    assert length <= 500, "look for the second job in it"


def test_importing_vecspaces_imports_numpy_and_cloudpickle_alone() -> None:
    program = (
        "import sys; before = set(sys.modules); import vecspaces;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    allowed = {*sys.stdlib_module_names, "vecspaces", "numpy", "cloudpickle", "cython_runtime"}
    assert {name for name in run.stdout.split() if not name.startswith("_")} - allowed == set()


def test_a_test_file_that_cannot_be_imported_is_an_error(request: pytest.FixtureRequest) -> None:
    path = Path(__file__)
    hooks = request.session.gethookproxy(path)
    collectors = hooks.pytest_collect_file(file_path=path, parent=request.node.parent.parent)
    # A collector of doctests would count it as skipped, and come first.
    assert [type(found) for found in collectors] == [pytest.Module]
