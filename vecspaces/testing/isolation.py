"""Running a probe of `check_env` in a separate process, where an environment can do no harm.

The effects of an environment there (output, hangs, exits, changed globals) end with the process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from vecspaces.env import Env
from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.spaces import Discrete
from vecspaces.testing.recording import ResultDigest, StopPlaying
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.options import StartMethod

_NOTE_BYTES = 200
# The beginning of notes about the steps of episodes.
_STEP = "step "
_START, _CONSTRUCTION = "its start", "construction"
_UNGUARDED = (
    "check_env runs while a new process imports the script that calls it: put what the script runs "
    'below `if __name__ == "__main__":`'
)
# The exit code of a process that imports such a script.
_UNGUARDED_CODE = 64
# A process that was not forked imports NumPy and the user's main module.
_START_SECONDS = 60.0


@dataclass
class Played:
    """The result of a probe."""

    trace: list[ResultDigest] = field(default_factory=list)
    findings: dict[str, str] = field(default_factory=dict)
    # The exception, or the end of the process, and where it happened.
    failure: str | None = None
    # Whether the process crashed or hung, and how many steps it had made.
    lost: bool = False
    num_steps: int = 0
    # Further values of single probes.
    extra: dict[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def guard(self, host: ProbeHost, doing: str, name: str | None = None) -> Iterator[None]:
        """Convert an exception of the environment to a finding; only the `with` block ends."""
        host.note(doing)
        try:
            yield
        except StopPlaying:
            pass
        except (Exception, SystemExit) as error:
            self.failure = f"{host.doing}: raises {_describe(error)}"
            name = getattr(error, "finding", name)  # violations of PettingZoo's rules have one
            if name is None:
                name = _CONSTRUCTION if host.doing == _CONSTRUCTION else "raises"
            self.findings.setdefault(name, self.failure)


def _describe(error: BaseException) -> str:
    """Return an exception in one line, with the line of the environment that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{where}"


class ProbeHost(Env[Any, Any]):
    """Replaces the environment in a worker, and has what probes play: factory, seed, steps.

    The file `notes` describes what the probe is doing; the file `printed` replaces standard output
    and standard error.
    """

    observation_space = action_space = Discrete(1)

    def __init__(
        self, make_env: Callable[..., Any], seed: int, num_steps: int, notes: Path, printed: Path
    ) -> None:
        self.make_env, self.seed, self.num_steps = make_env, seed, num_steps
        self.doing, self._count, self._steps = _START, 0, 0
        self._notes = os.open(notes, os.O_WRONLY)
        self._printed = os.open(printed, os.O_RDWR | os.O_APPEND)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for descriptor in (1, 2):
            os.dup2(self._printed, descriptor)
        # A test runner may have replaced these objects.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))

    def note(self, what: str) -> None:
        """Write the next action to the file, which remains after the end of this process."""
        done = f"{self._steps}\n{self._count}\n{what}"
        self.doing = what
        self._count += 1
        self._steps += what.startswith(_STEP)
        os.lseek(self._notes, 0, os.SEEK_SET)
        os.write(self._notes, done.encode()[:_NOTE_BYTES].ljust(_NOTE_BYTES))

    def printed_bytes(self) -> int:
        """Return the number of printed bytes so far."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return os.fstat(self._printed).st_size

    def printed_text(self, start: int) -> str:
        """Return the beginning of what was printed after that many bytes."""
        os.lseek(self._printed, start, os.SEEK_SET)
        return os.read(self._printed, _NOTE_BYTES).decode(errors="replace")


def run_isolated(
    probe: Callable[..., Played],
    make_env: Callable[..., Any],
    *args: Any,
    seed: int,
    num_steps: int,
    context: StartMethod,
    timeout: float,
) -> Played:
    """Call `probe(host, *args)` in a new process, and wait for what it returns.

    The host gets `make_env`, `seed` and `num_steps`; `timeout` bounds each reset and each step.
    """
    with tempfile.TemporaryDirectory(prefix="vecspaces-check-") as folder:
        notes, printed = Path(folder, "notes"), Path(folder, "printed")
        notes.touch()
        printed.touch()
        envs: AsyncVectorEnv[Any, Any] | None = None
        try:
            envs = AsyncVectorEnv(
                [partial(ProbeHost, make_env, seed, num_steps, notes, printed)],
                context=context,
                daemon=False,  # an environment may start processes
                num_workers=1,
                start_timeout=_START_SECONDS,
                slow_warning=None,  # the call makes many steps
            )
            envs.call_async(probe, *args)
            return _wait(envs, notes, timeout)
        except (StepTimeoutError, WorkerDiedError) as error:
            steps, doing = _read(notes)
            if isinstance(error, StepTimeoutError):
                name, message = "hangs", f"{doing} did not end within {timeout:g} s"
            elif doing == _START and error.exitcode == _UNGUARDED_CODE:
                raise RuntimeError(_UNGUARDED) from None
            else:
                how = error.signal or f"exit code {error.exitcode}"
                name, message = "died", f"its process ended in {doing} ({how})"
            message += _show_line(error.stack)
            return Played([], {name: message}, message, True, steps)
        except Exception as error:  # at the start of a process: an error of pickling
            message = f"{type(error).__name__}: {error}"
            return Played([], {"raises": message}, message, True)
        finally:
            if envs is not None:
                envs.close(terminate=True)


def _wait(envs: AsyncVectorEnv[Any, Any], notes: Path, timeout: float) -> Played:
    """Wait for the end of the call as long as its notes change."""
    while True:
        before = notes.read_text()
        try:
            played: Played = envs.call_wait(timeout)[0]
            return played
        except StepTimeoutError:
            if notes.read_text() == before:
                raise


def _read(notes: Path) -> tuple[int, str]:
    """Return the number of steps of a process, and what it did last."""
    text = notes.read_text().rstrip() or f"0\n0\n{_START}"
    steps, _, doing = text.split("\n")
    return int(steps), doing


def _show_line(stack: str | None) -> str:
    """Return the innermost line of code of a stack."""
    lines = re.findall(r'File "(.*)", line (\d+)', stack or "")
    return f" ({Path(lines[-1][0]).name}, line {lines[-1][1]})" if lines else ""


def refuse_imports() -> None:
    """End a new process that imports the main module, from which check_env is called again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(_UNGUARDED_CODE)


def start_methods() -> tuple[StartMethod, StartMethod | None]:
    """Return the fastest start method, and one that does not copy this process."""
    known = multiprocessing.get_all_start_methods()
    return ("fork", "spawn") if "fork" in known else ("spawn", None)
