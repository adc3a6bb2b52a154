"""What every test gets: a check that it leaves nothing behind, and Hypothesis's profiles."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

pytest.register_assert_rewrite("tests.contract", "tests.compare")

from vecspaces import system  # noqa: E402

# .ci/systems runs tests with what macOS and Windows have, also with their start methods.
if "VECSPACES_SYSTEM" in os.environ:
    METHODS = ["spawn", "fork", "forkserver"] if system.FORK else ["spawn"]
    multiprocessing.get_all_start_methods = lambda: METHODS  # type: ignore[assignment]
    multiprocessing.set_start_method("spawn")
    system.START_METHOD = None  # tests choose others

from tests.leaks import made_here, possessions, tag_names  # noqa: E402
from tests.testing.checking import in_process  # noqa: E402, F401  # a fixture
from tests.vector.bounds import hurry  # noqa: E402, F401  # a fixture
from vecspaces.cores import count_usable_cores  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

# How long an example takes depends on what else the machine does, and fails no test.
patient = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
# The ordinary run draws the same few examples each time, so that it is short, and fails for what a
# change did and for nothing else. .ci/full looks for new ones, as does a run with a profile.
hypothesis.settings.register_profile("default", patient, derandomize=True, max_examples=5)
hypothesis.settings.register_profile("random", patient, print_blob=True)

# What `-m quick` runs: tests of code that needs no processes, one division of the contract, and all
# doctests.
QUICK = (
    "tests/layout/",
    "tests/spaces/",
    "tests/vector/exchange/",
    "tests/vector/group/test_building.py",
    "tests/vector/group/test_form.py",
    "tests/vector/group/test_shared_instances.py",
    "tests/vector/group/test_validation.py",
    "tests/vector/group/test_vector_member.py",
    "tests/vector/engine/test_arguments.py",
    "tests/vector/engine/test_batch_spaces.py",
    "tests/vector/engine/test_ring.py",
    "tests/vector/engine/test_states.py",
    "tests/vector/utils/test_items.py",
    "tests/vector/utils/test_processes.py",
    "tests/vector/test_contract.py::TestSync",
    "tests/vector/test_contract.py::TestTwoWorkers",
    "tests/vector/test_vector_env.py",
    "tests/test_architecture.py",
    "tests/test_env.py",
    "tests/test_messages.py",
    "tests/test_public_api.py",
    "vecspaces/",
)

tag_names()

# The programs and workers that tests start, some hundred interpreters, share compiled modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A thread of NumPy's OpenBLAS asks for work for 2**26 ticks before it sleeps, a sixth of the time
# that such an interpreter takes.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# So do the threads of PyTorch, which wait for each other where tests share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# .ci/full runs all tests with the default of Python 3.14, forkserver, on an older Python too.
if "TESTS_START_METHOD" in os.environ:
    multiprocessing.set_start_method(os.environ["TESTS_START_METHOD"])

# Fork servers import this once, instead of each worker.
multiprocessing.set_forkserver_preload(["tests.envs", "tests.envs.faulty"])

# A job in the background of a shell ignores Ctrl-C from its start, and so would the programs that
# the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Choose how many examples Hypothesis draws."""
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_sessionstart() -> None:
    """Ignore interrupts that Python itself drops.

    The tests interrupt calls at random moments. In the callback of a weak reference or a `__del__`,
    which the garbage collector may run anywhere, Python reports the KeyboardInterrupt and goes on,
    and pytest would make the report an error. All other reports stay errors.
    """
    report = sys.unraisablehook

    def report_all_but_interrupts(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            report(unraisable)

    sys.unraisablehook = report_all_but_interrupts


def pytest_collection_finish() -> None:
    """Leave what was collected out of garbage collection: forked processes would copy all of it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Leave what a file of tests has imported out too: a collection in a test takes a tenth."""
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what `-m quick` would deselect."""
    if config.option.markexpr != "quick":
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    path += "/" if collection_path.is_dir() else ""
    return None if any(name.startswith(path) or path.startswith(name) for name in QUICK) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is quick."""
    for item in items:
        if item.nodeid.startswith(QUICK) and item.get_closest_marker("full") is None:
            item.add_marker(pytest.mark.quick)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Say what `-n auto` means: tests also wait, but each of these processes collects all."""
    return min(count_usable_cores() + 1, 4)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test that asks for a start method which VECSPACES_SYSTEM hides."""
    try:
        return (yield)
    except BaseException as error:
        cause: BaseException | None = error  # or what `pytest.warns` and others were ended by
        while cause is not None and not system.FORK:
            if str(cause).endswith(("found 'fork'", "found 'forkserver'")):
                pytest.skip(str(cause))
            cause = cause.__context__
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in a failure, which otherwise ends the run: xdist cannot send them."""
    report = yield
    if report.failed:
        escaped = str(report.longrepr).encode(errors="backslashreplace").decode()
        if escaped != str(report.longrepr):
            report.longrepr = escaped
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests in the package alone.

    Where they are looked for, a module that cannot be imported counts as skipped: that is meant for
    extras that are missing, and would hide a test file with a wrong import.
    """
    collectors = yield
    return [collector for collector in collectors if type(collector).__name__ != "DoctestModule"]


# Before 3.14 the default on Linux is fork.
_DEFAULT = multiprocessing.get_start_method(True) or multiprocessing.get_all_start_methods()[0]


@pytest.fixture(
    params=[
        pytest.param("fork", marks=[pytest.mark.full] if _DEFAULT != "fork" else []),
        pytest.param("forkserver", marks=[pytest.mark.full] if _DEFAULT == "fork" else []),
    ]
)
def start_method(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test with the default start method of older Pythons on Linux, and of 3.14 and newer."""
    method: str = request.param
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"the platform has no {method}")
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(method, force=True)
    yield method
    multiprocessing.set_start_method(before, force=True)


@pytest.fixture
def registrations() -> Iterator[dict[str, Any]]:
    """Gymnasium's registry, put back as it was."""
    from gymnasium.envs.registration import registry

    before = dict(registry)
    yield registry
    registry.clear()
    registry.update(before)


_PATIENCE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test after which a process, thread, file descriptor or shared memory is left."""
    before = possessions()
    yield
    left = possessions() - before
    if not left:
        return
    gc.collect()  # what hung in a reference cycle is no leak
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while (left := made_here(possessions() - before)) and time.monotonic() < give_up:
        # On a busy machine a process that was killed may end after `close`, which is bounded.
        # Then multiprocessing frees what is left of it when it starts the next one, or here.
        multiprocessing.active_children()
        time.sleep(0.02)
    assert not left, f"the test left behind: {', '.join(sorted(left))}"
