"""Imports by several threads at once: of packages before their modules, since Python locks both."""

from __future__ import annotations

from tests.programs import run_python
from tests.test_public_api import PUBLIC

# A thread that imports `package.module` locks the module and then the package; a thread that
# imports the package locks it and then its modules: CPython ends one of them with an error. So no
# import may name a module before its package. Prints those that do, after each module of sys.argv.
ORDER = """
import importlib, sys

class Order:
    def find_spec(self, name, path=None, target=None):
        frame, loading = sys._getframe(1), []
        while frame is not None and len(loading) < 2:
            if frame.f_code.co_name == "_find_and_load_unlocked":
                loading.append(frame.f_locals["name"])
            frame = frame.f_back
        if name.startswith("vecspaces") and loading[-1].startswith(f"{name}."):
            early.append(loading[-1])

sys.meta_path.insert(0, Order())
for entry in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "vecspaces"]:
        del sys.modules[name]
    import vecspaces
    early = []
    importlib.import_module(entry)
    for name in early:
        package = name.rpartition(".")[0]
        with open(sys.modules[package].__file__) as file:
            imports_its_modules = f"\\nfrom {package}." in file.read()
        if imports_its_modules and name != entry:
            print(f"{entry}: {name} is imported before {package}")
"""

# `collections.abc` has no file: CPython's own import of it fails in a thread while another imports
# `collections` for the first time.
THREADS = """
import collections.abc, importlib, sys, threading

sys.setswitchinterval(1e-6)
ready, wrong = threading.Barrier(len(sys.argv) - 1), []

def use(module, name):
    ready.wait()
    try:
        getattr(importlib.import_module(module), name)
    except BaseException as error:
        wrong.append(f"{module}.{name}: {error}")

threads = [threading.Thread(target=use, args=path.split(":")) for path in sys.argv[1:]]
for call in (threading.Thread.start, threading.Thread.join):
    for thread in threads:
        call(thread)
print(*wrong, sep="\\n", end="")
"""

ENTRIES = sorted({*PUBLIC, "vecspaces.layout", "vecspaces.make", "vecspaces.sampling"})


def test_no_module_is_imported_before_its_package() -> None:
    assert run_python("-c", ORDER, *ENTRIES).stdout == ""


def test_32_threads_import_names_of_all_packages_at_the_same_time() -> None:
    # Not a package in a package, nor Gymnasium, whose imports fail in threads.
    packages = [name for name in PUBLIC if name.count(".") < 2]
    paths = [f"{name}:{sorted(PUBLIC[name])[turn]}" for turn in (-1, 0, 1, 2) for name in packages]
    assert run_python("-c", THREADS, *paths[:32]).stdout == ""


def test_a_worker_that_converts_spaces_imports_no_vector_env() -> None:
    names = ("vecspaces.make", "vecspaces.vector.async_vector_env", "vecspaces.adapters.agents")
    code = (
        "import gymnasium, sys, vecspaces.vector.backends.process.worker\n"
        "from vecspaces.interop import native_space\n"
        "native_space(gymnasium.spaces.Discrete(2))\n"
        f"print(*sys.modules.keys() & {set(names)})"
    )
    assert run_python("-c", code).stdout == "\n"
