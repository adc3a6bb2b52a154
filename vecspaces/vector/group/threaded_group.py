"""ThreadedGroup: environments that step at the same time, and how many may be given up.

Each environment is a separate group, which executes its share of each command in its thread. A
command is a `Task` with one job per environment. Starting a task does not wait for its end: the
bell rings when the task has ended, and its reply consists of the results of all jobs, in the order
of the rows. Further commands can therefore start meanwhile, and an environment that hangs delays
only those that share its thread.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Lock, get_ident
from typing import Any

from vecspaces.checks import RAISED
from vecspaces.errors import ClosedEnvironmentError
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Failure, Message
from vecspaces.vector.exchange.infos import InfosByRow, Part
from vecspaces.vector.exchange.messages import Op, Restart, Written
from vecspaces.vector.exchange.stats import EnvTimings, ThreadTimings
from vecspaces.vector.group.attributes import Call
from vecspaces.vector.group.building import Builder, Built, check_distinct, close_all
from vecspaces.vector.group.env_group import EnvGroup
from vecspaces.vector.group.members import Member, Views
from vecspaces.vector.group.threads import Abandoned, Bell, EnvThread, Job

#: The result of a task: the kind of the reply, the slot, the number of the command, the payload.
Outcome = tuple[Op, int, int, Any]
#: A thread, the rows of its environment, and the function to call.
Piece = tuple[EnvThread, Sequence[int], Callable[[], Any]]

# The longest time until the threads of closed environments have ended, and until environments are
# closed after another one could not be built.
_END_SECONDS, _UNDO_SECONDS = 0.2, 1.0
# Instead of a thread: the row has a command, and its thread is busy with another row.
_QUEUED = -1
# The commands to single rows, which can be given up.
_OF_ROWS = (Op.STEP_ROWS, Op.CALL, Op.REBUILD)


class Task:
    """A command, or one environment's part of a command in a stream."""

    def __init__(self, op: Op, slot: int, seq: int, result: Any) -> None:
        self.op, self._slot, self._seq = op, slot, seq
        self.jobs: list[Job] = []
        self.place: int | None = None  # among the tasks that have ended
        self._result = result  # of a command that needs no thread
        self._ended, self._lock = 0, Lock()

    def count_end(self) -> bool:
        """Count a job that has ended; return whether it was the last one."""
        with self._lock:
            self._ended += 1
            return self._ended == len(self.jobs)

    def outcome(self) -> Outcome:
        """Return the reply to the command; for several failures, that of the lowest row."""
        failed = [(job.rows, job.error) for job in self.jobs if job.error is not None]
        failures = [(rows, Failure.of(error, rows, self.op.verb)) for rows, error in failed]
        op, payload = Op.DONE, self._result
        if self.op is Op.STEP_ROWS:
            op, payload = Op.PART, Written([], [], failures) if failures else self.jobs[0].result
        elif failures:
            op, payload = Op.FAILED, failures[0][1]
        elif self.jobs:
            payload = joined([job.result for job in self.jobs])
        return op, self._slot, self._seq, payload


class _EnvInThread(EnvGroup):
    """The group of one environment, which runs in one thread, and can be given up."""

    def __init__(self, whole: ThreadedGroup, at: int, built: Built, thread: EnvThread) -> None:
        # Weak, so that a group that is collected ends its threads at once.
        self._whole: ThreadedGroup = weakref.proxy(whole)
        self._built, self.thread = built, thread
        env_fn, number = whole._env_fns[at], whole._first + at
        super().__init__([env_fn], whole._mode, number, validate=whole._validate)

    def _build_all(self, note_building: Callable[..., None]) -> list[Built]:
        self._builder = self._whole._builder  # so that equal spaces are one object
        return [self._built]

    def _make_members(self, built: Sequence[Built]) -> list[Member]:
        (self.member,) = members = super()._make_members(built)
        self.member.thread = self.thread
        return members

    def _make_views(self) -> Views:
        views = super()._make_views()
        self._plain_steps = None  # they would call the environment without the guard
        return views

    def _make_timings(self) -> EnvTimings | None:
        timings = self._whole._timings
        return EnvTimings(timings, self.low) if isinstance(timings, ThreadTimings) else None

    def _build_again(self, *arguments: Any) -> Failure | None:
        self.thread.enter()  # closing the former environment may also take long
        failure = super()._build_again(*arguments)
        self.thread.leave()
        return failure

    def _build(self, env_fn: Callable[[], Any], number: int) -> Built:
        """Call a factory; close the environment if the thread was given up meanwhile."""
        self.thread.enter()
        built = super()._build(env_fn, number)
        try:
            self.thread.leave()
        except Abandoned:
            close_all([built], 0)
            raise
        return built

    def _check_new(self, env: Any, number: int) -> None:
        self._whole._check_new(env, number)

    def call(self, call: Call, rows: Sequence[int]) -> dict[int, Any]:
        """Call a method of the environment, which may be given up meanwhile."""
        result: dict[int, Any] = self.thread.guard(super().call, call, rows)
        return result


