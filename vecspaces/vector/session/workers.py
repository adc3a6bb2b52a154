"""Dead and late workers: which are usable, which are replaced, what busy ones are doing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.log import log
from vecspaces.vector.backends.backend import PATIENCE, Backend
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, Failure, Message, died, name_envs
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.session.arguments import Settings
from vecspaces.vector.session.recycling import CLOSE_SECONDS, Planned, Recycling
from vecspaces.vector.session.restarts import Late
from vecspaces.vector.session.seeds import restart_seed


class Workers:
    """The workers that can be used, and those that cannot; the session alone changes it.

    Attributes:
        gone: Those that ended, or may be in any state: a reset replaces them.
        deaths: Those that were found dead or late, until that is dealt with.
        build_by: Those that are being built again, and until when they may take.
        lost: Rows whose episode died with their worker, until a step has reported it.
        options: By row, what its autoresets get.
        fresh: Rows whose worker was replaced between two episodes, and their seeds, until a reset.
        recycling: Which workers are to be replaced although they live; None: none.
    """

    def __init__(self, backend: Backend, settings: Settings, units: Sequence[int]) -> None:
        self._backend, self._slices = backend, backend.slices
        self._settings, self._budget = settings, settings.budget
        self.gone: set[int] = set()
        self.deaths: dict[int, Death | Late | Planned] = {}
        self.build_by: dict[int, Deadline] = {}
        self.lost: set[int] = set()
        self.fresh: dict[int, int | None] = {}
        self.recycling: Recycling | None = None
        if settings.recycles:
            self.recycling = Recycling(settings, backend, units)
        self._restarts = [0] * len(self._slices)
        self._of = [worker for worker, rows in enumerate(self._slices) for _ in rows]
        self._seeds: list[int | None] = [None] * len(self._of)
        self.options: list[Mapping[str, Any] | None] = [None] * len(self._of)

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
        self.options[row] = options

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
        if self.recycling is not None:
            self.recycling.begin(worker, len(lost or ()))
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
            log.warning("%s: not built again within start_timeout", name_envs(rows))
        return failures

    # ------------------------------------------------------------------ deaths

    def judge(self, worker: int, verb: str) -> Exception | None:
        """Return what the death of a worker raises; None where the worker is to be restarted."""
        self.build_by.pop(worker, None)
        death, budget = self.deaths[worker], self._budget
        if isinstance(death, Planned):
            return None
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

    def retire_planned(self) -> None:
        """Let all workers that are to be replaced close their environments, together."""
        planned = [worker for worker, why in self.deaths.items() if isinstance(why, Planned)]
        for reply in self._backend.retire(planned, CLOSE_SECONDS) if planned else ():
            assert self.recycling is not None
            self.recycling.note_unclosed(reply)

    def give_up(self, death: Death | Late | Planned) -> list[int]:
        """Let a worker that died, or all that were late together, be gone; return them."""
        workers = [worker for worker in self.deaths if self.deaths[worker] is death]
        for worker in workers:
            if isinstance(death, Late):
                self._backend.end(worker)  # `close` is not to wait for it
            self.gone.add(worker)
        return workers

    def restart(self, worker: int, between_episodes: bool) -> None:
        """Start a worker in place of another; its rows begin with seeds that follow from it."""
        rows, count = self._slices[worker], self._restarts[worker] + 1
        seeds = {row: restart_seed(self._seeds[row], count) for row in rows}
        if between_episodes:
            self.fresh.update(seeds)
            self._build(worker, None)
            return
        self.lost.update(rows)
        for row in rows:
            self.fresh.pop(row, None)
        self._build(worker, {row: (seed, self.options[row]) for row, seed in seeds.items()})

    def note_restart(self, worker: int) -> None:
        """Note that a restart is complete; an interrupt before this repeats the whole of it."""
        self._restarts[worker] += 1
        why = self.deaths.pop(worker)
        if self.recycling is not None and isinstance(why, Planned):
            self.recycling.note(worker, why)

    def note_reset(self, rows: Iterable[int]) -> None:
        """Note that rows were reset."""
        self.lost.difference_update(rows)
        for row in rows if self.fresh else ():
            self.fresh.pop(row, None)

    def begin_fresh(self, row: int, seed: int | None, options: Any = None) -> tuple[Any, Any]:
        """Return the seed and the options of a reset; after a replacement, a seed of its own."""
        return self.fresh.get(row) if seed is None else seed, options

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
