"""What hangs or crashes is named with its seed, its episode, its step and its stack."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecspaces
from tests.crosses import ordinarily
from tests.programs import run_python
from tests.vector.bounds import (
    interrupted_when,
    overrun,
    running,
    stretched,
    wait_until_running,
    within,
)
from vecspaces import Env, spaces
from vecspaces.errors import SlowEnvironmentWarning, StepTimeoutError, WorkerDiedError
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.stacks import StackFile, environment_stack
from vecspaces.vector.backends.slowness import SlowWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux alone")

LENGTH = 3
SOON = stretched(0.1)
CONTEXTS = ["fork", "spawn", "forkserver"]
FORK_OR_FULL = ordinarily(lambda context: context == "fork", [(name,) for name in CONTEXTS])
PACKAGE = str(Path(vecspaces.__file__).parent)


def sleep_in_python() -> None:
    time.sleep(1000)


def sleep_after(sign: Path) -> None:
    os.close(os.open(sign, os.O_CREAT))  # from here on this is the innermost frame in Python
    time.sleep(1000)


def sleep_in_c() -> None:
    ctypes.CDLL(None).sleep(1000)


def sleep_with_the_lock() -> None:
    ctypes.PyDLL(None).sleep(1000)


def crash() -> None:
    ctypes.string_at(0)


HANGS = [sleep_in_python, sleep_in_c]
ENDS: dict[str, Callable[[], Any]] = {
    "SIGSEGV": crash,
    "SIGABRT": os.abort,
    "exit": partial(os._exit, 3),
    "SIGKILL": partial(signal.raise_signal, signal.SIGKILL),
}


class Stuck(Env[Any, Any]):
    """Does something in one place: `"build"`, `"reset"`, `"call"`, or with action 1."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, where: str = "", do: Callable[[], Any] = sleep_in_python) -> None:
        self.where, self.do = where, do
        self.time = self.resets = 0
        self.act("build")

    def act(self, where: str) -> None:
        if self.where == where:
            self.do()

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        self.resets += 1
        if options:
            self.do()
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        if action:
            self.do()
        return np.zeros(1, np.float32), 1.0, self.time == LENGTH, False, {}

    def work(self) -> None:
        self.do()


@contextlib.contextmanager
def make(do: Callable[[], Any] = sleep_in_python, **arguments: Any) -> Iterator[Any]:
    """Four environments in two workers, of which 2 and 3 may get stuck, in their second episode."""
    arguments = {"num_workers": 2, "context": "fork", **arguments}
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [Stuck, Stuck, partial(Stuck, do=do), partial(Stuck, do=do)], **arguments
    )
    envs.reset(seed=5)
    for _ in range(LENGTH + 2):  # one of them resets
        envs.step([0] * 4)
    try:
        yield envs
    finally:
        envs.close(terminate=True)


def get_stuck(envs: Any) -> StepTimeoutError:
    """Let environment 3 be stuck in a step, and return what a wait for the step raises."""
    envs.step_async([0, 0, 0, 1])
    wait_until_running(envs, 3)
    with pytest.raises(StepTimeoutError) as caught:
        envs.step_wait(timeout=SOON)
    return caught.value


def wait_for_stack(wait: Callable[..., Any]) -> StepTimeoutError:
    """Return what a wait raises; on a busy machine it is repeated until the worker has answered."""
    give_up = time.monotonic() + 20
    while True:
        with pytest.raises(StepTimeoutError) as caught:
            wait(timeout=SOON)
        if caught.value.stack is not None or time.monotonic() > give_up:
            return caught.value


POSITION = "last seed 8, episodes since then: 1, step 2"


def check(stack: str | None, *functions: str) -> None:
    """Check that a stack has the frames of these functions of this file, and none of vecspaces."""
    assert stack is not None
    frames = re.findall(r'^  File "(.*)", line \d+, in (.*)$', stack, re.MULTILINE)
    assert [name for file, name in frames if file == __file__][: len(functions)] == [*functions]
    assert frames[0][0] == __file__
    assert not [file for file, _ in frames if file.startswith(PACKAGE)]


# ---------------------------------------------------------------------- hangs


@pytest.mark.parametrize(
    ("do", "context"),
    ordinarily(
        lambda do, context: context == "fork" or (do, context) == (sleep_in_python, "forkserver"),
        product(HANGS, CONTEXTS),
    ),
)
def test_a_timeout_shows_where_the_environment_is(do: Callable[[], Any], context: str) -> None:
    with make(do, context=context) as envs:
        get_stuck(envs)
        late = wait_for_stack(envs.step_wait)
        check(late.stack, "step", do.__name__)
        assert "environment 3 still busy" in str(late)
        assert str(late).endswith(f"\nenvironment 3 ({POSITION}):\n{late.stack}")
        assert "self.do()" in str(late)