class _Builder(Builder):
    """Refuses environments that open a window, because windows need the main thread."""

    def check(self, env: Any, number: int) -> Built:
        built = super().check(env, number)
        if getattr(env, "render_mode", None) == "human":
            close_all([built], 0)
            text = "{:env_fn} made an environment with render_mode='human', whose window needs the "
            text += "main thread: use concurrent_envs=1, or another render_mode"
            raise ValueError(Message(text, number))
        return built


class ThreadedGroup(EnvGroup):
    """A group in which up to `concurrent_envs` environments step at the same time.

    Environment i runs in thread i modulo `concurrent_envs`. One thread calls the methods of the
    group, and waits for its `bell`.

    Attributes:
        late: After `close`, the rows of environments that did not close in time.
    """

    _Timings = ThreadTimings

    def __init__(
        self,
        env_fns: list[Callable[[], Any]],
        autoreset_mode: AutoresetMode,
        first: int = 0,
        *,
        concurrent_envs: int,
        validate: bool = False,
        note_building: Callable[..., None] | None = None,
    ) -> None:
        self.bell = Bell()
        self.late: list[int] = []
        self._concurrent_envs, self._pid = concurrent_envs, os.getpid()
        self._tasks: list[Task] = []  # those whose outcomes were not taken
        self._places, self._numbers = count(), count()
        self._busy: Any = None
        self._made: list[EnvThread] = []
        self._finalizer = weakref.finalize(self, _end_all, self._made, self.bell)
        self._homes = [self._make_thread() for _ in range(min(concurrent_envs, len(env_fns)))]
        self._left: list[EnvThread] = []  # those that were given up, and have not returned
        super().__init__(
            env_fns, autoreset_mode, first, validate=validate, note_building=note_building
        )

    def _make_thread(self) -> EnvThread:
        self._made[:] = [made for made in self._made if made.is_alive]  # a run may be long
        thread = EnvThread(f"vecspaces-env-{next(self._numbers)}", self._busy)
        self._made.append(thread)
        return thread

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("environments that live in threads cannot be copied or pickled")

    # ------------------------------------------------------------------ building

    def _build_all(self, note_building: Callable[..., None]) -> list[Built]:
        """Call all factories at the same time, each in the thread of its environment."""
        homes, built, tasks = self._homes, list[Built](), list[Task]()
        numbers: dict[int, int] = {}
        number = self._first
        self._builder = _Builder(self._mode)
        try:
            for at, env_fn in enumerate(self._env_fns):
                build = partial(self._build_first, env_fn, self._first + at)
                pieces = [(homes[at % len(homes)], (), build)]
                tasks.append(self._start(Op.BUILD, 0, 0, pieces))
            for number, task in enumerate(tasks, self._first):
                # A message names the first one that is not built yet.
                note_building(number, homes[len(built) % len(homes)].ident)
                self._wait(task, Deadline(None))
                (job,) = task.jobs
                if job.error is not None:
                    raise job.error
                check_distinct(job.result.env, number, numbers)
                built.append(job.result)
        except BaseException as error:
            for at, task in enumerate(tasks):
                undo = Job((), partial(_close_result, task.jobs[0]), lambda: None)
                homes[at % len(homes)].start(undo)
            self._end_threads(Deadline(_UNDO_SECONDS))
            if isinstance(error, RAISED):
                raise Failure.of(error, (number,), "build") from None
            raise
        self._tasks = []
        note_building(-1, get_ident())
        return built

    def _make_members(self, built: Sequence[Built]) -> list[Member]:
        """Make one group per environment."""
        homes = self._homes
        self._envs = [
            _EnvInThread(self, at, one, homes[at % len(homes)]) for at, one in enumerate(built)
        ]
        return [env.member for env in self._envs]

    def bind(self, buffers: Buffers, low: int, worker: int, restart: Restart | None = None) -> None:
        """Take the rows from `low` on, those of a former worker after a `restart`."""
        self._place(low)
        self._buffers, self._worker = buffers, worker
        self._make_views()
        self._busy = buffers.busy
        self._busy[self.low : self.high] = 0
        for thread in self._made:
            thread.busy = self._busy
        for env, member in zip(self._envs, self._members, strict=True):
            env.bind(buffers, member.rows.start, worker, restart)
        self._env_of = {row: env for env in self._envs for row in env.member.rows}

    # ------------------------------------------------------------------ tasks

    def _start(
        self, op: Op, slot: int, seq: int, pieces: Sequence[Piece], result: Any = None
    ) -> Task:
        """Start a task, each part in its thread; a task without parts has a result at once."""
        task = Task(op, slot, seq, result)

        def note() -> None:
            if not pieces or task.count_end():
                task.place = next(self._places)
                self.bell.ring()

        task.jobs = [Job(rows, do, note) for _, rows, do in pieces]
        self._tasks.append(task)
        for (thread, rows, _), job in zip(pieces, task.jobs, strict=True):
            if rows:
                thread.mark(job, _QUEUED)
            thread.start(job)
        if not pieces:
            note()
        return task

    def _wait(self, task: Task, deadline: Deadline) -> None:
        """Wait until a task has ended."""
        while task.place is None and not deadline.passed:
            self.bell.wait(deadline.left)

    def finished(self) -> list[Task]:
        """Return the tasks that have ended, oldest end first, and were not taken yet."""
        ended = [(task.place, task) for task in self._tasks if task.place is not None]
        return [task for _, task in sorted(ended, key=lambda one: one[0])]

    def take(self, tasks: Sequence[Task]) -> None:
        """Note that the outcomes of tasks were taken; can be repeated."""
        self._tasks = [task for task in self._tasks if task not in tasks]

    def start(self, op: Op, slot: int, seq: int, payload: Any) -> None:
        """Start a command, as one task; `STEP_ROWS` as one for each environment.

        The payload is that of `execute`; for `GIVE_UP`, the failure of each row, by row.
        """
        if os.getpid() != self._pid:
            raise ClosedEnvironmentError(
                "the threads of the environments are in the process that made the vector env, "
                "which alone can use it: make another one here"
            )
        if op is Op.GIVE_UP:
            for row, failure in payload.items():
                self._give_up(self._env_of[row], failure)
        elif op is Op.STATS:
            self._start(op, slot, seq, [], self.flush_timings())
        else:
            pieces: list[Piece] = [
                (env.thread, env.member.rows, partial(env.execute, op, slot, part))
                for env, part in self._divide(op, payload)
            ]
            for together in [[piece] for piece in pieces] if op is Op.STEP_ROWS else [pieces]:
                self._start(op, slot, seq, together, {})

    def _divide(self, op: Op, payload: Any) -> list[tuple[_EnvInThread, Any]]:
        """Divide the payload of a command into those of its environments."""
        if op is Op.STEP:
            return [(env, None) for env in self._envs]
        if op is Op.REBUILD:
            return self._envs_of(payload)
        if op is Op.CALL:
            call, rows = payload
            return [(env, (call, part)) for env, part in self._envs_of(rows)]
        if op is Op.SET_ATTR:
            name, values = payload
            parts = self._envs_of(values)
            return [(env, (name, {row: values[row] for row in part})) for env, part in parts]
        rows, *rest = payload
        parts = self._envs_of(rows)
        if op is Op.STEP_ROWS:
            starts, *how = rest
            return [
                (env, (part, {row: starts[row] for row in part if row in starts}, *how))
                for env, part in parts
            ]
        assert op is Op.RESET, f"{op!r} is no command for a group"
        seeds, options, *how = rest
        given = dict(zip(rows, zip(seeds, options, strict=True), strict=True))
        return [
            (env, (part, *zip(*(given[row] for row in part), strict=True), *how))
            for env, part in parts
        ]

    def _envs_of(self, rows: Iterable[int]) -> list[tuple[_EnvInThread, list[int]]]:
        """Return environments and their rows, in the order in which they are first named."""
        parts: dict[_EnvInThread, list[int]] = {}
        for row in rows:
            parts.setdefault(self._env_of[row], []).append(row)
        return list(parts.items())

    # ------------------------------------------------------------------ giving up

    def _give_up(self, env: _EnvInThread, failure: Failure) -> None:
        """Answer for a late environment, and let it begin again in another thread.

        Nothing happens if more threads would hang than may run at the same time; the caller then
        replaces the process.
        """
        self._left = [thread for thread in self._left if thread.is_stuck]
        thread, rows = env.thread, env.member.rows
        tasks = [task for task in self._tasks if task.op in _OF_ROWS]
        jobs = [job for task in tasks for job in task.jobs if job.rows == rows]
        if not jobs:
            return
        # Others that wait for the same stuck thread leave no further thread behind.
        if thread not in self._left and len(self._left) >= self._concurrent_envs:
            return
        if not thread.give_up(jobs[-1]):
            return  # it has answered
        at, empty = self._envs.index(env), replace(env.member.built[0], env=None)
        moved = self._envs[at] = _EnvInThread(self, at, empty, self._make_thread())
        moved.bind(self._buffers, env.low, self._worker)
        moved._failed.update(rows)
        self._members[at] = moved.member
        self._env_of.update(dict.fromkeys(rows, moved))
        # If the thread returns, it closes the environment.
        if thread not in self._left:
            self._left.append(thread)
        thread.start(Job((), partial(close_all, env.member.built, 0), lambda: None))
        if all(other.thread is not thread for other in self._envs):
            thread.end()
        thread.mark(jobs[-1], 0)
        jobs[-1].end(None, failure)

    # ------------------------------------------------------------------ the end

    def close(self, seconds: float | None = None) -> Failure | None:
        """Close every environment in its thread, and end the threads; return the first failure.

        Those that do not close within `seconds` continue in their threads, and are `late`.
        """
        envs, self._envs, self._members = self._envs, [], []
        if not envs:
            return None
        pieces: list[Piece] = [(env.thread, env.member.rows, env.close) for env in envs]
        task = self._start(Op.CLOSE, 0, 0, pieces)
        self._wait(task, Deadline(seconds))
        self.late = [row for job in task.jobs if not job.has_ended for row in job.rows]
        self._end_threads(Deadline(_END_SECONDS))
        return next((job.result for job in task.jobs if job.result is not None), None)

    def _end_threads(self, deadline: Deadline) -> None:
        """End all threads after their jobs; one that does not return in time writes nothing."""
        self._finalizer()
        for thread in self._made:
            thread.join(deadline.left or 0.0)
            thread.abandon()


def joined(results: Sequence[Any]) -> Any:
    """Join the results of environments, like the result of one group of all.

    Infos of successive single environments are joined, so that they are merged in the order of the
    rows.
    """
    first = results[0]
    if isinstance(first, dict):
        return {row: value for result in results for row, value in result.items()}
    if not isinstance(first, Written):
        return first
    infos: list[Part] = []
    for part in (part for one in results for part in one.infos):
        if isinstance(part, InfosByRow) and infos and isinstance(infos[-1], InfosByRow):
            infos[-1].update(part)
        else:
            infos.append(InfosByRow(part) if isinstance(part, InfosByRow) else part)
    rows = [row for one in results for row in one.rows]
    return Written(rows, infos, [failure for one in results for failure in one.failures])


def _close_result(job: Job) -> None:
    """Close the environment that a job has built."""
    if job.result is not None:
        close_all([job.result], 0)


def _end_all(threads: list[EnvThread], bell: Bell) -> None:
    """End threads, after their jobs."""
    for thread in threads:
        thread.end()
    bell.close()
