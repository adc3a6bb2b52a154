"""`check_env` in this process, for tests of what it finds and not of how it isolates its probes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from vecspaces.testing import check
from vecspaces.testing.isolation import Played, ProbeHost


class Here(ProbeHost):
    """Plays probes in this process."""

    def __init__(self, make_env: Any, seed: int, num_steps: int) -> None:
        self.make_env, self.seed, self.num_steps = make_env, seed, num_steps

    def note(self, what: str) -> None:
        self.doing = what


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let check_env run its probes here, for environments that do no harm: a tenth of the time."""

    def run(probe: Any, make_env: Any, *arguments: Any, **options: Any) -> Played:
        return Here(make_env, options["seed"], options["num_steps"]).run(probe, *arguments)

    states = random.getstate(), np.random.get_state()
    monkeypatch.setattr(check, "run_isolated", run)
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
