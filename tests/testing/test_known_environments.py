"""check_env finds nothing in the environments of well-known packages, but for what is so.

A package that is not installed is skipped. `docs/checking.md` gives the reasons of what is known.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import registry

from vecspaces.testing import check_env

# By the package of their entry points: what has to be imported for them.
PACKAGES = {
    "gymnasium.envs.classic_control": None,
    "gymnasium.envs.toy_text": None,
    "gymnasium.envs.box2d": "Box2D",
    "gymnasium.envs.mujoco": "mujoco",
    "minigrid.envs": "minigrid",
    "highway_env.envs": "highway_env",
}
KNOWN = {
    "Pusher-v4": {"construction"},
    "intersection-multi-agent-v1": {"reward", "flag"},
    "intersection-multi-agent-v2": {"reward", "flag"},
    "lane-keeping-v0": {"render"},
    "parking-ActionRepeat-v0": {"render"},
    "parking-parked-v0": {"render"},
}
KNOWN_OF_ALL = {"highway_env.envs": {"info-differs"}}


def installed() -> Iterator[Any]:
    """Yield what pytest shall check: id, and what may be found."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package, needed in PACKAGES.items():
            try:
                if needed is not None:
                    importlib.import_module(needed)
            except ImportError:
                reason = pytest.mark.skip(reason=f"{needed} is not installed")
                yield pytest.param("", set(), id=package, marks=reason)
                continue
            for name, spec in list(registry.items()):
                entry = spec.entry_point  # a function for what raises that it is no longer there
                if isinstance(entry, str) and entry.startswith(package):
                    known = KNOWN.get(name, set()) | KNOWN_OF_ALL.get(package, set())
                    known = known | {"render-unavailable"}
                    if ".wfc" in entry:
                        known = known | {"construction", "raises"}
                    yield pytest.param(name, known, id=name)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "known"), list(installed()))
def test_nothing_is_found_but_what_is_known(name: str, known: set[str]) -> None:
    report = check_env(partial(gymnasium.make, name))
    assert {finding.name for finding in report.findings} <= known, report.findings
