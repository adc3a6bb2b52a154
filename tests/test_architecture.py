"""The architecture: imports point one way, and the core stands on two libraries."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.programs import run_python

PACKAGE = Path(__file__).parents[1] / "vecspaces"

# A package may import from itself and from those above it in this list. Inside `vector`, each
# folder has a place of its own: session > backends > group > exchange.
LAYERS = (
    ("errors", "checks", "files", "log", "pickling", "typevars"),
    ("seeding",),
    ("spaces",),
    ("env", "interop"),
    ("memory",),
    ("shared_array",),
    ("layout",),
    ("vector.autoreset", "vector.vector_env", "vector.agents", "vector.utils"),
    ("vector.exchange",),
    ("vector.group",),
    ("vector.backends",),
    ("vector.session",),
    ("vector",),
    ("wrappers",),
    ("make", "sampling"),
    ("aio", "evaluation", "testing"),
    ("adapters",),
    ("cli",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
ALLOWED_ELSEWHERE = {
    "numpy": RANK,
    "cloudpickle": RANK,
    "gymnasium": {"adapters", "make", "cli"},
    "hypothesis": {"testing"},
    "pytest": {"testing"},
    "rich": {"cli"},
    "typer": {"cli"},
}

FILES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).as_posix() not in {"__init__.py", "__main__.py"}
)


def layer_of(module: str) -> str:
    """The layer of a module below vecspaces: the longest name in `LAYERS` that it begins with."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in RANK), parts[0])


def layer_of_file(path: Path) -> str:
    return layer_of(path.relative_to(PACKAGE).as_posix().removesuffix(".py").replace("/", "."))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path, *, types_too: bool = True) -> set[str]:
    """Every module that a file imports, also inside functions, as a dotted name."""
    found: set[str] = set()
    pending: list[ast.AST] = [tree_of(path)]
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


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        layer = layer_of_file(path)
        assert layer in RANK, f"{path}: {layer} is in no layer: give it a place in LAYERS"
        for module in imports_of(path):
            if not module.startswith("vecspaces."):
                continue
            target = layer_of(module.removeprefix("vecspaces."))
            if target != "__version__" and RANK[target] > RANK[layer]:
                wrong.append(f"{path}: {layer} imports {module}, which lies below it")
    assert wrong == []


def test_only_its_own_packages_import_a_library() -> None:
    wrong = []
    for path in FILES:
        for module in imports_of(path, types_too=False):
            library = module.partition(".")[0]
            if library == "vecspaces" or library in sys.stdlib_module_names:
                continue
            assert library in ALLOWED_ELSEWHERE, f"{path} imports {library}: which extra is it?"
            if layer_of_file(path).partition(".")[0] not in ALLOWED_ELSEWHERE[library]:
                wrong.append(f"{path} imports {library}")
    assert wrong == []


def test_every_file_says_what_it_is_for() -> None:
    for path in FILES:
        docstring = ast.get_docstring(tree_of(path))
        assert docstring, f"{path}: no docstring"
        first = docstring.splitlines()[0]
        assert first.endswith((".", ":")), f"{path}: its first line is no sentence"


def test_importing_vecspaces_imports_numpy_and_cloudpickle_alone() -> None:
    program = (
        "import sys; before = set(sys.modules); import vecspaces;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    run = run_python("-c", program)
    allowed = {*sys.stdlib_module_names, "vecspaces", "numpy", "cloudpickle", "cython_runtime"}
    assert {name for name in run.stdout.split() if not name.startswith("_")} - allowed == set()


def test_a_test_file_that_cannot_be_imported_is_an_error(request: pytest.FixtureRequest) -> None:
    path = Path(__file__)
    hooks = request.session.gethookproxy(path)
    collectors = hooks.pytest_collect_file(file_path=path, parent=request.node.parent.parent)
    # A collector of doctests would count it as skipped, and come first.
    assert [type(found) for found in collectors] == [pytest.Module]
