"""The example that logs a run: TensorBoard has the numbers, and they count what was lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.programs import ROOT, load_example, run_python
from vecspaces import make_vec
from vecspaces.wrappers import RecordEpisodeStatistics

PAGE = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")
NAMES = {"steps_per_second", "worker_busy", "restarts", "lost_episodes", "episode_return"}
NAMES |= {"caller_outside", "caller_waiting"}


def logged(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What a folder of TensorBoard holds: by name, the steps and values."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        name.removeprefix("throughput/"): [(row.step, row.value) for row in events.Scalars(name)]
        for name in events.Tags()["scalars"]
        if name.startswith("throughput/")
    }


def test_the_program_logs_crashes_to_tensorboard(tmp_path: Path) -> None:
    arguments = ["--num-envs", "4", "--steps", "300", "--every", "100", "--crash-every", "150"]
    program = ROOT / "examples" / "log_run.py"
    run_python("-W", "ignore", program, *arguments, "--folder", tmp_path)
    curves = logged(tmp_path)
    assert set(curves) == NAMES
    assert [step for step, _ in curves["restarts"]] == [400, 800, 1200]
    restarts, lost = curves["restarts"][-1][1], curves["lost_episodes"][-1][1]
    assert restarts > 0 and lost == 2 * restarts  # two environments in each worker
    assert all(value > 0 for _, value in curves["steps_per_second"] + curves["episode_return"])
    assert all(0 < value <= 1 for _, value in curves["worker_busy"])


def values_of_a_run() -> tuple[int, dict[str, float]]:
    with RecordEpisodeStatistics(make_vec("CartPole-v1", 4, num_workers=1, stats=True)) as envs:
        (values,) = load_example("log_run").run(envs, 60, 60)
    return values  # type: ignore[no-any-return]


def section(name: str) -> str:
    """The code of a section of the page, without the import of the reader's own program."""
    text = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return code.replace("from my_project import step, values\n", "")


def test_the_lines_for_tensorboard_log_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    step, values = values_of_a_run()
    names: dict[str, Any] = {"step": step, "values": values}
    exec(section("TensorBoard, Weights & Biases, MLflow"), names)
    names["writer"].close()
    curves = logged(tmp_path / "runs" / "cart_pole")
    assert curves == {
        name.removeprefix("throughput/"): [(240, pytest.approx(value))]
        for name, value in values.items()
    }
