"""Libraries that own a thread, such as Playwright's sync API: one process per environment."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from tests.crosses import ordinarily
from tests.envs import Ledger
from vecspaces.aio import Pool

METHODS = ordinarily(lambda method: method != "spawn", [("fork",), ("forkserver",), ("spawn",)])
methods = pytest.mark.parametrize("method", METHODS)


class Library:
    """Demands what Playwright's synchronous API does.

    It has an event loop of its own, which counts as running from the start to the end. So there is
    one instance per process, no other event loop may run in its thread, and no other thread may
    call it.
    """

    started = 0  # by the process with this number

    def __init__(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("the synchronous API is used inside the asyncio loop")
        Library.started, self._thread = os.getpid(), threading.get_ident()
        self._loop = asyncio.new_event_loop()
        asyncio._set_running_loop(self._loop)

    def ask(self, answer: int) -> int:
        self._check()
        asyncio._set_running_loop(None)
        result = self._loop.run_until_complete(asyncio.sleep(0, answer))
        asyncio._set_running_loop(self._loop)
        return result

    def stop(self) -> None:
        self._check()
        asyncio._set_running_loop(None)
        self._loop.close()
        Library.started = 0

    def _check(self) -> None:
        if threading.get_ident() != self._thread or os.getpid() != Library.started:
            raise RuntimeError("cannot switch to a different thread")


class Browser(Ledger):
    """A ledger that asks the library in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.library = Library()

    def reset(self, **arguments: Any) -> Any:
        self.library.ask(0)
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        return super().step(self.library.ask(action))

    def close(self) -> None:
        self.library.stop()


@methods
def test_a_pool_holds_environments_that_own_their_thread(method: str) -> None:
    async def converse(pool: Pool, seed: int) -> float:
        async with pool.acquire() as env:
            await env.reset(seed=seed)
            return (await env.step(1))[1]

    async def main() -> list[float]:
        async with Pool(Browser, 2, context=method) as pool:
            return await asyncio.gather(*(converse(pool, seed) for seed in range(4)))

    assert asyncio.run(main()) == [0.125] * 4
