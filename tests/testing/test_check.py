"""`check_env` finds each of many faults, and none in environments that have none."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract import ALL_SPACES
from tests.crosses import ordinarily
from tests.envs import Sampler
from tests.programs import run_python
from tests.testing.checking import Here
from tests.testing.faults import (
    FAULTS,
    Hanging,
    HoardingInSteps,
    LeakingDescriptors,
    LeakingInSteps,
    LeakingMemory,
    SharedCounter,
    Sound,
)
from tests.vector.bounds import stretched
from vecspaces import spaces
from vecspaces.errors import FailedCheckError
from vecspaces.spaces import Box, Space
from vecspaces.testing import Finding, Report, check_env, isolation, probes
from vecspaces.testing.check import CATALOGUE
from vecspaces.testing.isolation import Played, run_isolated
from vecspaces.testing.probes import use_up
from vecspaces.testing.report import SEVERITIES
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

STEPS = 40
full = partial(pytest.param, marks=pytest.mark.full)
# These need no process of their own; what a Recorder finds is in golden/messages.txt, too.
HARMLESS = (
    "GlobalRandomSeeded", "SameEpisode", "CarriedOver", "SharedModule",
    "RandomFrame", "WrongFrame", "ClosedOnce",
)  # fmt: skip


def check(make: Any, **arguments: Any) -> Report:
    return check_env(make, **{"num_steps": STEPS, **arguments})


def names_of(report: Report) -> set[str]:
    return {finding.name for finding in report.findings}


@pytest.mark.full
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
def test_each_fault_is_found_and_nothing_else(kind: type[Sound]) -> None:
    assert_findings(kind, check(kind, timeout=1.0 if kind is Hanging else 30.0))


@pytest.mark.parametrize("name", HARMLESS)
def test_faults_are_found_by_comparison(name: str, in_process: None) -> None:
    kind = next(kind for kind in FAULTS if kind.__name__ == name)
    assert_findings(kind, check(kind))


def assert_findings(kind: type[Sound], report: Report) -> None:
    assert kind.finding in names_of(report), report.findings
    assert names_of(report) <= {kind.finding, *kind.also}, report.findings


def test_there_are_faults_of_25_kinds() -> None:
    kinds = {kind.finding for kind in FAULTS}
    assert len(kinds) >= 25
    assert kinds <= set(CATALOGUE)


def test_nothing_is_found_in_a_sound_environment(in_process: None) -> None:
    report = check(Sound)
    assert report.findings == () and report.ok
    assert report.num_steps == STEPS
    report.raise_for_findings("note")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork here")
def test_a_leak_is_found_although_the_caller_has_freed_as_much_memory() -> None:
    large = np.ones(2**22)
    del large  # from now on, glibc keeps arrays of this size in the heap
    freed = [(np.ones(25_000), np.ones(3_000)) for _ in range(600)]
    apart = [small for _, small in freed]  # between the freed ones, so that these remain
    del freed
    arguments: Any = {"seed": 0, "num_steps": STEPS, "context": "fork", "timeout": 30.0}
    played = run_isolated(use_up, HoardingInSteps, 5.0, **arguments)
    assert "leaks-memory" in played.findings, (played, len(apart))


def test_a_kernel_may_tell_no_kinds_of_memory_apart() -> None:
    apart = "VmRSS:\t    9 kB\nRssAnon:\t    4 kB\nRssFile:\t    3 kB\nRssShmem:\t    2 kB\n"
    assert probes._count_memory(apart) == 6 * 1024
    assert probes._count_memory("VmRSS:\t    9 kB\nThreads:\t1\n") == 9 * 1024


class Steady(Sampler):
    """Samples of its space, without infos; as `Env` draws them, episodes depend on the seed."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, space)

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0], {}

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], {})


class Ranged(Space[int]):
    """A space of someone's own."""

    def sample(self, mask: Any = None, probability: Any = None) -> int:
        return int(self.np_random.integers(3))

    def contains(self, x: Any) -> bool:
        return isinstance(x, int) and 0 <= x < 3


SPACES = {
    "empty": Box(0, 1, (0,)),
    "huge": Box(0, 255, (1000, 1000), np.uint8),
    "custom": Ranged(),
    "no keys": spaces.Dict({}),
    **ALL_SPACES,
}


@pytest.mark.parametrize(
    "name", ordinarily(lambda name: name in ("empty", "all"), zip(SPACES, strict=True))
)
def test_nothing_is_found_whatever_the_spaces(name: str, in_process: None) -> None:
    report = check(partial(Steady, SPACES[name]), num_steps=STEPS if name in ALL_SPACES else 5)
    assert report.findings == ()


@pytest.mark.parametrize(
    ("construct", "name", "said"),
    [
        (lambda: os._exit(7), "died", r"its process ended in construction \(exit code 7\)"),
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            "died",
            "its process ended in construction .*SIGKILL",
        ),
        (lambda: sys.exit("done"), "construction", "construction: raises SystemExit: done"),
    ],
    ids=["exit", "kill", "leave"],
)
def test_a_constructor_that_ends_its_process_is_named(construct: Any, name: str, said: str) -> None:
    report = check(construct)
    assert names_of(report) == {name} and not report.ok
    with pytest.raises(FailedCheckError, match=said):
        report.raise_for_findings()


