"""Threads of environments: each executes its jobs in order, and can be given up."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

# The interval of checks whether a thread between two calls of its environment has continued.
_LOOK_SECONDS, _LOOKS = 1e-3, 20


class Abandoned(BaseException):
    """Ends a job that was given up, after a call of its environment."""


class Bell:
    """A signal from threads to a waiting thread; the descriptor `fd` is readable after a ring.

    This is not a lock, because an interrupt of the waiting thread could leave it locked.
    """

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        for one in (self._ours, self._theirs):
            one.setblocking(False)
        self.fd = self._ours.fileno()
        self._poll = select.poll() if hasattr(select, "poll") else None
        if self._poll is not None:
            self._poll.register(self.fd, select.POLLIN)

    def ring(self) -> None:
        """End the current wait, or the next one."""
        with suppress(OSError):  # it has already rung, or the other end is closed
            self._theirs.send(b"\0")

    def wait(self, timeout: float | None) -> None:
        """Wait for a ring."""
        if self._poll is None:
            select.select([self.fd], [], [], timeout)
        else:
            self._poll.poll(None if timeout is None else timeout * 1000)
        self.silence()

    def silence(self) -> None:
        """Drop the rings so far; the caller then checks what has rung."""
        with suppress(BlockingIOError):
            self._ours.recv(4096)

    def close(self) -> None:
        """Close it; can be repeated."""
        self._ours.close()
        self._theirs.close()


class Job:
    """A function to call in a thread for the rows of an environment, and its outcome.

    `note` is called once, when the job has ended or was given up.
    """

    def __init__(
        self, rows: Sequence[int], do: Callable[[], Any], note: Callable[[], object]
    ) -> None:
        self.rows, self.do, self._note = rows, do, note
        self.result: Any = None
        self.error: BaseException | None = None
        self.has_ended = self.was_given_up = False

    def end(self, result: Any, error: BaseException | None) -> None:
        """Store the outcome."""
        self.result, self.error, self.has_ended = result, error, True
        self._note()


class EnvThread:
    """A thread of environments, which are built, reset, stepped, called and closed only there.

    It is a daemon, since nothing can end an environment that never returns.

    Attributes:
        busy: By row, the thread that is busy with it and since when; set when there are rows.
    """

    def __init__(self, name: str, busy: npt.NDArray[np.int64] | None) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._job: Job | None = None
        self._is_inside = False
        self.busy = busy
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int:
        """The id of the thread in stacks."""
        return self._thread.ident or 0

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def start(self, job: Job) -> None:
        """Add a job after those that were started before."""
        self._jobs.put(job)

    def mark(self, job: Job, thread: int) -> None:
        """Note which thread is busy with the rows of a job from now on."""
        if self.busy is not None and job.rows:
            self.busy[job.rows[0]] = thread, time.monotonic_ns()

    def end(self) -> None:
        """End the thread after its jobs."""
        self._jobs.put(None)

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                if job.was_given_up:
                    continue
                self._job = job
                self.mark(job, self.ident)
            result, error = None, None
            try:
                result = job.do()
            except BaseException as raised:
                error = raised
            with self._lock:
                self._job, self._is_inside = None, False
                if not job.was_given_up:
                    self.mark(job, 0)
                    job.end(result, error)
            del job, result, error  # which may refer to data, until the next job comes

    # ------------------------------------------------------------------ giving up

    def enter(self) -> None:
        """Called before a call of an environment: from here on, the job can be given up."""
        with self._lock:
            self._check()
            self._is_inside = True

    def leave(self) -> None:
        """Called after a call of an environment: a job that was given up ends here."""
        with self._lock:
            self._check()
            self._is_inside = False

    def guard(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call an environment; raise `Abandoned` if the job was given up."""
        self.enter()
        try:
            return call(*args, **kwargs)
        finally:
            self.leave()

    def _check(self) -> None:
        if self._job is not None and self._job.was_given_up:
            raise Abandoned

    @property
    def is_stuck(self) -> bool:
        """Whether it is still in a call of an environment that was given up."""
        job = self._job
        return job is not None and job.was_given_up

    def abandon(self) -> None:
        """Prevent the thread from writing rows."""
        with self._lock:
            if self._job is not None:
                self._job.was_given_up = True

    def give_up(self, job: Job) -> bool:
        """Give up a job that waits, or is in a call of its environment; False: it has ended.

        Between two calls, the package's own code runs, so the next call, or the end, comes soon.
        """
        for _ in range(_LOOKS):
            with self._lock:
                if job.has_ended:
                    return False
                if job is not self._job or self._is_inside:
                    job.was_given_up = True
                    return True
            time.sleep(_LOOK_SECONDS)
        return False


class Guarded:
    """Resets and steps an environment in its thread, until it is given up."""

    def __init__(self, env: Any, thread: EnvThread) -> None:
        self._env, self._thread = env, thread

    def reset(self, **arguments: Any) -> Any:
        """Reset the environment."""
        return self._thread.guard(self._env.reset, **arguments)

    def step(self, action: Any) -> Any:
        """Step the environment."""
        return self._thread.guard(self._env.step, action)