def test_c_code_that_holds_the_lock_has_no_stack_and_delays_no_wait() -> None:
    with make(sleep_with_the_lock) as envs:
        late = get_stuck(envs)
        assert late.stack is None
        assert str(late).endswith(f"\nenvironment 3 ({POSITION})")
        wait_until_running(envs, 3)
        lengths = []
        for _ in range(5):
            began = time.monotonic()
            with pytest.raises(StepTimeoutError, match=POSITION) as caught:
                envs.step_wait(timeout=0)
            lengths.append(time.monotonic() - began)
            assert caught.value.stack is None
        assert min(lengths) < 0.15


def test_environment_stack_shows_names_of_files_as_they_are(tmp_path: Path) -> None:
    name = 'odd\\x \\N{x} é \U0001f600 ".py'
    with open(tmp_path / "stacks", "w+") as file:
        frame = "faulthandler.dump_traceback(file)"
        exec(compile(frame, name, "exec"), {"faulthandler": faulthandler, "file": file})
        file.seek(0)
        stack = environment_stack(file.read(), threading.get_ident())
    assert f'File "{name}", line 1, in <module>' in str(stack)


def test_an_environment_that_is_a_vector_env_has_no_stack_of_its_own() -> None:
    def inner() -> AsyncVectorEnv[Any, Any]:
        return AsyncVectorEnv([Stuck] * 2, num_workers=2, context="fork")

    with AsyncVectorEnv([inner, inner], num_workers=2, daemon=False, context="fork") as envs:
        envs.reset(seed=1)
        envs.step_async([0, 0, 0, 1])
        with pytest.raises(StepTimeoutError, match=r"\nenvironment 2 \(last seed 3\)$") as caught:
            envs.step_wait(timeout=3 * SOON)
        assert caught.value.stack is None
        envs.close(terminate=True)


def test_a_hang_in_a_reset_names_the_seed_that_it_was_given() -> None:
    with make() as envs:
        envs.reset_async(seed=[None, None, None, 77], options=[None, None, None, {"stuck": True}])
        wait_until_running(envs, 3)
        late = wait_for_stack(envs.reset_wait)
        check(late.stack, "reset", "sleep_in_python")
        assert "environment 3 (last seed 77, episodes since then: 0, step 0)" in str(late)
        envs.processes[1].kill()
        with pytest.raises(WorkerDiedError) as died:
            envs.reset_wait()
        assert died.value.stack is None, "an answer was taken for a crash"


def test_rows_of_a_stream_have_steps_of_their_own() -> None:
    with make() as envs:
        for _ in range(2 * LENGTH + 2):  # two more resets
            envs.send([0], [3])
            envs.recv(1)
        envs.send([0, 1], [1, 3])
        assert envs.recv(1).env_ids.tolist() == [1]
        wait_until_running(envs, 3)
        late = wait_for_stack(partial(envs.recv, 1))
        check(late.stack, "step", "sleep_in_python")
        assert "environment 3 (last seed 8, episodes since then: 3, step 2)" in str(late)


