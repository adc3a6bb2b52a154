"""The fork server for workers with one thread, which has already imported NumPy and vecspaces.

multiprocessing's own fork server belongs to the program: its imports would be in all processes of
the program, and its NumPy has the program's number of threads. This is therefore a second server,
which is started with the variables of workers. Its workers take a tenth of the processor time to
start.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing import (
    connection,
    context,
    forkserver,
    popen_forkserver,
    reduction,
    resource_tracker,
    spawn,
    util,
)
from typing import Any

from vecspaces.vector.backends.process.interrupts import blocked, take_ctrl_c
from vecspaces.vector.exchange.deadline import Deadline

_PRELOADED = "vecspaces.vector.backends.process.worker"
# In older versions, multiprocessing's own server did not import the main module either.
_PRELOADS_MAIN = sys.version_info >= (3, 14)

# The program's arguments, which the main module may read, follow on the command line.
_COMMAND = """\
import sys
del sys.argv[0]
sys.path[:] = {path!r}
from multiprocessing.forkserver import main
main({listener}, {lives}, {preloaded!r}, {main_path!r}, **{more!r})"""

# How long a server may take to end, and the interval of checks.
_END_SECONDS, _LOOK_SECONDS = 0.5, 1e-3
# The interval of checks for Ctrl-C and the time limit, while a server imports.
_ANSWER_SECONDS = 0.1

# More than the length of the message by which a server asks for its key.
_CHALLENGE_BYTES = 1024

# The errors of a connection to a server that has ended, or whose socket was removed.
_GONE = (EOFError, ConnectionError, FileNotFoundError)


class WorkerServer(forkserver.ForkServer):
    """A fork server, started for the first worker, and again for the next worker after its end.

    It is not thread-safe: `start_process` holds the lock `forking.alone()`.

    The base class communicates with the server. The attributes that it uses are the same in all
    versions of Python, except for the key of a connection, which Python 3.14 added.
    """

    _forkserver_pid: int | None
    _forkserver_alive_fd: int | None
    _forkserver_address: Any
    _forkserver_authkey: bytes
    # Whether it has started a worker, so that its imports have not ended it.
    _has_served = False

    def start(
        self, data: bytes, descriptors: list[int], variables: Mapping[str, str], seconds: float
    ) -> tuple[int, int, int]:
        """Fork a process; return its number, and the streams of its exit code and of its data."""
        opened: list[int] = []
        until = Deadline(seconds)
        while True:
            try:
                self._ensure(variables)
                self._await_imports(until)
                opened += self.connect_to_new_process(descriptors)
                sentinel, stream = opened
                _await_answer(sentinel, until)
                pid = forkserver.read_signed(sentinel)
                with open(stream, "wb", closefd=False) as file:
                    file.write(data)
            except BaseException as error:
                while opened:
                    os.close(opened.pop())
                is_gone = self._has_served and isinstance(error, _GONE)
                is_late = isinstance(error, (TimeoutError, KeyboardInterrupt))
                if is_late and not self._has_served and self._forkserver_pid is not None:
                    os.kill(self._forkserver_pid, signal.SIGKILL)  # it is still importing
                    self._leave()
                if not is_gone:
                    raise
                self._leave()
            else:
                self._has_served = True
                return pid, sentinel, stream

    def _await_imports(self, until: Deadline) -> None:
        """Wait until a new server answers, where connecting would wait for it without a limit."""
        if self._has_served or not hasattr(self, "_forkserver_authkey"):  # before Python 3.14
            return
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self._forkserver_address)
            _await_answer(client.fileno(), until)
            # Its challenge; the server then drops this client, which ends without an answer.
            client.recv(_CHALLENGE_BYTES)

    def ensure_running(self) -> None:
        """Do nothing: the base class calls this, after `start` has started the server."""

    def _ensure(self, variables: Mapping[str, str]) -> None:
        """Start the server unless it is running."""
        resource_tracker.ensure_running()  # first, as it unblocks Ctrl-C
        if self._forkserver_pid is not None:
            if not _has_ended(self._forkserver_pid):
                return
            self.forget()
        address = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]
        more: dict[str, int] = {}
        opened: list[int] = []
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            if not util.is_abstract_socket_namespace(address):
                os.chmod(address, 0o600)
            listener.listen()
            try:
                lives, alive = os.pipe()
                opened += lives, alive
                if hasattr(self, "_forkserver_authkey"):
                    key_out, key_in = os.pipe()
                    opened += key_out, key_in
                    length = forkserver._AUTHKEY_LEN  # type: ignore[attr-defined]
                    self._forkserver_authkey = os.urandom(length)
                    os.write(key_in, self._forkserver_authkey)
                    more["authkey_r"] = key_out
                passed = [listener.fileno(), lives, *more.values()]
                self._forkserver_pid = _launch(passed, more, variables)
                opened.remove(alive)
            finally:
                for descriptor in opened:
                    os.close(descriptor)
        self._has_served = False
        self._forkserver_address, self._forkserver_alive_fd = address, alive

    def _leave(self) -> None:
        """Give up a server that does not answer, and wait briefly for its end."""
        pid, give_up = self._forkserver_pid, Deadline(_END_SECONDS)
        self.forget()
        while pid is not None and not _has_ended(pid) and not give_up.passed:
            time.sleep(_LOOK_SECONDS)

    def forget(self) -> None:
        """Give up the server, which ends after its workers; also used in forked processes."""
        alive, self._forkserver_alive_fd = self._forkserver_alive_fd, None
        self._forkserver_pid = None
        if alive is not None:
            os.close(alive)


def _await_answer(sentinel: int, until: Deadline) -> None:
    """Wait until the server answers, which it does when it has imported all modules."""
    while not connection.wait([sentinel], _ANSWER_SECONDS):
        if until.passed:
            raise TimeoutError
        if take_ctrl_c():
            raise KeyboardInterrupt


def _launch(passed: list[int], more: Mapping[str, int], variables: Mapping[str, str]) -> int:
    """Start the process of a server, which ignores Ctrl-C from its first instruction."""
    # These processes also have the imports of multiprocessing's own server.
    wanted = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
    data = spawn.get_preparation_data("")
    main_path = data.get("init_main_from_path") if _PRELOADS_MAIN else None
    preloaded = [*wanted, _PRELOADED, *(["gymnasium"] if "gymnasium" in sys.modules else [])]
    listener, lives, *_ = passed
    command = _COMMAND.format(
        path=data["sys_path"],
        listener=listener,
        lives=lives,
        preloaded=preloaded,
        main_path=main_path,
        more=more,
    )
    flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]
    arguments = [spawn.get_executable(), *flags, "-c", command]
    with blocked():
        process = subprocess.Popen(
            [*map(os.fsencode, arguments), *map(os.fsencode, sys.argv)],
            env=variables,
            pass_fds=passed,
        )
    process.returncode = 0  # it may run longer than this object exists, which would cause a warning
    return process.pid


def _has_ended(pid: int) -> bool:
    """Whether a child has ended, also if the program has waited for it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


class _ServedPopen(popen_forkserver.Popen):
    """multiprocessing's class for processes of a fork server, with this server."""

    _fds: list[int]

    def _launch(self, process_obj: Any) -> None:
        data = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump(spawn.get_preparation_data(process_obj.name), data)
            reduction.dump(process_obj, data)
        finally:
            context.set_spawning_popen(None)
        self.pid, self.sentinel, lives = server.start(
            data.getvalue(), self._fds, process_obj.name.variables, process_obj.name.seconds
        )
        # The stream of its data ends with this process, which the worker detects.
        close: Any = util.close_fds  # type: ignore[attr-defined]
        self.finalizer = util.Finalize(self, close, (lives, self.sentinel))


class ServedProcess(context.ForkServerProcess):
    """A process of the server, named by a `StartupName`."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing's name
        return _ServedPopen(process_obj)


#: The server of this process.
server = WorkerServer()
os.register_at_fork(after_in_child=server.forget)