class Noting(Hanging):
    """Makes a file when it hangs."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def step(self, action: Any) -> Any:
        if self.time == 3:
            self.mark.touch()
        return super().step(action)


def test_a_hang_in_a_step_names_the_step(
    hurry: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark = tmp_path / "hangs"

    class Hurried(AsyncVectorEnv[Any, Any]):
        def call_wait(self, timeout: float | None = None) -> Any:
            # A busy process may take a while from the file to what hangs.
            hurry(lambda: mark.exists() and time.time() > mark.stat().st_mtime + 0.5, 0)
            return super().call_wait(timeout)

    monkeypatch.setattr(isolation, "AsyncVectorEnv", Hurried)
    report = check(partial(Noting, mark), timeout=600.0)
    message, _, line = report.findings[0].message.partition(" (")
    assert message == "step 4 of episode 1 did not end within 600 s"
    if sys.platform == "linux":
        code, first = inspect.getsourcelines(Hanging.step)
        number = first + [line.strip() for line in code].index("time.sleep(600)")
        assert line == f"faults.py, line {number})"


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        (LeakingDescriptors, "descriptors", r"\d+ more descriptors after \d+ episodes"),
        full(LeakingInSteps, "descriptors", r"\d+ more descriptors after \d+ episodes"),
        full(LeakingMemory, "memory", r"[23]\d\d kB more memory in each episode"),
        (HoardingInSteps, "memory", r"[23]\d\d kB more memory in each episode"),
    ],
)
def test_leaks_of_resets_and_of_steps_are_found(kind: Any, name: str, said: str) -> None:
    played = run_isolated(use_up, kind, 9.0, seed=0, num_steps=STEPS, context="fork", timeout=30.0)
    assert re.fullmatch(f"{said} of up to two steps", played.findings[f"leaks-{name}"])


def locked(lock: Any, render_mode: str | None = None) -> Sound:
    return Sound(render_mode)


class Blank(Sound):
    """Renders nothing, in a mode that its factory chooses."""

    def __init__(self) -> None:
        super().__init__("rgb_array")

    def render(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (partial(locked, threading.Lock()), "pickling"),
        (Blank, "render"),
        (partial(SyncVectorEnv, [Sound]), "construction"),
        (dict, "construction"),
        (partial(int, "x"), "construction"),
    ],
    ids=["lock", "blank", "vector", "no", "fails"],
)
def test_what_is_wrong_with_a_factory_is_found(make: Any, name: str, in_process: None) -> None:
    report = check(make)
    assert names_of(report) == {name}


class Loud(SharedCounter):
    """Prints, and changes what it shares with its process."""

    def reset(self, **arguments: Any) -> Any:
        os.write(2, b"louder")
        os.chdir("/")
        os.environ["LOUD"] = "1"
        np.random.seed(3)
        return super().reset(**arguments)

    def info(self) -> Any:
        print("loud")
        return super().info()


def test_a_report_lists_the_worst_first_and_nothing_reaches_this_process(capfd: Any) -> None:
    state, folder = np.random.get_state()[1].tolist(), os.getcwd()  # type: ignore[index]
    report = check(Loud)
    mine = {"changes-directory", "touches-globals"}
    assert names_of(report) == {SharedCounter.finding, *SharedCounter.also, *mine}
    severities = [SEVERITIES.index(finding.severity) for finding in report.findings]
    assert severities == sorted(severities) and len(set(severities)) == 2
    document = json.loads(json.dumps(report.to_dict()))
    assert document["ok"] is False
    assert {entry["name"] for entry in document["findings"]} == names_of(report)
    assert Loud.steps == 0 and "LOUD" not in os.environ and os.getcwd() == folder
    assert np.random.get_state()[1].tolist() == state  # type: ignore[index]
    assert capfd.readouterr() == ("", "")


def test_only_findings_of_the_severity_or_worse_are_raised() -> None:
    findings = tuple(Finding(f"a {severity}", severity, "x", "y") for severity in SEVERITIES)
    report = Report(findings[1:], 3, 1.0)
    report.raise_for_findings()
    with pytest.raises(FailedCheckError, match=r"1 finding\(s\):\n- warning a warning: x: y$"):
        report.raise_for_findings("warning")
    with pytest.raises(FailedCheckError, match="2 finding"):
        report.raise_for_findings("note")


def test_a_script_without_a_guard_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.testing.faults import Sound\n"
        "from vecspaces.testing import check, check_env\n"
        "check.start_methods = lambda: ('spawn', None)  # from the first process on\n"
        "check_env(Sound, num_steps=5)\n"
    )
    ended = run_python(script, code=1)
    last = ended.stderr.strip().splitlines()[-1]
    assert 'below `if __name__ == "__main__":`' in last, ended.stderr


class Slow(Sound):
    """Takes its time for everything, but is no slower than it may be."""

    def step(self, action: Any) -> Any:
        time.sleep(0.1)
        return super().step(action)


@pytest.mark.full
def test_a_slow_environment_does_not_hang() -> None:
    report = check(Slow, num_steps=300, timeout=stretched(0.5))
    assert names_of(report) == set()
    assert report.num_steps < 100


def test_an_environment_with_slow_resets_is_checked_with_enough_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first reset takes longer than the time of a probe."""
    clock = iter(range(10_000))
    ticks = {"now": 0.0}

    class SlowReset(Sound):
        def reset(self, **arguments: Any) -> Any:
            ticks["now"] += 2.0
            return super().reset(**arguments)

    monkeypatch.setattr(
        probes.time, "perf_counter", lambda: ticks["now"] + 1e-6 * next(clock), raising=True
    )
    played = Played()
    host: Any = Here(SlowReset, 0, 60)
    probes.inspect_alone(host, played, 1.6)
    assert sum(bool(record.outcome) for record in played.trace) >= 20


def test_a_slow_start_is_named_with_its_own_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_START_SECONDS", 1e-3)
    arguments: Any = {"seed": 0, "num_steps": STEPS, "context": "spawn", "timeout": 30.0}
    played = run_isolated(use_up, Sound, 5.0, **arguments)
    assert played.findings == {"start": "its start did not end within 0.001 s"} and played.lost
