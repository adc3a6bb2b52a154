"""Dead and late workers: which are usable, which are replaced, what busy ones are doing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector.backends.backend import PATIENCE, Backend
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, Failure, Message, died
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.session.arguments import Settings
from vecspaces.vector.session.restarts import Late
from vecspaces.vector.session.seeds import restart_seed


class Workers:
    """The workers that can be used, and those that cannot; the session alone changes it.

    Attributes:
        gone: Those that ended, or may be in any state: a reset replaces them.
        deaths: Those that were found dead or late, until that is dealt with.
        build_by: Those that are being built again, and until when they may take.
        lost: Rows whose episode died with their worker, until a step has reported it.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend, self._slices = backend, backend.slices
        self._settings, self._budget = settings, settings.budget
        self.gone: set[int] = set()
        self.deaths: dict[int, Death | Late] = {}
        self.build_by: dict[int, Deadline] = {}
        self.lost: set[int] = set()
        self._restarts = [0] * len(self._slices)
        self._of = [worker for worker, rows in enumerate(self._slices) for _ in rows]
        self._seeds: list[int | None] = [None] * len(self._of)
        self._options: list[Mapping[str, Any] | None] = [None] * len(self._of)

    def of_rows(self, rows: Iterable[int]) -> dict[int, list[int]]:
        """Sort rows by the worker that holds them; workers in ascending order."""
        if len(self._slices) == 1:
            return {0: list(rows)}
        found: dict[int, list[int]] = {}
        of = self._of
        for row in rows:
            worker = of[row]
            if worker in found:
                found[worker].append(row)
            else:
                found[worker] = [row]
        return dict(sorted(found.items()))

    def note_start(self, row: int, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Note how a row is reset: a restart repeats its last seed, and what autoresets get."""
        if seed is not None:
            self._seeds[row] = seed
        self._options[row] = options

    # ------------------------------------------------------------------ new workers

    def building_rows(self) -> set[int]:
        """Return the rows of workers that are being built again."""
        return {row for worker in self.build_by for row in self._slices[worker]}

    def replace(self, worker: int) -> None:
        """Start a worker in place of one that cannot be used, before a reset of its rows."""
        self._build(worker, None)
        self.deaths.pop(worker, None)
        self.gone.discard(worker)

    def _build(self, worker: int, lost: Mapping[int, Any] | None) -> None:
        """Start a worker in place of another; its next command waits until it is built."""
        self.build_by.pop(worker, None)
        self._backend.submit(Op.BUILD, 0, 0, {worker: lost})
        self.build_by[worker] = Deadline(self._settings.start_timeout)

    def give_up_building(self) -> list[Failure]:
        """Return a failure for each worker that was not built in time."""
        failures = []
        for worker in [worker for worker, by in self.build_by.items() if by.passed]:
            del self.build_by[worker]
            self.gone.add(worker)
            rows = self._slices[worker]
            where, stack = self._backend.find(worker)
            text = "{:envs} were not built again within start_timeout ({} s): reset() tries again{}"
            message = Message(text, rows, f"{self._settings.start_timeout:g}", where)
            error = StepTimeoutError(message, rows, stack=stack)
            failures.append(Failure(tuple(rows), "build", error, "", worker))
        return failures

    # ------------------------------------------------------------------ deaths

    def judge(self, worker: int, verb: str) -> Exception | None:
        """Return what the death of a worker raises; None where the worker is to be restarted."""
        self.build_by.pop(worker, None)
        death, budget = self.deaths[worker], self._budget
        error: StepTimeoutError | WorkerDiedError
        if isinstance(death, Late):
            error, restarts = death.error, True
        else:
            restarts = budget is not None and budget.on_worker_death != "raise"
            if death.error is not None:
                # An actor restarts its processes by itself, unless a function here decides.
                restarts = budget is not None and callable(budget.on_worker_death)
            advice = (
                "its environments are built again"
                if restarts
                else "call reset() to build its environments again, or close(); "
                'on_worker_death="restart" goes on by itself'
            )
            (busy, *_), text, _ = self._backend.locate(worker)
            at = busy if text else -1
            rows = self._slices[worker]
            error = death.error or died(worker, rows, verb, death, at, advice, text)
        if budget is None or not restarts:
            return error
        try:
            budget.spend(error, death)
        except Exception as fault:  # too many restarts, or what a function of the user raised
            return fault
        return None

    def give_up(self, death: Death | Late) -> list[int]:
        """Let a worker that died, or all that were late together, be gone; return them."""
        workers = [worker for worker in self.deaths if self.deaths[worker] is death]
        for worker in workers:
            if isinstance(death, Late):
                self._backend.end(worker)  # `close` is not to wait for it
            self.gone.add(worker)
        return workers

    def restart(self, worker: int) -> None:
        """Start a worker in place of a dead one; its rows begin with seeds that follow from it."""
        rows, count = self._slices[worker], self._restarts[worker] + 1
        again = {row: (restart_seed(self._seeds[row], count), self._options[row]) for row in rows}
        self.lost.update(rows)
        self._build(worker, again)

    def note_restart(self, worker: int) -> None:
        """Note that a restart is complete; an interrupt before this repeats the whole of it."""
        self._restarts[worker] += 1
        del self.deaths[worker]

    # ------------------------------------------------------------------ busy workers

    def running(self, worker: int) -> int:
        """Return the environment that a worker is busy with; -1 for none."""
        return int(self._backend.buffers.progress[worker])

    def busy_rows(
        self, workers: Iterable[int], under_way: Collection[int] | None
    ) -> tuple[list[int], list[int]]:
        """Return environments of workers that have not finished, and those that are running now.

        In a stream those are among the rows `under_way`; else a worker goes through its rows.
        """
        unfinished: list[int] = []
        running: list[int] = []
        for worker in sorted(workers):
            within = self._slices[worker]
            at = self.running(worker)
            if at in within:
                running.append(at)
            if under_way is not None:
                unfinished.extend(row for row in within if row in under_way)
            else:
                unfinished.extend(range(at, within.stop) if at in within else within)
        return unfinished, running

    def find_running(
        self, workers: Collection[int], patience: float = PATIENCE
    ) -> tuple[Message | str, str | None]:
        """Say where the first environment that is running is, and return its stack.

        One alone, since asking may take `patience` seconds.
        """
        running = [worker for worker in workers if self.running(worker) >= 0]
        if not workers:
            return "", None
        return self._backend.find(min(running or workers), patience, patience >= PATIENCE)
