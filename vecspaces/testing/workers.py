"""Running a function beside an environment's factory, in a process of its own.

What an environment does there (print, hang, exit, change globals) stays there, and ends with it.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vecspaces.env import Env
from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.spaces import Discrete
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.options import StartMethod

_NOTE_BYTES = 200
# How notes about the steps of episodes begin.
_STEP = "step "
_NOTHING = ("0", "0", "its start")
_UNGUARDED = (
    "check_env runs while a new process imports the script that calls it: put what the script runs "
    'below `if __name__ == "__main__":`'
)
# A process that is no fork imports NumPy and the user's main module.
_START_SECONDS = 60.0


class Place(Env[Any, Any]):
    """Stands where an environment would, and holds its factory, which is not called.

    What is done at the moment is written into the file `notes`, in words; `printed` takes the place
    of standard output and standard error.
    """

    observation_space = action_space = Discrete(1)

    def __init__(self, make_env: Callable[..., Any], notes: Path, printed: Path) -> None:
        self.make_env = make_env
        self.doing, self._count, self._steps = "its start", 0, 0
        self._notes = os.open(notes, os.O_WRONLY)
        self._printed = os.open(printed, os.O_RDWR | os.O_APPEND)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for descriptor in (1, 2):
            os.dup2(self._printed, descriptor)
        # A test runner has put objects of its own here.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))

    def note(self, what: str) -> None:
        """Write what is done next where the caller can read it when this process is gone."""
        done = f"{self._steps}\n{self._count}\n{what}"
        self.doing = what
        self._count += 1
        self._steps += what.startswith(_STEP)
        os.lseek(self._notes, 0, os.SEEK_SET)
        os.write(self._notes, done.encode()[:_NOTE_BYTES].ljust(_NOTE_BYTES))

    def printed_bytes(self) -> int:
        """Return how much was printed so far."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return os.fstat(self._printed).st_size

    def printed_text(self, start: int) -> str:
        """Return the beginning of what was printed after that many bytes."""
        os.lseek(self._printed, start, os.SEEK_SET)
        return os.read(self._printed, _NOTE_BYTES).decode(errors="replace")


class Outcome(NamedTuple):
    """What became of a function in a process of its own.

    Attributes:
        result: What it returned; None if it did not.
        problem: None, `"died"`, `"hangs"` or `"raises"`.
        message: What happened, in words.
        steps: How many steps had ended.
    """

    result: Any
    problem: str | None = None
    message: str = ""
    steps: int = 0


def run_in_worker(
    function: Callable[..., Any],
    make_env: Callable[..., Any],
    *args: Any,
    context: StartMethod,
    timeout: float,
) -> Outcome:
    """Call `function(place, *args)` in a new process, and wait for what it returns.

    `make_env` becomes `place.make_env`; `timeout` bounds one thing in it, a reset or a step.
    """
    with tempfile.TemporaryDirectory(prefix="vecspaces-check-") as folder:
        notes, printed = Path(folder, "notes"), Path(folder, "printed")
        notes.touch()
        printed.touch()
        envs: AsyncVectorEnv[Any, Any] | None = None
        try:
            envs = AsyncVectorEnv(
                [partial(Place, make_env, notes, printed)],
                context=context,
                daemon=False,  # an environment may have processes of its own
                num_workers=1,
                start_timeout=_START_SECONDS,
                step_timeout=timeout,
            )
            envs.call_async(function, *args)
            return Outcome(_wait(envs, notes, timeout))
        except StepTimeoutError as error:
            steps, doing = _read(notes)
            where = _show_line(error)
            message = f"{doing} did not end within {timeout:g} s{where}"
            return Outcome(None, "hangs", message, steps)
        except WorkerDiedError as error:
            if _UNGUARDED in str(error):  # what a process raises before its start comes as text
                raise RuntimeError(_UNGUARDED) from None
            steps, doing = _read(notes)
            how = error.signal or f"exit code {error.exitcode}"
            message = f"its process ended in {doing} ({how}){_show_line(error)}"
            return Outcome(None, "died", message, steps)
        except Exception as error:  # of the start of a process: whatever pickling raised
            return Outcome(None, "raises", f"{type(error).__name__}: {error}")
        finally:
            if envs is not None:
                envs.close(terminate=True)


def refuse_imports() -> None:
    """Raise in a new process that imports the main module: a finding there would be none."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(_UNGUARDED)


def _read(notes: Path) -> tuple[int, str]:
    """Return how many steps a process has ended, and what it did last."""
    steps, _, doing = notes.read_text().rstrip().split("\n") if notes.stat().st_size else _NOTHING
    return int(steps), doing


def _show_line(error: StepTimeoutError | WorkerDiedError) -> str:
    """Return in words the innermost line of code that a process was seen at; "" if none was."""
    lines = re.findall(r'File "(.*)", line (\d+)', getattr(error, "stack", None) or "")
    return f" ({Path(lines[-1][0]).name}, line {lines[-1][1]})" if lines else ""


def _wait(envs: AsyncVectorEnv[Any, Any], notes: Path, timeout: float) -> Any:
    """Wait for the end of the call, as long as it goes on from one thing to the next."""
    while True:
        before = notes.read_text()
        try:
            return envs.call_wait(timeout)[0]
        except StepTimeoutError:
            if notes.read_text() == before:
                raise


def start_methods() -> tuple[StartMethod, StartMethod | None]:
    """Return the fastest start method, and one that begins without a copy of this process."""
    known = multiprocessing.get_all_start_methods()
    return ("fork", "spawn") if "fork" in known else ("spawn", None)
