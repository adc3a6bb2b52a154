"""Which workers are usable, which are replaced, and which environments busy ones run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector.backends.backend import PATIENCE, Backend
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, Message, died
from vecspaces.vector.exchange.messages import Op, Restart
from vecspaces.vector.session.arguments import Settings
from vecspaces.vector.session.recycling import Planned, Recycling
from vecspaces.vector.session.seeds import restart_seed


class Workers:
    """The workers that can be used, and those that cannot; only the session changes it.

    Attributes:
        of: The worker of each row.
        gone: Those that ended, or may be in any state: a reset replaces them.
        deaths: Those that were found dead or late, until this is handled.
        build_by: Those that are being built again, and their time limits.
        lost: Rows whose episode died with their worker, until a step has reported it.
        options: By row, the options of its autoresets.
        replaced: How often each worker was replaced in the middle of a run, for any reason.
        lost_episodes: How many lost episodes of each row a step has reported.
    """

    def __init__(self, backend: Backend, settings: Settings, recycling: Recycling | None) -> None:
        self._backend, self._slices = backend, backend.slices
        self._settings, self._budget, self._recycling = settings, settings.budget, recycling
        self.gone: set[int] = set()
        self.deaths: dict[int, Death | StepTimeoutError | Planned] = {}
        self.build_by: dict[int, Deadline] = {}
        self.lost: set[int] = set()
        self.replaced = [0] * len(self._slices)
        self.of = [worker for worker, rows in enumerate(self._slices) for _ in rows]
        self.lost_episodes: npt.NDArray[np.int64] = np.zeros(len(self.of), np.int64)
        self._seeds: list[int | None] = [None] * len(self.of)
        self.options: list[Mapping[str, Any] | None] = [None] * len(self.of)

    def of_rows(self, rows: Iterable[int]) -> dict[int, list[int]]:
        """Sort rows by their workers, which are in ascending order."""
        if len(self._slices) == 1:
            return {0: list(rows)}
        by_worker: dict[int, list[int]] = {}
        for row in rows:
            by_worker.setdefault(self.of[row], []).append(row)
        return dict(sorted(by_worker.items()))

    def note_start(self, row: int, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Note the seed and options of a row's reset, which a restart uses again."""
        if seed is not None:
            self._seeds[row] = seed
        self.options[row] = options

    # ------------------------------------------------------------------ new workers

    def building_rows(self) -> set[int]:
        """Return the rows of workers that are being built again."""
        return {row for worker in self.build_by for row in self._slices[worker]}

    def replace(self, worker: int) -> None:
        """Replace a worker that cannot be used, before a reset of its rows."""
        self._build(worker, None)
        self.deaths.pop(worker, None)
        self.gone.discard(worker)

    def _build(self, worker: int, restart: Restart | None) -> None:
        """Replace a worker; its next command waits until it is built."""
        self.build_by.pop(worker, None)
        if self._recycling is not None:
            reports = restart is not None and restart.reports
            self._recycling.begin(worker, reports * len(self._slices[worker]))
        self._backend.submit(Op.BUILD, 0, 0, {worker: restart})
        self.build_by[worker] = Deadline(self._settings.start_timeout)

    # ------------------------------------------------------------------ deaths

    def judge(self, worker: int, verb: str) -> Exception | None:
        """Return the error for the death of a worker; None if the worker will be restarted."""
        self.build_by.pop(worker, None)
        death, budget = self.deaths[worker], self._budget
        if isinstance(death, Planned):
            return None
        error: StepTimeoutError | WorkerDiedError
        if isinstance(death, StepTimeoutError):
            error, restarts = death, True
        else:
            restarts = budget is not None and budget.on_worker_death != "raise"
            if death.error is not None:
                # An actor restarts its processes itself, unless a function here decides.
                restarts = budget is not None and callable(budget.on_worker_death)
            advice = (
                "its environments are built again"
                if restarts
                else "call reset() to build its environments again, or close(); "
                'on_worker_death="restart" goes on by itself'
            )
            (busy, *_), text, _ = self._backend.locate(worker)
            if death.crashed is not None:
                busy = death.crashed
                text = self._backend.buffers.positions.describe(worker, busy)
            elif len(self._backend.running(worker)) > 1:
                text = ""  # each of them may be the cause
            at = busy if text else -1
            rows = self._slices[worker]
            error = death.error or died(worker, rows, verb, death, at, advice, text)
        if budget is None or not restarts:
            return error
        try:
            budget.spend(error, death)
        except Exception as fault:  # too many restarts, or an exception of the user's function
            return fault
        return None

    def give_up(self, death: Death | StepTimeoutError | Planned) -> list[int]:
        """Mark a worker that died, or all late ones, as gone; return them."""
        workers = [worker for worker in self.deaths if self.deaths[worker] is death]
        for worker in workers:
            if isinstance(death, StepTimeoutError):
                self._backend.end(worker)  # so that `close` does not wait for it
            self.gone.add(worker)
        return workers

    def restart(self, worker: int, between_episodes: bool) -> None:
        """Replace a worker; its rows begin with derived seeds."""
        rows, count = self._slices[worker], self.replaced[worker] + 1
        starts = {row: (restart_seed(self._seeds[row], count), self.options[row]) for row in rows}
        if not between_episodes:
            self.lost.update(rows)
        self._build(worker, Restart(starts, reports=not between_episodes))

    def note_restart(self, worker: int) -> None:
        """Note that a restart is complete; an interrupt before this repeats the whole of it."""
        self.replaced[worker] += 1
        why = self.deaths.pop(worker)
        if self._recycling is not None and isinstance(why, Planned):
            self._recycling.note(worker, why)

    # ------------------------------------------------------------------ busy workers

    def busy_rows(
        self, workers: Iterable[int], under_way: Collection[int] | None
    ) -> tuple[list[int], list[int]]:
        """Return the unfinished environments of workers, and those that are running now.

        In a stream, these are among the rows `under_way`; otherwise a worker steps its rows in
        order.
        """
        unfinished: list[int] = []
        running: list[int] = []
        for worker in sorted(workers):
            running.extend(sorted(self._backend.running(worker)))
            if under_way is not None:
                unfinished.extend(row for row in self._slices[worker] if row in under_way)
            else:
                unfinished.extend(self._backend.unfinished(worker))
        return unfinished, running

    def find_running(
        self, workers: Collection[int], patience: float = PATIENCE
    ) -> tuple[Message | str, str | None]:
        """Return the position, as text, and the stack of the first environment that is running.

        Only the first, since asking may take `patience` seconds.
        """
        running = [worker for worker in workers if self._backend.running(worker)]
        if not workers:
            return "", None
        return self._backend.find(min(running or workers), patience)
