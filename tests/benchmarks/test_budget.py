"""The benchmark of the parts of a step finds each function that it times."""

from __future__ import annotations

import sys

import pytest

from tests.programs import run_python


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="the workers must be forked")
def test_each_phase_is_measured() -> None:
    arguments = ("-m", "benchmarks.budget", "--num-envs", "4", "--steps", "20")
    shown = run_python(*arguments).stdout
    for phase in ("send both commands", "worker: loop over 2 environments", "take in the replies"):
        assert phase in shown
