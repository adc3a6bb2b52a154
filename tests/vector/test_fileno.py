"""`fileno` is readable while `recv(timeout=0)` would return something, whatever call came last."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.envs import Gated
from vecspaces import system
from vecspaces.errors import SlowEnvironmentWarning, StepTimeoutError
from vecspaces.vector import AsyncVectorEnv, ThreadVectorEnv

pytestmark = pytest.mark.skipif(not system.EPOLL, reason="fileno of processes needs epoll")
# On a busy machine.
IGNORED = pytest.mark.filterwarnings("ignore::vecspaces.errors.SlowEnvironmentWarning")
FAIL, WAIT = 3, 4


class Faulty(Gated):
    """Also fails in a step at the action 3."""

    def step(self, action: Any) -> Any:
        if action == FAIL:
            raise LookupError("a step that fails")
        return super().step(action)


@pytest.fixture(params=[AsyncVectorEnv, ThreadVectorEnv])
def envs(request: pytest.FixtureRequest, gate: Path) -> Iterator[Any]:
    env_fns = [partial(Faulty, gate, i) for i in range(3)]
    with request.param(env_fns, num_workers=3, slow_warning=0.25) as envs:
        envs.reset(seed=0)
        yield envs
        gate.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def descriptor(envs: Any) -> int:
    return int(envs.fileno())


def is_readable(descriptor: int, seconds: float = 0.0) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def call_that_raises(envs: Any, gate: Path) -> None:
    def work(env: Any) -> None:
        gate.touch()
        time.sleep(0.5)  # the answer of environment 0 probably comes now
        raise ZeroDivisionError

    envs.send([WAIT], [0])
    with pytest.raises(ZeroDivisionError):
        envs.call(work, env_ids=[1])


def timeout(envs: Any, gate: Path) -> None:
    envs.send([0, WAIT], [0, 1])
    assert is_readable(envs.fileno(), 60)
    with pytest.raises(StepTimeoutError):
        envs.recv(2, timeout=0)


def failure_of_another_row(envs: Any, gate: Path) -> None:
    envs.send([0, FAIL], [0, 1])
    with pytest.raises(LookupError):
        envs.recv(2)


@IGNORED
@pytest.mark.parametrize("event", [call_that_raises, timeout, failure_of_another_row])
def test_fileno_is_readable_for_a_row_that_was_read_in_a_call_that_failed(
    event: Callable[[Any, Path], None], envs: Any, gate: Path, descriptor: int
) -> None:
    assert is_readable(descriptor)
    envs.recv(3)
    assert not is_readable(descriptor)
    event(envs, gate)
    assert is_readable(descriptor, 60)
    assert envs.recv(1, timeout=0).env_ids.tolist() == [0]


@IGNORED
def test_fileno_is_not_readable_for_rows_that_another_call_took(envs: Any, descriptor: int) -> None:
    assert is_readable(descriptor)
    envs.send([WAIT] * 3)
    assert not is_readable(descriptor)


def test_rows_that_wait_to_be_received_wake_no_other_wait(envs: Any, descriptor: int) -> None:
    assert is_readable(descriptor)
    with pytest.warns(SlowEnvironmentWarning), pytest.raises(StepTimeoutError):
        envs.step_async([0, 0, WAIT])
        envs.step_wait(timeout=1.0)


@IGNORED
def test_fileno_is_readable_for_a_restarted_worker_until_recv_has_read_its_answer(
    envs: Any, descriptor: int
) -> None:
    envs.recv(3)
    envs.restart([1])
    assert is_readable(descriptor, 60)
    give_up = time.monotonic() + 60
    while is_readable(descriptor, 0.2):
        assert len(envs.recv(timeout=0, at_least=0).env_ids) == 0
        assert time.monotonic() < give_up, "it stays readable"
