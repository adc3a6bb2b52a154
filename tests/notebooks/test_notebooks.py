"""Vector envs in Jupyter: environments of a cell, Stop button, progress bar, a tutorial.

`.ci/notebooks` installs what this needs; each test runs a kernel of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytest.importorskip("tqdm", reason="tqdm is not installed")
import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.leaks import children, read_stat
from tests.vector.bounds import assert_gone, settled

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorials" / "notebook.ipynb"
METHODS = ("fork", "spawn", "forkserver")
pytestmark = [
    pytest.mark.timeout(300),
    # Jupyter's client leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

DEFINITION = """
import time
from pathlib import Path
import numpy as np
from tqdm import tqdm
from vecspaces import Env, make_vec, spaces

class Walk(Env):
    observation_space = spaces.Box(0, 9, (2,))
    action_space = spaces.Discrete(3)

    def __init__(self, gate=None):
        self.gate = gate

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.random(2, np.float32)
        return self.place.copy(), {}

    def step(self, action):
        self.place += action
        if action == 2:
            print("two", flush=True)
            while self.gate and not Path(self.gate, "open").exists():
                Path(self.gate, "waiting").touch()
                time.sleep(0.01)
        return self.place.copy(), float(action), bool(self.place[0] > 8), False, {}
"""


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves a process; sockets of Jupyter's client are closed when collected."""
    before = set(children(os.getpid()))
    yield
    give_up = time.monotonic() + 10
    while left := set(children(os.getpid())) - before:
        assert time.monotonic() < give_up, f"the test left behind: {left}"
        time.sleep(0.05)


def run(cells: list[str], manager: KernelManager | None = None) -> list[Any]:
    """Run a notebook of these cells in a new kernel of this interpreter; return the cells."""
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook = nbformat.v4.new_notebook(cells=code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_CURRENT_TEST")  # in tests, kernels do not show what workers print
    client = NotebookClient(notebook, km=manager, timeout=120, allow_errors=True)
    try:
        client.execute(env=environment)
    finally:
        if manager is not None:  # nbclient ends only kernels that it started
            client.kc.stop_channels()
            manager.shutdown_kernel(now=True)
    return list(notebook.cells)


def printed(cell: Any, stream: str = "stdout") -> str:
    """What a cell has printed."""
    return "".join(output["text"] for output in cell.outputs if output.get("name") == stream)


def raised(cell: Any) -> list[str]:
    """The classes of the errors that a cell shows."""
    return [output["ename"] for output in cell.outputs if output["output_type"] == "error"]


def result(cell: Any) -> dict[str, str]:
    """What the last line of a cell is shown as, by its kind."""
    (data,) = [out["data"] for out in cell.outputs if out["output_type"] == "execute_result"]
    return dict(data)


@pytest.mark.parametrize("method", METHODS)
def test_environments_of_a_cell_with_a_progress_bar_and_output_of_workers(method: str) -> None:
    stepping = """
actions = np.random.default_rng(0).integers(3, size=(30, 4))
def play(envs):
    seen = [envs.reset(seed=5)[0]]
    for row in tqdm(actions):
        observations, rewards, *_ = envs.step(row)
        seen.append(np.column_stack([observations, rewards]))
    return np.vstack([image.ravel() for image in seen[1:]])
"""
    *_, expected, cell, closing = run(
        [
            DEFINITION,
            stepping,
            "with make_vec(Walk, 4, backend='sync') as envs:\n    expected = play(envs)",
            f"envs = make_vec(Walk, 4, num_workers=2, context={method!r})\n"
            "np.testing.assert_array_equal(play(envs), expected)\n"
            "envs",
            "envs.close()",
        ]
    )

    assert raised(cell) == raised(closing) == []
    bar = printed(cell, "stderr")
    assert "100%" in bar and "30/30" in bar
    twos = printed(expected).count("two")
    assert twos > 20 and printed(cell).count("two") == twos
    shown = result(cell)
    assert shown["text/plain"].startswith("AsyncVectorEnv(num_envs=4, num_workers=2")


def when(condition: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    """Do something in a thread once a condition holds."""

    def wait() -> None:
        give_up = time.monotonic() + 100
        while not condition():
            if time.monotonic() > give_up:
                return
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("method", METHODS)
def test_after_the_stop_button_the_vector_env_goes_on_until_its_kernel_is_killed(
    method: str, tmp_path: Path
) -> None:
    """Stop during a step: the step is still pending, its result can be had, and no worker died."""
    manager = KernelManager()
    waiting, gate = tmp_path / "waiting", tmp_path / "open"

    def stop() -> None:
        # On a busy machine the kernel may not have got from its send to its wait.
        assert settled(lambda: read_stat(manager.provisioner.pid)[1], "S") == "S"
        manager.interrupt_kernel()
        waiting.unlink()

    thread = when(waiting.exists, stop)
    cells = run(
        [
            DEFINITION,
            f"envs = make_vec(Walk, 3, num_workers=2, context={method!r}, env_kwargs={{'gate': "
            f"{str(tmp_path)!r}}})\n"
            "first, _ = envs.reset(seed=5)\n"
            "pids = [process.pid for process in envs.processes]",
            "envs.step([1, 2, 1])",
            f"Path({str(gate)!r}).touch()",
            "observations, rewards, *_ = envs.step_wait()\n"
            "np.testing.assert_allclose(observations, first + [[1], [2], [1]])\n"
            "observations, *_ = envs.step([1, 1, 1])\n"
            "np.testing.assert_allclose(observations, first + [[2], [3], [2]])\n"
            "assert [process.pid for process in envs.processes] == pids\n"
            "envs.reset(seed=5)\n"
            "print(*pids)",
        ],
        manager,
    )
    thread.join()
    assert [raised(cell) for cell in cells] == [[], [], ["KeyboardInterrupt"], [], []]
    pids = list(map(int, printed(cells[4]).split()))
    assert len(pids) == 2
    assert_gone(pids)  # although nothing has closed the vector env


def test_the_tutorial_runs_from_top_to_bottom() -> None:
    notebook = nbformat.read(TUTORIAL, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    cells = run([cell.source for cell in code])
    assert [raised(cell) for cell in cells] == [[]] * len(code)
    assert any("AsyncVectorEnv(" in str(cell.outputs) for cell in cells)
    before, after = map(float, printed(cells[-2]).split()[-2:])
    assert after > before
