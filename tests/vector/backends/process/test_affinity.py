"""Returning to a core binds nothing, and fails no step."""

from __future__ import annotations

import os

import pytest

from vecspaces.vector.backends.process import affinity
from vecspaces.vector.backends.process.affinity import CoreAffinity
from vecspaces.vector.backends.process.cores import usable_cores

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen here"
)


def test_a_visit_home_binds_nothing_even_if_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(affinity, "_RETURN_SECONDS", 0.0)
    before, choose = os.sched_getaffinity(0), os.sched_setaffinity
    home = CoreAffinity(usable_cores()[-1])
    for core in (home, home, CoreAffinity(None), CoreAffinity(10**6)):  # not one of this machine
        core.return_to_core()
        assert os.sched_getaffinity(0) == before

    def interrupted(pid: int, cores: set[int]) -> None:
        choose(pid, cores)
        if cores != before or len(before) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "sched_setaffinity", interrupted)
    with pytest.raises(KeyboardInterrupt):
        home.return_to_core()
    assert os.sched_getaffinity(0) == before


def test_a_core_that_the_system_takes_away_fails_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int, cores: set[int]) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    home = CoreAffinity(usable_cores()[-1])
    home.return_to_core()
    monkeypatch.setattr(os, "sched_getaffinity", None)  # it is not tried again
    home.return_to_core()
