"""Worker processes: how they are started by every start method, watched, ended and killed."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from vecspaces import system
from vecspaces.errors import StepTimeoutError
from vecspaces.vector.backends.process import descriptors
from vecspaces.vector.backends.process.interrupts import blocked, take_ctrl_c, uninterrupted
from vecspaces.vector.backends.process.line import process_descriptor
from vecspaces.vector.backends.process.startup import StartupName, set_variables
from vecspaces.vector.backends.process.tree import MARK, Tree, fell
from vecspaces.vector.exchange.deadline import Deadline

# The interval of checks without process descriptors.
_LOOK_SECONDS = 2e-3
# How long the exit code of an ended process may be missing: another thread may have received it
# from the system and not stored it yet.
_CODE_SECONDS = 0.5
# The same for a fork server, which sends the code in a message, and may first wait for a core.
_SERVED_CODE_SECONDS = 5.0
# multiprocessing's exit code of a process whose fork server ended before it.
_UNKNOWN_CODE = 255
# The longest time until a killed process has ended, which may wait for a core.
_KILL_SECONDS = 3.0

_IMPORTS = (
    "it imports what set_forkserver_preload names and, from Python 3.14 on, the main module; put "
    'what a script runs below `if __name__ == "__main__":`'
)
_NO_SERVER = f"multiprocessing's fork server ended, as what it printed says: {_IMPORTS}"
_SLOW_SERVER = (
    "multiprocessing's fork server started no worker within start_timeout ({:g} s): "
    f"{_IMPORTS}, or allow more time"
)
# The interval of checks for Ctrl-C and the time limit, while a fork server starts a process, and
# the longest time until a start has ended after the server was killed.
_SERVER_SECONDS, _SERVER_END_SECONDS = 0.1, 1.0
# The limits of the system, by the number of the error.
_LIMITS = {
    errno.EMFILE: "open files than `ulimit -n` allows this process, up to 12 for each worker",
    errno.ENFILE: "open files than the system allows",
    errno.EAGAIN: "processes than `ulimit -u`, or the container (its pids limit), allows",
    errno.ENOMEM: "memory than the system, or the container, allows",
}
# All threads share the main module.
_main_lock = threading.Lock()


@contextlib.contextmanager
def limits_explained(count: int) -> Iterator[None]:
    """Say in errors of starting one of `count` workers which limit of the system must be raised."""
    try:
        yield
    except OSError as error:
        if error.errno not in _LIMITS:
            raise
        reason = f"{count} workers need more {_LIMITS[error.errno]}"
        advice = "raise this limit, or pass a smaller num_workers"
        raise OSError(error.errno, f"{error.strerror}: {reason}: {advice}") from error


class WorkerProcess:
    """A started process, and its process descriptor if the system has these.

    The descriptor is watched instead of multiprocessing's sentinel, the end of a pipe, which the
    process's own children may keep open. A signal that is sent to it never reaches another process
    with the same number.

    Attributes:
        watch: The descriptor, readable when the process has ended; a negative number, that of no
            other process, if there is none.
        closed: Whether its descriptors are freed.
        tree: What it starts; None once that has ended.
    """

    watch = -1

    def __init__(self, process: BaseProcess, tree: Tree) -> None:
        assert process.pid is not None
        self.process = process
        self.tree: Tree | None = tree.led_by(process.pid)
        self.closed = False
        self._lock = threading.RLock()
        self.watch = process_descriptor(process.pid)

    def end(self, kill: bool) -> None:
        """Terminate the process by a signal, or kill it."""
        if self.closed:
            return
        if self.watch < 0 or not system.PIDFD:
            (self.process.kill if kill else self.process.terminate)()
        else:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.watch, signal.SIGKILL if kill else signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended, and return whether it has."""
        if self.closed:
            return True
        if self.watch >= 0:
            poll = system.make_poll()
            poll.register(self.watch, system.POLLIN)
            return bool(poll.poll(int(seconds * 1000 + 0.999)))
        return self._await_code(seconds) is not None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended and can be waited for."""
        return not self.closed and self.wait(0.0)

    def exitcode(self) -> int | None:
        """Return the exit code of a process that has ended; None if it cannot be known."""
        served = getattr(self.process, "_start_method", None) == "forkserver"
        return self._await_code(_SERVED_CODE_SECONDS if served else _CODE_SECONDS)

    def _await_code(self, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        while (code := _read_code(self.process)) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return code

    def close(self) -> None:
        """Free the descriptors, also of a process that cannot be killed."""
        with self._lock:  # another thread may close the vector env, while this one restarts it
            if self.closed:
                return
            # Nobody reads the code from now on.
            if self.wait(0.0) and _read_code(self.process) is None:
                # multiprocessing frees nothing without the exit code, which `os.wait` of the
                # program, or an interrupted `multiprocessing.active_children`, may have taken.
                popen: Any = self.process._popen  # type: ignore[attr-defined]
                popen.returncode = _UNKNOWN_CODE
            self._drop()
            _close(self.process)

    def disown(self) -> None:
        """In a forked process: do not affect the worker, which is the child of another process."""
        # multiprocessing must neither end nor await the child of another process.
        multiprocessing.process._children.discard(self.process)  # type: ignore[attr-defined]
        self.tree = None
        self._drop()

    def _drop(self) -> None:
        self.closed = True
        descriptors.close_attributes(self, "watch")


def _read_code(process: BaseProcess) -> int | None:
    """Return the exit code; the system returns it only once, and an interrupt would lose it."""
    with uninterrupted():
        return process.exitcode


def _close(process: Any) -> None:
    """Free multiprocessing's resources of a process, if it has ended."""
    if process._popen.poll() is not None:
        process.close()


