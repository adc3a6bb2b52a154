"""Large observations of `step`, which workers copy into batches that the caller returns."""

from __future__ import annotations

import copy
import gc
import os
import threading
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from vecspaces import Env, make_vec, spaces, system
from vecspaces.layout import Layout
from vecspaces.memory import Arena
from vecspaces.vector.exchange import batch_pool
from vecspaces.vector.exchange.batch_pool import POOL_SIZE, BatchPool, pool_slots

N = 6
IMAGE = spaces.Box(0, 255, (256, 256, 3), np.uint8)
SPACES = {
    "array": IMAGE,
    "nested": spaces.Dict(
        eyes=spaces.Tuple((IMAGE, spaces.Box(-1, 1, (2,), np.float32))), speed=spaces.Discrete(9)
    ),
    "small": spaces.Box(0, 255, (2, 2), np.uint8),
    "text": spaces.Dict(image=IMAGE, words=spaces.Text(4)),
}


class Camera(Env[Any, Any]):
    """Returns values that depend on its number, its episode and its step."""

    action_space = spaces.Discrete(3)

    def __init__(self, number: int, kind: str = "array") -> None:
        self.observation_space: Any = SPACES[kind]
        self._number, self._episode, self._step = number, 0, 0

    def _observe(self) -> Any:
        self.observation_space.seed(1000 * self._number + 100 * self._episode + self._step)
        return self.observation_space.sample()

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._episode, self._step = self._episode + 1, 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self._step += 1
        return self._observe(), 0.5, self._step == 3 + self._number % 2, False, {}

    def __getstate__(self) -> Any:
        return {name: value for name, value in vars(self).items() if name != "observation_space"}


def make(kind: str = "array", backend: Any = "async", **options: Any) -> Any:
    factories = [lambda number=number: Camera(number, kind) for number in range(N)]
    workers = {"num_workers": 2} if backend == "async" else {}
    return make_vec(factories, backend=backend, vector_kwargs={**workers, **options})


ACTIONS = np.zeros(N, np.int64)


def pool_of(envs: Any) -> Any:
    return envs.unwrapped._buffers.pool


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("kept", [0, 1, 20], ids=["none", "last", "all"])
@pytest.mark.parametrize("kind", SPACES)
def test_kept_observations_are_those_of_sync(kind: str, kept: int, mode: str) -> None:
    with make(kind, autoreset_mode=mode) as envs, make(kind, "sync", autoreset_mode=mode) as sync:
        assert_identical(envs.reset(), sync.reset())
        pairs: list[Any] = []
        for _ in range(2 * POOL_SIZE):
            pairs.append((envs.step(ACTIONS), sync.step(ACTIONS)))
            del pairs[: -kept or None]
            for result, expected in pairs:
                assert_identical(result, expected)
        assert (pool_of(envs) is not None) == (system.MEMFD and kind in ("array", "nested"))
    for result, expected in pairs:  # also after the end
        assert_identical(result, expected)


@pytest.mark.parametrize(
    ("kibibytes", "slots"), [(0, 0), (1023, 0), (1024, POOL_SIZE), (75 << 10, 3), (1 << 20, 2)]
)
def test_the_number_of_batches(kibibytes: int, slots: int) -> None:
    # With 8 of 75 MiB, a vector env could not be made where files or address spaces are limited.
    layout = Layout.compile(spaces.Box(0, 255, (1024,), np.uint8), n=kibibytes)
    assert pool_slots(layout) == slots


