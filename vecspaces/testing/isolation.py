"""Running a probe of `check_env` in a separate process, where an environment can do no harm.

The effects of an environment there (output, hangs, exits, changed globals) end with the process.
"""

from __future__ import annotations

import contextlib
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

from vecspaces import system
from vecspaces.env import Env
from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.spaces import Discrete
from vecspaces.testing.recording import ResultDigest, StopPlaying
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.options import StartMethod

_NOTE_BYTES = 200
# For a process that imports NumPy and the user's main module.
_START_SECONDS = 60.0
_START, _CONSTRUCTION = "its start", "construction"
#: Fills a `Played`.
Probe = Callable[..., None]


@dataclass
class Played:
    """The result of a probe."""

    trace: list[ResultDigest] = field(default_factory=list)
    findings: dict[str, str] = field(default_factory=dict)
    # The exception, or the end of the process, and where it happened.
    failure: str | None = None
    # Whether the process crashed or hung.
    lost: bool = False
    # The render modes of the environment, and digests of frames.
    modes: list[str] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)

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
            name = getattr(error, "finding", name)  # an AgentError names its finding
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

    The file `notes` describes what the probe is doing. What is printed goes nowhere.
    """

    observation_space = action_space = Discrete(1)

    def __init__(
        self, make_env: Callable[..., Any], seed: int, num_steps: int, notes: Path
    ) -> None:
        self.make_env, self.seed, self.num_steps = make_env, seed, num_steps
        self.doing, self._count = _START, 0
        self._notes = os.open(notes, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # A test runner may have replaced these objects.
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
        for descriptor in (1, 2):
            os.dup2(sys.stdout.fileno(), descriptor)

    def run(self, probe: Probe, *args: Any) -> Played:
        """Call a probe, and return its results."""
        played = Played()
        with played.guard(self, _CONSTRUCTION):
            probe(self, played, *args)
        return played

    def note(self, what: str) -> None:
        """Write the next action to the file, which remains after the end of this process."""
        self.doing = what
        self._count += 1
        text = f"{self._count}\n{what}"
        os.lseek(self._notes, 0, os.SEEK_SET)
        os.write(self._notes, text.encode()[:_NOTE_BYTES].ljust(_NOTE_BYTES))


def run_isolated(
    probe: Probe,
    make_env: Callable[..., Any],
    *args: Any,
    seed: int,
    num_steps: int,
    context: StartMethod,
    timeout: float,
) -> Played:
    """Call `probe(host, played, *args)` in a new process, and return its results.

    The host gets `make_env`, `seed` and `num_steps`; `timeout` bounds each reset and each step.
    """
    with (
        tempfile.TemporaryDirectory(prefix="vecspaces-check-") as folder,
        contextlib.ExitStack() as stack,
    ):
        notes = Path(folder, "notes")
        notes.touch()
        try:
            envs = AsyncVectorEnv(
                [partial(ProbeHost, make_env, seed, num_steps, notes)],
                context=context,
                daemon=False,  # an environment may start processes
                num_workers=1,
                start_timeout=_START_SECONDS,
                slow_warning=None,  # the call makes many steps
            )
            stack.callback(envs.close, terminate=True)
            envs.call_async("run", probe, *args)
            return _wait(envs, notes, timeout)
        except (StepTimeoutError, WorkerDiedError) as error:
            doing = notes.read_text().rstrip().partition("\n")[2] or _START
            if isinstance(error, StepTimeoutError):
                starts = doing == _START
                name, bound = ("start", _START_SECONDS) if starts else ("hangs", timeout)
                message = f"{doing} did not end within {bound:g} s"
            elif doing == _START:
                raise  # the calling script has no `if __name__ == "__main__":`, say
            else:
                how = error.signal or f"exit code {error.exitcode}"
                name, message = "died", f"its process ended in {doing} ({how})"
            message += _show_line(error.stack)
            return Played([], {name: message}, message, True)
        except Exception as error:  # at the start of a process: an error of pickling
            message = f"{type(error).__name__}: {error}"
            return Played([], {"raises": message}, message, True)


def _wait(envs: AsyncVectorEnv[Any, Any], notes: Path, timeout: float) -> Played:
    """Wait for the result of the call as long as its notes change."""
    while True:
        before = notes.read_text()
        try:
            played: Played = envs.call_wait(timeout)[0]
            return played
        except StepTimeoutError:
            if notes.read_text() == before:
                raise


def _show_line(stack: str | None) -> str:
    """Return the innermost line of code of a stack."""
    lines = re.findall(r'File "(.*)", line (\d+)', stack or "")
    return f" ({Path(lines[-1][0]).name}, line {lines[-1][1]})" if lines else ""


def start_methods() -> tuple[StartMethod, StartMethod | None]:
    """Return the fastest start method, and one that does not copy this process."""
    return ("fork", "spawn") if system.SAFE_FORK else ("spawn", None)
