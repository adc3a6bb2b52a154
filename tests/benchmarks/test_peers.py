"""What the benchmarks step their environments with: vecspaces, bare loops, and other libraries."""

from __future__ import annotations

import pytest

from benchmarks.contenders import LIMIT, OURS, Contender
from benchmarks.environments import NAMES, find_environment
from benchmarks.peers import PEERS, envpool_task
from tests.programs import run_python

OTHERS = [*PEERS, envpool_task("CartPole-v1")]


def assert_steps(contender: Contender, name: str) -> None:
    runner = contender.open(find_environment(name), 2, 1)
    try:
        assert runner.run(3) == 6
    finally:
        runner.close()


@pytest.mark.parametrize("name", NAMES)
def test_every_environment_is_stepped_by_ours_and_by_bare_loops(name: str) -> None:
    for contender in (OURS[0], LIMIT):
        assert_steps(contender, name)


@pytest.mark.parametrize("number", range(len(OTHERS)), ids=[contender.name for contender in OTHERS])
def test_other_libraries_step_where_they_are_installed(number: int) -> None:
    if not OTHERS[number].installed:
        pytest.skip(f"{OTHERS[number].module} is not installed")
    # In a process of its own: some keep shared memory.
    call = f"assert_steps(OTHERS[{number}], 'CartPole-v1')"
    program = f"from tests.benchmarks.test_peers import *; {call}"
    run_python("-c", program)