def test_threads_use_pools_while_another_forks() -> None:
    # Without the interpreter's lock, the hook failed: "Set changed size during iteration".
    layout = Layout.compile(SPACES["small"], n=2, slots=3)
    mistakes: list[int] = []

    def use_pools() -> None:
        for _ in range(30):
            pool, kept = BatchPool(layout, Arena(layout.size)), dict[int, Any]()
            while pool.choose():  # until forks have retired all batches
                mistakes.extend({pool.number}.intersection(kept))
                kept[pool.number] = pool.take()
                if len(kept) > 2:
                    kept.pop(next(iter(kept)))

    threads = [threading.Thread(target=use_pools) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        batch_pool._retire_all()
    assert not mistakes


@pytest.mark.skipif(not system.MEMFD, reason="pools need anonymous files")
class TestPool:
    def test_a_batch_is_filled_again_once_nothing_refers_to_it(self) -> None:
        with make() as envs:
            envs.reset()
            numbers = []
            for _ in range(6):
                last = envs.step(ACTIONS)[0]
                numbers.append(pool_of(envs).number)
            assert numbers == [1, 2, 1, 2, 1, 2]
            uses = [last[2], last.reshape(-1)[5:], memoryview(last), last.T[::2], [last]]
            expected = [np.array(use) for use in uses]
            del last
            while uses:
                for _ in range(3):
                    envs.step(ACTIONS)
                    assert pool_of(envs).number != 2
                for use, value in zip(uses, expected, strict=True):
                    assert (np.array(use) == value).all()
                uses.pop()
                expected.pop()
            assert {envs.step(ACTIONS) and pool_of(envs).number for _ in range(3)} == {1}
            kept = [envs.step(ACTIONS)[0] for _ in range(POOL_SIZE + 3)]
            assert pool_of(envs).number == 0  # the last batches are copies
            assert not any(np.shares_memory(a, b) for a in kept for b in kept if a is not b)

    @pytest.mark.parametrize("kind", ["array", "nested"])
    def test_garbage_collection_is_not_needed(self, kind: str) -> None:
        with make(kind) as envs:
            envs.reset()
            gc.disable()
            try:
                numbers = [envs.step(ACTIONS) and pool_of(envs).number for _ in range(20)]
            finally:
                gc.enable()
            assert set(numbers) == {1}

    def test_writing_into_observations_changes_no_later_result(self) -> None:
        with make() as envs, make(backend="sync") as sync:
            envs.reset()
            sync.reset()
            observations, expected = envs.step(ACTIONS)[0], sync.step(ACTIONS)[0]
            observations[:] = 7
            mask = np.arange(N) % 2 == 0
            masked = envs.reset(options={"reset_mask": mask})
            assert_identical(masked, sync.reset(options={"reset_mask": mask}))
            assert (masked[0][~mask] == expected[~mask]).all()
            assert (observations == 7).all()
            envs.step(ACTIONS)[0][:] = 7
            sync.step(ACTIONS)
            loaded = envs.load_state(envs.save_state())
            assert_identical(loaded, sync.load_state(sync.save_state()))

    @pytest.mark.skipif(not system.FORK, reason="needs fork")
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_forked_process_keeps_the_observations_that_it_inherits(self) -> None:
        with make() as envs:
            envs.reset()
            observations = envs.step(ACTIONS)[0]
            expected = observations.copy()
            wake, woken = os.pipe()
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    os.close(woken)
                    os.read(wake, 1)  # until the steps below are done
                    code = 0 if (observations == expected).all() else 2
                finally:
                    os._exit(code)
            os.close(wake)
            del observations
            for _ in range(2 * POOL_SIZE):
                envs.step(ACTIONS)
                assert pool_of(envs).number == 2
            os.close(woken)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    @pytest.mark.parametrize(
        "options",
        [
            {"copy": False},
            {"shared_memory": False},
            {"on_worker_death": "restart"},
            {"on_step_timeout": "restart", "step_timeout": 60.0},
        ],
        ids=str,
    )
    def test_others_have_no_pool(self, options: dict[str, Any]) -> None:
        with make(**options) as envs, make(backend="sync") as sync:
            assert_identical(envs.reset(), sync.reset())
            assert_identical(envs.step(ACTIONS), sync.step(ACTIONS))
            assert pool_of(envs) is None

    @pytest.mark.parametrize(("leaves", "least"), [(1, 1 << 19), (2, 1 << 19), (64, 1 << 20)])
    def test_a_pool_begins_at_its_least_size(self, leaves: int, least: int) -> None:
        for size, has_pool in ((least, True), (least - 1, False)):
            parts = [
                spaces.Box(0, 255, (part,), np.uint8)
                for part in (size - leaves + 1, *[1] * (leaves - 1))
            ]

            class Flat(Camera):
                def __init__(self, number: int, parts: Any = parts) -> None:
                    super().__init__(number)
                    self.observation_space = parts[0] if leaves == 1 else spaces.Tuple(parts)

            factories = [lambda: Flat(0), lambda: Flat(1)]
            with make_vec(factories, backend="async", vector_kwargs={"num_workers": 2}) as envs:
                envs.reset()
                before = envs.step(ACTIONS[:2])[0]
                copied = copy.deepcopy(before)
                envs.step(ACTIONS[:2])
                assert_identical(before, copied)
                assert (pool_of(envs) is not None) == has_pool