def end_all(workers: list[WorkerProcess], timeout: float) -> None:
    """End processes; those that run after `timeout` are killed.

    All are awaited together, so the time does not grow with their number.
    """
    if timeout:
        _await_all(workers, timeout)
    for worker in workers:
        worker.end(kill=True)
    _await_all(workers, _KILL_SECONDS)
    end_trees(workers)


def end_trees(workers: Iterable[WorkerProcess]) -> None:
    """End the processes that ended workers leave, before the workers' numbers can be reused."""
    with uninterrupted():  # files of /proc are opened
        left = [worker for worker in workers if worker.tree is not None]
        if not system.PROC:
            for worker in left:
                worker.exitcode()  # until it is received, a worker is a member of its group
        fell([worker.tree for worker in left if worker.tree])
        for worker in left:
            worker.tree = None


def _await_all(workers: list[WorkerProcess], seconds: float) -> None:
    """Wait until all have ended."""
    deadline = Deadline(seconds)
    for worker in workers:
        worker.wait(deadline.left or 0.0)


def start_process(
    context: BaseContext,
    name: str,
    target: Callable[..., None],
    args: tuple[Any, ...],
    *,
    tree: Tree,
    daemon: bool,
    variables: dict[str, str],
    seconds: float,
) -> WorkerProcess:
    """Start a process that runs `target(*args)`; after an error nothing is left of it.

    `variables` is its environment, which a forked process inherits; `seconds` bounds the start of a
    fork server.
    """
    method = context.get_start_method()
    startup_name = StartupName(name)
    startup_name.variables = variables
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # it is on subclasses
        name=startup_name, target=target, args=args, daemon=daemon
    )
    try:
        with _without_lost_main() if method != "fork" else contextlib.nullcontext():
            if method == "forkserver":
                _start_by_server(process, seconds, variables)
            else:
                with blocked():
                    process.start()
        process.name = name
        return WorkerProcess(process, tree)
    except BaseException:
        if process.pid is not None:
            process.kill()
            process.join(_KILL_SECONDS)
            _close(process)
        raise


@contextlib.contextmanager
def _without_lost_main() -> Iterator[None]:
    """Hide from multiprocessing a main module whose file does not exist.

    A new process could not import it. Functions and classes of a main module on standard input are
    sent to workers by value, like those of `python -c`. All threads share the main module, so the
    block has a lock.
    """
    main = vars(sys.modules["__main__"])
    with _main_lock:
        path = main.get("__file__")
        hides = path is not None and not os.path.exists(path) and main.get("__spec__") is None
        if hides:
            del main["__file__"]
        try:
            yield
        finally:
            if hides:
                main["__file__"] = path


if system.FORK:
    from multiprocessing import forkserver

    def _start_by_server(process: BaseProcess, seconds: float, variables: dict[str, str]) -> None:
        """Start a process by multiprocessing's fork server, for whose imports it waits unboundedly.

        A server that this call has started, and that is late or interrupted, is killed. It gets
        the environment of workers: from Python 3.14 on it imports the main module, with libraries
        that read there how many threads to start.
        """
        server: Any = forkserver._forkserver
        before, errors, until = server._forkserver_pid, list[BaseException](), Deadline(seconds)

        def start() -> None:
            try:
                if not _runs(server):
                    with _environment(variables):
                        server.ensure_running()
                process.start()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=start, daemon=True, name="vecspaces-start")
        thread.start()
        while thread.is_alive():
            thread.join(_SERVER_SECONDS)
            is_interrupted = take_ctrl_c()
            if is_interrupted or (until.passed and thread.is_alive()):
                if server._forkserver_pid not in (None, before):
                    os.kill(server._forkserver_pid, signal.SIGKILL)
                thread.join(_SERVER_END_SECONDS)
                if is_interrupted:
                    raise KeyboardInterrupt
                raise StepTimeoutError(_SLOW_SERVER.format(seconds))
        if errors and isinstance(errors[0], (EOFError, ConnectionError)):
            raise RuntimeError(_NO_SERVER) from errors.pop()
        if errors:
            raise errors.pop()

    def _runs(server: Any) -> bool:
        """Return whether a fork server runs; its exit code is left to multiprocessing."""
        pid = server._forkserver_pid
        if pid is not None and system.WAITID:
            with contextlib.suppress(ChildProcessError):
                ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                return ended is None
            return False
        return pid is not None

    @contextlib.contextmanager
    def _environment(variables: dict[str, str]) -> Iterator[None]:
        """Replace the variables of this process, except its mark, while a fork server starts."""
        before = dict(os.environ)
        unmarked = {name: text for name, text in variables.items() if name != MARK}
        set_variables(unmarked | ({MARK: before[MARK]} if MARK in before else {}))
        try:
            yield
        finally:
            set_variables(before)

    def _renew() -> None:
        """In a forked process: other threads hold no lock, and the server is not its child."""
        global _main_lock
        _main_lock = threading.Lock()
        server: Any = forkserver._forkserver
        new: Any = forkserver.ForkServer()
        server._lock, server._forkserver_pid = new._lock, None
        alive, server._forkserver_alive_fd = server._forkserver_alive_fd, None
        if alive is not None:
            os.close(alive)

    system.run_in_forks(_renew)
