"""RowStream: steps some rows of a group, and reports several at a time if this is worthwhile."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from vecspaces.vector.exchange.messages import StepRows, Written
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.groups import Groups

# A report takes worker and caller about 100 us together, so results of cheap environments are sent
# together; those of slower ones only if the caller waits for several rows at once.
_PART_SECONDS, _LONGEST_PART_SECONDS = 100e-6, 5e-3
_LEAST_PACE = 1e-7  # a clock may be constant for some time


class RowStream:
    """The steps of single rows of a bound group."""

    def __init__(self, group: Group | Groups) -> None:
        self._group = group
        # The seconds of a recent step of one environment, at least half of the longest.
        self._pace = _LONGEST_PART_SECONDS

    def step(self, slot: int, payload: StepRows) -> Iterator[Written]:
        """Step rows; yield what each report has.

        The caller waits for `share` rows of this worker, if all workers are as fast.
        """
        for group, part in self._group.divide(payload):
            yield from self._step(group, slot, part)

    def _step(self, group: Group, slot: int, payload: StepRows) -> Iterator[Written]:
        begun = group.begin(payload.rows, payload.starts, payload.broken)
        if begun.failures:
            yield begun._replace(rows=[])
        rows = begun.rows
        while rows:
            longest = min(payload.share, _LONGEST_PART_SECONDS / self._pace)
            most = max(1, longest, _PART_SECONDS / self._pace)
            left = len(rows)
            count = math.ceil(left / max(1, round(left / most)))  # so that no small rest is left
            # Sorted rows are often consecutive, and then read and written at once.
            together = group.rows if group.is_vector else sorted(rows[:count])
            rows = rows[len(together) :]
            began = time.perf_counter()
            written = group.step_some(slot, together)
            took = time.perf_counter() - began
            self._pace = max(took / len(together), self._pace / 2, _LEAST_PACE)
            yield written
