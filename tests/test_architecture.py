"""The architecture: imports point one way, and the core stands on two libraries."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import run_python

PACKAGE = Path(__file__).parents[1] / "vecspaces"

# A package may import from itself and from those above it in this list. Inside `vector`, each
# folder has a place of its own: engine > backends > group > exchange.
LAYERS = (
    ("errors", "checks", "cores", "files", "lazy", "log", "pickling", "system", "typevars"),
    ("seeding",),
    ("spaces",),
    ("env", "interop"),
    ("memory",),
    ("layout",),
    ("vector.autoreset", "vector.vector_env", "vector.utils"),
    ("vector.exchange",),
    ("vector.group",),
    ("vector.backends",),
    ("vector.engine",),
    ("vector",),
    ("wrappers",),
    ("make", "sampling"),
    ("aio", "envs", "evaluation", "testing"),
    ("adapters",),
    ("cli",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
ALLOWED_ELSEWHERE = {
    "numpy": RANK,
    "cloudpickle": RANK,
    "gymnasium": {"adapters", "make", "cli"},
    "rich": {"cli"},
    "typer": {"cli"},
}
#: What `evaluate`, `collect` and `aio.Pool` may import of vector envs.
PUBLIC = {"vecspaces.vector", "vecspaces.vector.options", "vecspaces.vector.utils"}

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


def imports_of(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield every module that is imported, also inside functions, and whether only for types."""
    nodes = list(ast.walk(tree))
    guards = [node for node in nodes if isinstance(node, ast.If)]
    for_types = {
        inner
        for guard in guards
        if isinstance(guard.test, ast.Name) and guard.test.id == "TYPE_CHECKING"
        for node in guard.body
        for inner in ast.walk(node)
    }
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"line {node.lineno}: a relative import"
            for alias in node.names:
                whole = node.module == "vecspaces"
                yield f"vecspaces.{alias.name}" if whole else node.module, node in for_types


def faults_of(path: Path) -> Iterator[str]:
    """Yield what is wrong with the first line of a file, and with its imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    layer = layer_of(path.relative_to(PACKAGE).as_posix().removesuffix(".py").replace("/", "."))
    first = (ast.get_docstring(tree) or "").partition("\n")[0]
    if not first.endswith((".", ":")):
        yield f"{path}: its first line is no sentence that says what it is for"
    if layer not in RANK:
        yield f"{path}: {layer} is in no layer: give it a place in LAYERS"
        return
    place = layer.partition(".")[0]
    allowed = sys.stdlib_module_names | {
        library for library, places in ALLOWED_ELSEWHERE.items() if place in places
    }
    for module, for_types in imports_of(tree):
        library, _, inner = module.partition(".")
        if library == "vecspaces":
            target = layer_of(inner)
            if target != "__version__" and RANK[target] > RANK[layer]:
                yield f"{path}: {layer} imports {module}, which lies below it"
        elif not for_types and library not in allowed:
            yield f"{path} imports {library}: which extra is it?"


def test_files_say_what_they_are_for_and_imports_point_one_way() -> None:
    wrong = [fault for path in FILES for fault in faults_of(path)]
    assert wrong == []


def private_uses_of(path: Path) -> Iterator[str]:
    """Yield the imports and attributes of a file that a user of vector envs would not use."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for module, _ in imports_of(tree):
        if module.startswith("vecspaces.vector") and module not in PUBLIC:
            yield f"{path} imports {module}"
    nodes = list(ast.walk(tree))
    methods = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    for node in nodes:
        if not isinstance(node, ast.Attribute) or not re.match(r"_[^_]", node.attr):
            continue
        of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if not of_self and node.attr not in methods | {"_asdict", "_fields"}:  # of NamedTuples
            yield f"{path}, line {node.lineno}: {ast.unparse(node)}"


#: Modules whose content differs between systems, and those that some systems do not have.
DIFFERENT = {"multiprocessing", "os", "select", "signal", "socket", "sys", "mmap", "time"}
ELSEWHERE = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "tty", "winreg"}


def questions_of(path: Path) -> Iterator[str]:
    """Yield where a file asks for the system, or for what one of its modules has."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for module, _ in imports_of(tree):
        if module.partition(".")[0] in ELSEWHERE:
            yield f"{path} imports {module}"
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            text = ast.unparse(node) if node.func.id in ("getattr", "hasattr") else ""
        elif isinstance(node, ast.Attribute) and node.attr in ("platform", "name", "system"):
            text = ast.unparse(node)
        asks = re.match(rf"(hasattr|getattr)\(({'|'.join(DIFFERENT)}), ", text)
        if asks or text in ("sys.platform", "os.name", "platform.system"):
            yield f"{path}, line {node.lineno}: {text}"


def test_one_module_asks_what_the_system_has() -> None:
    asking = {path for path in FILES for _ in questions_of(path)}
    assert asking == {PACKAGE / "system.py"}, [*map(list, map(questions_of, asking))]


@pytest.mark.parametrize("folder", ["aio", "evaluation"])
def test_episodes_and_conversations_need_only_the_public_interface(folder: str) -> None:
    paths = sorted((PACKAGE / folder).rglob("*.py"))
    assert paths
    assert [use for path in paths for use in private_uses_of(path)] == []


def imported_by(statement: str) -> set[str]:
    """The modules that a statement imports in a new interpreter that has NumPy."""
    program = (
        f"import numpy, sys; before = set(sys.modules); {statement}; "
        "print(*sorted(set(sys.modules) - before))"
    )
    return set(run_python("-c", program).stdout.split())


def test_importing_vecspaces_imports_numpy_and_cloudpickle_alone() -> None:
    libraries = {name.partition(".")[0] for name in imported_by("from vecspaces import *")}
    allowed = {*sys.stdlib_module_names, "vecspaces", "numpy", "cloudpickle", "cython_runtime"}
    assert {name for name in libraries if not name.startswith("_")} - allowed == set()


def test_importing_vecspaces_imports_only_what_is_used() -> None:
    ours = {name for name in imported_by("import vecspaces") if name.startswith("vecspaces")}
    assert ours == {"vecspaces", "vecspaces.lazy"}
    imported = imported_by("from vecspaces.vector import SyncVectorEnv")
    of_processes = {"multiprocessing.connection", "queue", "subprocess", "tempfile"}
    others = re.compile(
        r"vecspaces\.(evaluation|make|wrappers|vector\.backends\.(process|ray|threads))"
    )
    assert not {name for name in imported if name in of_processes or others.match(name)}


def test_a_test_file_that_cannot_be_imported_is_an_error(request: pytest.FixtureRequest) -> None:
    path = Path(__file__)
    hooks = request.session.gethookproxy(path)
    collectors = hooks.pytest_collect_file(file_path=path, parent=request.node.parent.parent)
    # A collector of doctests would count it as skipped, and come first.
    assert [type(collector) for collector in collectors] == [pytest.Module]
