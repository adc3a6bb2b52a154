"""Parallel environments in Ray's actors, beside bare loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.adapters.bare_loops import play
from tests.envs.agents import Crowd, Steady
from vecspaces import make_vec
from vecspaces.vector import AutoresetMode

pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')

pytestmark = pytest.mark.usefixtures("lent_actors")
RAY: Any = {"backend": "ray", "num_workers": 2}


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(
    ("layout", "make"),
    [
        ("rows", partial(Crowd, masks="infos")),
        ("rows", Steady),
        ("dict", partial(Crowd, masks="observations")),
    ],
)
def test_steps_equal_a_bare_loop(layout: Any, make: Any, mode: AutoresetMode) -> None:
    with make_vec(make, 3, agents=layout, state=True, autoreset_mode=mode, **RAY) as envs:
        play(envs, make, mode)