@pytest.mark.parametrize("context", FORK_OR_FULL)
def test_a_hang_while_an_environment_is_built(
    context: Any, tmp_path: Path, hurry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign, ask = tmp_path / "sign", StackFile.ask
    # A busy worker may answer later; the constructor, unlike a step, cannot wait again.
    monkeypatch.setattr(StackFile, "ask", lambda stacks, patience: ask(stacks, 60.0))
    env_fns = [Stuck, Stuck, Stuck, partial(Stuck, "build", partial(sleep_after, sign))]
    hurry(sign.exists, 1)
    with pytest.raises(StepTimeoutError, match="building environments 2, 3 did not end") as caught:
        AsyncVectorEnv(env_fns, num_workers=2, context=context, start_timeout=100.0)
    check(caught.value.stack, "__init__", "act", "sleep_after")
    assert str(caught.value).endswith(f"\nenvironment 3 (being built):\n{caught.value.stack}")


# ---------------------------------------------------------------------- deaths


@pytest.mark.parametrize(
    ("end", "context"),
    ordinarily(
        lambda end, context: context == "fork" or (end, context) == ("SIGSEGV", "forkserver"),
        product(ENDS, CONTEXTS),
    ),
)
def test_a_crash_leaves_a_stack_and_other_ends_leave_none(end: str, context: str) -> None:
    with make(ENDS[end], context=context) as envs, pytest.raises(WorkerDiedError) as caught:
        envs.step([0, 0, 0, 1])
    said, stack = str(caught.value), caught.value.stack
    assert "while environment 3 was running" in said
    assert f"\nenvironment 3 ({POSITION})" in said
    if end.startswith("SIG") and end != "SIGKILL":
        check(stack, "step")
        assert said.endswith(f":\n{stack}")
    else:
        assert stack is None


def test_a_crash_while_an_environment_is_built_names_it() -> None:
    with pytest.raises(WorkerDiedError, match="while environment 1 was running") as caught:
        AsyncVectorEnv([Stuck, partial(Stuck, "build", crash)], num_workers=1, context="fork")
    check(caught.value.stack, "__init__", "act", "crash")
    assert caught.value.running == 1


def test_a_function_that_decides_on_restarts_gets_the_stack() -> None:
    deaths: list[WorkerDiedError] = []
    with make(crash, on_worker_death=deaths.append) as envs:
        assert envs.step([0, 0, 0, 1])[3].tolist() == [False, False, True, True]
        check(deaths[0].stack, "step", "crash")
        envs.send([1], [3])  # a new worker has a file of its own
        assert envs.recv(1).truncations.tolist() == [False]
        envs.send([1], [3])
        assert envs.recv(1).truncations.tolist() == [True]
        check(deaths[1].stack, "step", "crash")


FOREIGN = """
import faulthandler, sys
from tests.vector.test_stacks import Stuck, crash
from vecspaces.errors import WorkerDiedError
from vecspaces.vector import AsyncVectorEnv

with open(sys.argv[1], "w") as file:
    faulthandler.enable(file)
    with AsyncVectorEnv([lambda: Stuck(do=crash)], context="fork") as envs:
        envs.reset()
        try:
            envs.step([1])
        except WorkerDiedError as error:
            assert "in crash" in error.stack
    assert not open(sys.argv[1]).read()
    crash()
"""


def test_the_callers_own_faulthandler_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_python("-c", FOREIGN, log, code=-signal.SIGSEGV)
    assert "in crash" in log.read_text()


# ---------------------------------------------------------------------- Ctrl-C

WAITS: dict[str, Callable[[Any], Any]] = {
    "step": lambda envs: envs.step([0, 0, 0, 1]),
    "reset": lambda envs: envs.reset(options=[None, None, None, {"stuck": True}]),
    "call": lambda envs: envs.call("work", env_ids=[3]),
    "recv": lambda envs: (envs.send([0, 0, 0, 1]), envs.recv(4)),
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_says_what_was_waited_for(wait: str) -> None:
    with make(sleep_in_python) as envs:
        with (
            within(5.0),
            pytest.raises(KeyboardInterrupt) as caught,
            interrupted_when(lambda: running(envs) == [3]),
        ):
            WAITS[wait](envs)
        (note,) = caught.value.__notes__
        verb = "step" if wait == "recv" else wait
        assert re.match(rf"{verb} was waiting \d+\.\d s for environment", note)
        place = "step" if wait in ("step", "recv") else "reset" if wait == "reset" else "work"
        check(note[note.index("  File") :], place, "sleep_in_python")
        assert "\nenvironment 3 (last seed 8" in note


# ---------------------------------------------------------------------- slow environments

SLOW = 0.1
NEVER_SLOW = overrun(0.2)  # where each warning is wrong: longer than a busy machine stops a process


@pytest.fixture
def sign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a file that exists when environment 3 was warned of."""
    warned, warn = tmp_path / "warned", SlowWatch._warn

    def warn_and_tell(watch: SlowWatch, worker: int, place: Any, *others: Any) -> None:
        try:
            warn(watch, worker, place, *others)
        finally:
            if place.env_ids[0] == 3:
                warned.touch()

    monkeypatch.setattr(SlowWatch, "_warn", warn_and_tell)
    return warned


def linger(sign: Path) -> None:
    """Be slow until there was a warning, or for a moment if there was one before."""
    if sign.exists():
        time.sleep(4 * SLOW)
    give_up = time.monotonic() + 20
    while not sign.exists() and time.monotonic() < give_up:
        time.sleep(0.005)


def of_stuck(caught: Iterable[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    """Leave out environments that a busy machine made slow."""
    return [warning for warning in caught if "\nenvironment 3 (" in str(warning.message)]


def refuse_warnings() -> None:
    """Make warnings of environment 3 errors."""
    warnings.filterwarnings("error", r"(?s).*\nenvironment 3 \(", SlowEnvironmentWarning)


@pytest.mark.parametrize("wait", WAITS)
def test_a_slow_environment_is_warned_of_once_per_episode(wait: str, sign: Path) -> None:
    with make(partial(linger, sign), slow_warning=SLOW) as envs:
        with pytest.warns(SlowEnvironmentWarning) as caught:
            WAITS[wait](envs)
        (warning,) = of_stuck(caught)
        said = str(warning.message)
        assert re.match(
            r"(step|step_rows|reset|call) of environment 3 has taken \S+ s so far", said
        )
        assert "\nenvironment 3 (last seed 8, episodes since then: " in said
        check(said[said.index("  File") :])
        assert warning.filename == __file__
        with warnings.catch_warnings():
            refuse_warnings()
            if wait == "recv":
                envs.send([1, 0], [3, 0])
                envs.recv(2)
            elif wait != "reset":  # a call of the same episode
                envs.call("work", env_ids=[3])
            if wait != "step":
                return
            envs.reset(seed=3)
            sign.unlink()
            with pytest.raises(SlowEnvironmentWarning, match="last seed 6"):
                envs.step([0, 0, 0, 1])
        assert envs.step_wait()[1].tolist() == [1.0] * 4  # it stayed pending


def test_a_row_that_hangs_is_noticed_while_others_of_the_stream_are_received() -> None:
    with make(slow_warning=SLOW) as envs:
        envs.send([0, 1], [1, 3])
        give_up = time.monotonic() + 20
        with pytest.warns(SlowEnvironmentWarning, match="environment 3") as caught:
            while not of_stuck(caught.list) and time.monotonic() < give_up:
                envs.recv(1)
                envs.send([0], [1])


@pytest.mark.parametrize("context", FORK_OR_FULL)
def test_a_warning_while_an_environment_is_built(context: Any, sign: Path) -> None:
    env_fns = [*[Stuck] * 3, partial(Stuck, "build", partial(linger, sign))]
    with (
        pytest.warns(SlowEnvironmentWarning, match=r"environment 3 \(being built\)") as caught,
        AsyncVectorEnv(env_fns, num_workers=1, context=context, slow_warning=SLOW),
    ):
        pass
    (said,) = [str(warning.message) for warning in of_stuck(caught)]
    assert said.startswith("building of environment 3 has taken")
    check(said[said.index("  File") :], "__init__", "act", "linger")


def test_many_that_take_their_time_are_not_slow() -> None:
    env_fns = [partial(Stuck, do=partial(time.sleep, NEVER_SLOW / 4))] * 6
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowEnvironmentWarning)
        # A new process also imports Gymnasium, which takes its time on a busy machine.
        with AsyncVectorEnv(
            env_fns, num_workers=1, context="fork", slow_warning=NEVER_SLOW
        ) as envs:
            envs.reset()
            envs.step([1] * 6)


class Verbose(Stuck):
    """Returns an info larger than a pipe, so that its worker waits until the caller reads it."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *result, _ = super().step(action)
        return *result, {"frames": bytes(1 << 20)}  # type: ignore[return-value]


def test_a_reply_that_is_larger_than_a_pipe_is_not_slow() -> None:
    """While the caller works, its workers wait for it, not it for them."""
    arguments: dict[str, Any] = {"num_workers": 3, "slow_warning": NEVER_SLOW}
    with AsyncVectorEnv([Verbose] * 3, context="fork", **arguments) as envs:
        envs.reset()
        envs.recv(3)
        with warnings.catch_warnings():
            warnings.simplefilter("error", SlowEnvironmentWarning)
            # The first `recv` looks at the environments that it waits for, the second one again.
            envs.send([0, 0, 0], [0, 1, 2])
            for count in (1, 2):
                time.sleep(1.5 * NEVER_SLOW)
                envs.recv(count)


def test_what_slow_warning_may_be() -> None:
    for wrong in (0, -1, "1", float("nan")):
        with pytest.raises((TypeError, ValueError), match="slow_warning must be"):
            AsyncVectorEnv([Stuck], slow_warning=wrong)  # type: ignore[arg-type]
    for never in (None, float("inf")):
        with make(partial(time.sleep, 0.01), slow_warning=never) as envs:
            envs.step([0, 0, 0, 1])
    with vecspaces.make_vec(Stuck, 1, backend="sync", slow_warning=1.0) as sync:
        sync.reset()
