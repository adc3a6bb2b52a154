"""`worker_init_fn` runs in each worker first, also in one that replaces another."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crosses import START_METHODS
from tests.envs import Ledger, ledgers
from tests.vector.bounds import kill
from vecspaces import make_vec, system
from vecspaces.aio import Pool
from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector import AsyncVectorEnv, ThreadVectorEnv

methods = pytest.mark.parametrize("method", START_METHODS)


class Rendering:
    """A factory that chooses a device while it is unpickled, as an import of a library does."""

    device: str | None = None

    def __setstate__(self, state: Any) -> None:
        self.device = os.environ.get("DEVICE")

    def __getstate__(self) -> int:
        return 1

    def __call__(self) -> Ledger:
        env = Ledger()
        env.device = self.device or os.environ["DEVICE"]  # type: ignore[attr-defined]
        return env


def choose_device(worker: int) -> None:
    os.environ["DEVICE"] = str(worker)


@methods
def test_worker_init_fn_runs_before_factories_are_unpickled(method: str) -> None:
    before = dict(os.environ)
    with AsyncVectorEnv(
        [Rendering()] * 3, num_workers=3, context=method, worker_init_fn=choose_device
    ) as envs:
        assert envs.get_attr("device") == ("0", "1", "2")
        kill(envs.processes[1:2])
        with pytest.raises(WorkerDiedError):
            envs.call("number")
        envs.reset()
        assert envs.get_attr("device") == ("0", "1", "2")
        envs.restart([2])
        assert envs.get_attr("device") == ("0", "1", "2")
    assert dict(os.environ) == before


@methods
def test_an_exception_in_worker_init_fn_names_the_worker(method: str, tmp_path: Path) -> None:
    licence = tmp_path / "licence"

    def take_licence(worker: int) -> None:
        if worker == 1 and licence.exists():
            raise LookupError("no licence is left")

    def make() -> Any:
        return AsyncVectorEnv(
            ledgers(4), num_workers=2, context=method, worker_init_fn=take_licence
        )

    with make() as envs:
        envs.reset()
        licence.touch()
        envs.restart([3])
        with pytest.raises(LookupError, match="no licence"):
            envs.reset()
        licence.unlink()
        envs.reset()
    licence.touch()
    with pytest.raises(LookupError, match="no licence") as caught:
        make()
    said = str(caught.value.__cause__)
    assert "environments 2, 3 (worker 1) failed in worker_init_fn" in said


@pytest.mark.skipif(not system.DESCRIPTORS, reason="there are no stacks")
@methods
def test_a_hang_in_worker_init_fn_is_named(method: str, tmp_path: Path, hurry: Any) -> None:
    sign = tmp_path / "sign"

    def wait_for_licence(worker: int) -> None:
        sign.touch()
        threading.Event().wait()

    hurry(sign.exists)
    text = r"^building environment 0 did not .*what worker_init_fn waits for\nenvironment 0 \(in w"
    with pytest.raises(StepTimeoutError, match=text) as caught:
        AsyncVectorEnv(
            [Ledger],
            context=method,
            worker_init_fn=wait_for_licence,
            start_timeout=100.0,
            slow_warning=None,
        )
    assert "in wait_for_licence" in (caught.value.stack or "")


@pytest.mark.parametrize("value", [3, "print", [print]])
def test_worker_init_fn_must_be_callable(value: Any) -> None:
    with pytest.raises(TypeError, match="worker_init_fn must be a function of an int, found"):
        AsyncVectorEnv([Ledger], worker_init_fn=value)


@pytest.mark.parametrize(
    "make",
    [
        lambda **arguments: ThreadVectorEnv([Ledger], **arguments),
        lambda **arguments: make_vec(Ledger, backend="thread", **arguments),
        lambda **arguments: Pool(Ledger, 1, backend="thread", **arguments),
    ],
)
def test_threads_refuse_worker_init_fn(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"argument.* 'worker_init_fn'"):
        make(worker_init_fn=choose_device)
