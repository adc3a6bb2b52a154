"""What docs/features.md promises in each cell of its table, as functions that try it.

The table has a row for each feature and a column for each way to use one. `FEATURES` has a
function per row, which is called with a `Column` and an empty folder. The function makes a vector
env with `column.make`, steps it with `column.play` or `column.step`, and asserts that the feature
did what it is for. The outcome is the cell:

    the function returns            yes
    it raises `NoEffect`            no effect
    it raises `DoesNotMeet`         —
    it raises anything else         refused (N): line N below the table has the error and its text

A new feature is one line in the table, one function here, and one line below the table for each
sentence that refuses it. `tests/docs/test_features.py` tries all columns but Ray's, which
`tests/vector/backends/ray/test_features.py` tries.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest

from tests.envs import Ledger
from tests.envs.agents import Crowd
from tests.envs.masked import Always
from tests.vector.bounds import hurry_by
from vecspaces import Env, SharedArray, collect, evaluate, make_vec, sample_actions, spaces
from vecspaces.aio import Pool
from vecspaces.errors import (
    ResetNeededError,
    SlowEnvironmentWarning,
    StepTimeoutError,
    WorkerDiedError,
)
from vecspaces.make import PROCESS_ARGUMENTS
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, infos_as_list
from vecspaces.vector.backends import slowness
from vecspaces.vector.utils import batch_space, iterate
from vecspaces.wrappers import RecordEpisodeStatistics

Rows = npt.NDArray[np.int64]
#: Some environments, by their rows, and what a step or reset of them returned.
Part = tuple[Rows, tuple[Any, ...]]


#: Rows after which a worker cannot be used again, or that are given another one.
FAULTY = (
    '`on_step_timeout="restart"`',
    "`slow_warning`",
    "`StepTimeoutError.stack`",
    "`WorkerDiedError.stack`",
    "`recycle_after`",
)


class NoEffect(Exception):  # noqa: N818  # no error: an outcome
    """The feature is accepted and does nothing."""


class DoesNotMeet(Exception):  # noqa: N818  # no error: an outcome
    """The feature does not have what the column uses."""


# ---------------------------------------------------------------------- columns


class Column:
    """A vector env of the backend, stepped as a whole."""

    backend = "async"
    #: Where no other process can notice what an environment does.
    is_in_process = False

    def make(self, env: Any, num_envs: int = 2, **arguments: Any) -> Any:
        """Make a vector env, as `make_vec` does."""
        return make_vec(env, num_envs, backend=self.backend, num_workers=2, **arguments)

    def units(self, envs: Any) -> list[Rows]:
        """Return the rows that are stepped together."""
        return [np.arange(envs.num_envs)]

    def step(self, envs: Any, given: list[tuple[Rows, Any]]) -> list[Part]:
        """Step all environments."""
        return [(rows, envs.step(actions)) for rows, actions in given]

    def play(
        self, envs: Any, act: Callable[[Any, Rows], Any], *, steps: int = 12, seed: int = 3
    ) -> list[list[Any]]:
        """Reset and step; return what each row showed at each time.

        `act(infos, rows)` returns the actions of some rows, for the infos that they had last.
        """
        observations, infos = envs.reset(seed=seed)
        shown = [self.by_row(envs, [(np.arange(envs.num_envs), (observations, infos))])]
        latest = [(rows, pick(infos, rows)) for rows in self.units(envs)]
        for _ in range(steps):
            results = self.step(envs, [(rows, act(infos, rows)) for rows, infos in latest])
            shown.append(self.by_row(envs, results))
            latest = [(rows, copy.deepcopy(result[-1])) for rows, result in results]
        return shown

    def by_row(self, envs: Any, parts: list[Part]) -> list[Any]:
        found = {}
        for rows, (observations, *arrays, infos) in parts:
            batch = iterate(batch_space(envs.single_observation_space, len(rows)), observations)
            singles = infos_as_list(infos, len(rows))
            for place, (row, seen) in enumerate(zip(rows.tolist(), batch, strict=True)):
                values = [seen, *(array[place] for array in arrays), singles[place]]
                found[row] = copy.deepcopy(values)
        return [found[row] for row in range(envs.num_envs)]


class Sync(Column):
    """All environments in this process."""

    backend = "sync"
    is_in_process = True


class Async(Column):
    """Two worker processes."""


class Ray(Column):
    """Two actors."""

    backend = "ray"


class VectorMember(Column):
    """Half of the environments are one vector env each, in a worker of its own."""

    def make(self, env: Any, num_envs: int = 2, **arguments: Any) -> Any:
        known = inspect.signature(AsyncVectorEnv).parameters
        outer = {name: value for name, value in arguments.items() if name in known}
        own = {name: arguments[name] for name in arguments if name not in PROCESS_ARGUMENTS}
        member = partial(make_vec, env, num_envs // 2, backend="sync", **own)
        return AsyncVectorEnv([member, member], **{"num_workers": 2, **outer})


class Wrappers(Column):
    """A wrapper around the vector env."""

    def make(self, env: Any, num_envs: int = 2, **arguments: Any) -> Any:
        return RecordEpisodeStatistics(super().make(env, num_envs, **arguments))

    def by_row(self, envs: Any, parts: list[Part]) -> list[Any]:
        shown = super().by_row(envs, parts)
        for row in shown:
            row[-1].pop("episode", None)
        return shown


class EnvIds(Column):
    """`step(actions, env_ids=...)` of one environment after the other, the last one first."""

    def units(self, envs: Any) -> list[Rows]:
        ends = np.cumsum(envs.rows_per_env)
        return np.split(np.arange(envs.num_envs), ends[:-1])[::-1]

    def step(self, envs: Any, given: list[tuple[Rows, Any]]) -> list[Part]:
        return [(rows, envs.step(actions, env_ids=rows)) for rows, actions in given]


class SendRecv(EnvIds):
    """Each environment is sent its actions, and the one that is ready first is received first."""

    def step(self, envs: Any, given: list[tuple[Rows, Any]]) -> list[Part]:
        for rows, actions in given:
            envs.send(actions, rows)
        received = [envs.recv(len(rows)) for rows, _ in given]
        return [(each.env_ids, each[:5]) for each in received]


class Ring(Column):
    """Views of a ring of observations, which are a rollout after two steps."""

    def make(self, env: Any, num_envs: int = 2, **arguments: Any) -> Any:
        return super().make(env, num_envs, buffers=3, copy=False, **arguments)

    def play(self, envs: Any, *arguments: Any, **options: Any) -> list[list[Any]]:
        self._rewards: list[Any] = []
        return super().play(envs, *arguments, **options)

    def step(self, envs: Any, given: list[tuple[Rows, Any]]) -> list[Part]:
        parts = copy.deepcopy(super().step(envs, given))
        self._rewards.append(parts[0][1][1])
        if len(self._rewards) == 2:
            np.testing.assert_array_equal(envs.rollout_view().rewards, self._rewards)
            self._rewards.clear()
        return parts


COLUMNS: dict[str, Column] = {
    "Sync": Sync(),
    "Async": Async(),
    "Ray": Ray(),
    "vector member": VectorMember(),
    "wrappers": Wrappers(),
    "`env_ids`": EnvIds(),
    "send/recv": SendRecv(),
    "ring": Ring(),
}


def pick(infos: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """Return the infos of some rows."""
    return {
        key: pick(value, rows) if isinstance(value, Mapping) else value[rows].copy()
        for key, value in infos.items()
    }


# ---------------------------------------------------------------------- features

#: By the name of the row in the table.
FEATURES: dict[str, Callable[[Column, Path], None]] = {}
Try = Callable[[Column, Path], None]


def feature(name: str) -> Callable[[Try], Try]:
    """Register what tries one row; it is called with the column and an empty folder."""

    def register(function: Try) -> Try:
        FEATURES[name] = function
        return function

    return register


def outcome(name: str, column: Column, folder: Path) -> tuple[str, Exception | None]:
    """Try a cell; return what the table must say, and the error that refuses it."""
    try:
        FEATURES[name](column, folder)
    except NoEffect:
        return "no effect", None
    except DoesNotMeet:
        return "—", None
    except AssertionError:
        raise
    except Exception as error:
        return "refused", error
    return "yes", None


class Sleepy(Env[Any, Any]):
    """Sleeps in the step that finds the file `order`, which it renames to `asleep`.

    It wakes up when there is the file `noticed`. Without `seconds`, it crashes its process instead.
    """

    observation_space = spaces.Box(0, 99, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, folder: Path, seconds: float | None) -> None:
        self.folder, self.seconds, self.time = folder, seconds, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.array([0.0]), {}

    def step(self, action: Any) -> Any:
        try:
            (self.folder / "order").rename(self.folder / "asleep")
        except FileNotFoundError:
            pass
        else:
            if self.seconds is None:
                os.kill(os.getpid(), signal.SIGSEGV)
            give_up = time.monotonic() + (self.seconds or 0.0)
            while not (self.folder / "noticed").exists() and time.monotonic() < give_up:
                time.sleep(0.01)
        self.time += 1
        return np.array([float(self.time)]), 1.0, False, False, {}


def zeros(infos: Any, rows: Rows) -> Any:
    return np.zeros(len(rows), np.int64)


def numbered(infos: Any, rows: Rows) -> Any:
    """Actions of a Discrete(3) that differ from row to row."""
    return rows % 3


@feature('`agents="rows"`')
def _agents_as_rows(column: Column, folder: Path) -> None:
    arguments: Any = {"agents": "rows"}
    factory = partial(Crowd, masks="infos")
    with column.make(factory, **arguments) as envs:
        assert envs.num_envs == 6
        shown = column.play(envs, numbered)
    with COLUMNS["Sync"].make(factory, **arguments) as envs:
        np.testing.assert_equal(shown, Column().play(envs, numbered))
    gone = [row for rows in shown for row in rows if not row[-1]["alive"]]
    assert any(not row[0].any() for row in gone) and any(row[0].any() for row in gone)


@feature('`agents="dict"`')
def _agents_as_dicts(column: Column, folder: Path) -> None:
    def act(infos: Any, rows: Rows) -> Any:
        return dict.fromkeys(("blue_0", "red_1", "blue_2"), rows % 3)

    factory = partial(Crowd, masks="infos", different=True)
    with column.make(factory, agents="dict") as envs:
        shown = column.play(envs, act)
    with COLUMNS["Sync"].make(factory, agents="dict") as envs:
        np.testing.assert_equal(shown, Column().play(envs, act))
    assert not all(row[-1]["agents"]["alive"]["red_1"] for rows in shown for row in rows)


@feature("`state=True`")
def _state(column: Column, folder: Path) -> None:
    with column.make(Crowd, agents="rows", state=True) as envs:
        shown = column.play(envs, zeros)
    for rows in shown:
        for first in (0, 3):  # time, and the number of agents that are there
            states = [row[-1]["state"].tolist() for row in rows[first : first + 3]]
            alive = sum(row[-1]["alive"] for row in rows[first : first + 3])
            assert states == [states[0]] * 3 and states[0][1] == alive


@feature("`agent_names`, `groups`, `rows_of_agent`")
def _names(column: Column, folder: Path) -> None:
    with column.make(Crowd, agents="rows") as envs:
        assert envs.agent_names == ["blue_0", "red_1", "blue_2"] * 2
        assert envs.rows_of_agent("red_1").tolist() == [1, 4]
        assert envs.groups["blue"].tolist() == [0, 2, 3, 5]
        for rows in column.play(envs, zeros, steps=2):
            numbers = [row[0][0] for row in rows]
            for name, numbers_of_it in (("red_1", {0, 1}), ("blue_2", {0, 2})):
                assert {numbers[row] for row in envs.rows_of_agent(name)} <= numbers_of_it


@feature("`sample_actions` within `action_mask`")
def _samples(column: Column, folder: Path) -> None:
    rng = np.random.default_rng(0)
    # Each raises for an action that is not allowed, and allows none at the end of its episode.
    with column.make(Always, 4, autoreset_mode="SameStep") as envs:
        column.play(
            envs,
            lambda infos, rows: sample_actions(envs.single_action_space, len(rows), infos, rng=rng),
        )


def _wrapped(env_fn: Any) -> Any:
    return RecordEpisodeStatistics(SyncVectorEnv([env_fn]))


def _played(column: Column, env_fn: Any, arguments: dict[str, Any]) -> Any:
    """Return the factory that `evaluate` and `collect` get for a column; complete `arguments`."""
    if isinstance(column, EnvIds):
        raise DoesNotMeet("evaluate and collect step their vector env themselves")
    if isinstance(column, Ring):
        arguments["vector_kwargs"] = {"buffers": 3, "copy": False}
    elif isinstance(column, VectorMember):
        return partial(SyncVectorEnv, [env_fn, env_fn])
    elif isinstance(column, Wrappers):
        return partial(_wrapped, env_fn)
    return env_fn


@feature("`evaluate` of a policy with `infos`")
def _evaluates(column: Column, folder: Path) -> None:
    def first_allowed(observations: Any, infos: Any) -> Any:
        return np.argmax(infos["action_mask"], axis=1)

    arguments: Any = {"episodes": 6, "seed": 1, "num_envs": 3}
    factory = _played(column, Always, arguments)
    result = evaluate(first_allowed, factory, backend=column.backend, num_workers=2, **arguments)
    expected = evaluate(first_allowed, Always, backend="sync", episodes=6, seed=1)
    assert result.returns.tolist() == expected.returns.tolist()


# ---------------------------------------------------------------------- chunks


class Walk(Env[Any, Any]):
    """Adds its actions up, and ends after four to six steps."""

    observation_space = spaces.Box(-99, 99, (2,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float64)
    info_space = spaces.Dict(time=spaces.Box(0, 99, (), np.int64))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.place, self.length = 0, 0.0, int(self.np_random.integers(4, 7))
        return np.array([self.time, self.place]), {"time": 0}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.place += float(action[0])
        observation, info = np.array([self.time, self.place]), {"time": self.time}
        return observation, self.place, self.time == self.length, False, info


@feature("`step_chunk`")
def _chunks(column: Column, folder: Path) -> None:
    actions = np.linspace(-1, 1, 30).reshape(2, 15, 1)
    bare = [Walk(), Walk()]
    with column.make(Walk, autoreset_mode="Disabled") as envs:
        envs.reset(seed=3)
        for row, env in enumerate(bare):
            env.reset(seed=3 + row)
        if isinstance(column, SendRecv):
            envs.send(actions[:1, 0], [0])
            envs.step_chunk(actions[1:], env_ids=[1])
        for first, last in ((0, 3), (3, 15)):
            for rows in column.units(envs):
                ids = rows if isinstance(column, EnvIds) else None
                chunk = envs.step_chunk(actions[rows, first:last], "all", env_ids=ids)
                for place, row in enumerate(rows):
                    env, rewards = bare[row], []
                    while len(rewards) < last - first:
                        result = env.step(actions[row, first + len(rewards)])
                        rewards.append(result[1])
                        if result[2]:
                            break
                    count = len(rewards)
                    assert chunk.steps[place] == count and chunk.terminations[place] == result[2]
                    assert chunk.observations[place].tolist() == result[0].tolist()
                    assert chunk.rewards[place].tolist() == rewards + [0.0] * (last - first - count)
                    times = chunk.infos["time"][place]
                    assert times[:count].tolist() == list(range(env.time - count + 1, env.time + 1))
        if isinstance(column, Ring):
            envs.rollout_view()


# ---------------------------------------------------------------------- hangs and crashes


@feature("arguments of processes, such as `num_workers`")
def _arguments_of_processes(column: Column, folder: Path) -> None:
    arguments: Any = {"on_worker_death": "restart", "start_timeout": 100.0, "worker_threads": 2}
    with column.make(Always, 4, **arguments) as envs:
        column.play(envs, lambda infos, rows: infos["action_mask"].argmax(axis=1), steps=2)
        if getattr(envs, "num_workers", None) is None:
            raise NoEffect
        assert envs.num_workers == 2


def _give_order(column: Column, envs: Any, folder: Path) -> list[Any]:
    """Step, and step again, when one environment sleeps; return what each row showed."""
    column.play(envs, zeros, steps=1)
    (folder / "order").touch()
    parts = column.step(envs, [(rows, zeros(None, rows)) for rows in column.units(envs)])
    assert (folder / "asleep").exists()
    return column.by_row(envs, parts)


@contextlib.contextmanager
def _bounded(column: Column, folder: Path, **arguments: Any) -> Iterator[Any]:
    """Make a vector env, one environment of which overruns the bound of a step when it sleeps."""
    sleeps, bound = (0.1, 0.05) if column.is_in_process else (1000.0, 60.0)
    with (
        pytest.MonkeyPatch.context() as patch,
        column.make(partial(Sleepy, folder, sleeps), step_timeout=bound, **arguments) as envs,
    ):
        hurry_by(patch)((folder / "asleep").exists)
        yield envs


@feature('`on_step_timeout="restart"`')
def _restarts(column: Column, folder: Path) -> None:
    with _bounded(column, folder, on_step_timeout="restart") as envs:
        shown = _give_order(column, envs, folder)
        lost = [row for row in shown if row[-1].get("worker_restarted")]
        if not lost:
            raise NoEffect
        assert len(lost) == 1 and lost[0][1] == 0 and lost[0][3]


@feature("`slow_warning`")
def _warns(column: Column, folder: Path) -> None:
    looks, asleep, noticed = count(), folder / "asleep", folder / "noticed"

    def note(message: Any, category: type[Warning], *more: Any) -> None:
        if category is SlowEnvironmentWarning:
            noticed.touch()

    def now() -> float:
        """The time, for which each look at what sleeps is a thousand seconds after the last one."""
        return time.monotonic() + (1000.0 * next(looks) if asleep.exists() else 0.0)

    # The environment waits until it was noticed: a caller that comes late sees no wait.
    sleeps, bound = (0.2, 0.1) if column.is_in_process else (60.0, 60.0)
    with (
        mock.patch.object(slowness, "time", SimpleNamespace(monotonic=now)),
        mock.patch.object(slowness, "_LOOKS", 1000),
        column.make(partial(Sleepy, folder, sleeps), slow_warning=bound) as envs,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        warnings.showwarning = note  # type: ignore[assignment]
        _give_order(column, envs, folder)
        if not noticed.exists():
            raise NoEffect


@feature("`StepTimeoutError.stack`")
def _stack_of_a_hang(column: Column, folder: Path) -> None:
    with _bounded(column, folder) as envs:
        _check_stack(column, envs, folder, StepTimeoutError)


@feature("`WorkerDiedError.stack`")
def _stack_of_a_crash(column: Column, folder: Path) -> None:
    with column.make(partial(Sleepy, folder, 0.0 if column.is_in_process else None)) as envs:
        _check_stack(column, envs, folder, WorkerDiedError)


def _check_stack(column: Column, envs: Any, folder: Path, kind: Any) -> None:
    try:
        _give_order(column, envs, folder)
    except kind as error:
        envs.close(terminate=True)  # which does not wait for what sleeps
        if error.stack is None:
            raise NoEffect from None
        assert "in step" in error.stack
    else:
        raise NoEffect


# ---------------------------------------------------------------------- long runs


@feature("`replace_envs`")
def _replaces(column: Column, folder: Path) -> None:
    other: Any = partial(Ledger, 7)
    if isinstance(column, VectorMember):
        other = partial(make_vec, other, 1, backend="sync")
    with column.make(Ledger) as envs:
        column.play(envs, zeros, steps=2)
        envs.replace_envs([1], [other])
        with pytest.raises(ResetNeededError, match="built environment 1 anew"):
            column.step(envs, [(rows, zeros(None, rows)) for rows in column.units(envs)])
        envs.reset()  # in a stream, environment 0 was sent an action
        numbers = [[row[0][0] for row in rows] for rows in column.play(envs, zeros, steps=2)]
    assert numbers == [[0, 7]] * 3


class Reader(Ledger):
    """Observes an entry of a table as its number."""

    def __init__(self, table: SharedArray) -> None:
        super().__init__(int(table.array[3]))
        self.table = table

    def may_write(self) -> bool:
        return self.table.array.flags.writeable


@feature("`SharedArray`")
def _shares(column: Column, folder: Path) -> None:
    table = SharedArray(np.arange(5.0))
    with column.make(partial(Reader, table)) as envs:
        assert envs.call("may_write") == (False, False)
        numbers = [[row[0][0] for row in rows] for rows in column.play(envs, zeros, steps=2)]
    assert numbers == [[3, 3]] * 3


def _recycle(limit: str, column: Column, folder: Path) -> None:
    """Play three episodes of each environment, each in a worker of its own."""
    with column.make(partial(Ledger, length=2), **{limit: 1}) as envs:
        before = envs.call(_process)
        shown = column.play(envs, zeros, steps=8)
        after = envs.call(_process)
    with COLUMNS["Sync"].make(partial(Ledger, length=2)) as envs:
        expected = Column().play(envs, zeros, steps=8)
    times = [[[row[0][2] for row in rows] for rows in one] for one in (shown, expected)]
    assert times[0] == times[1]
    if before == after:
        raise NoEffect
    assert not set(before) & set(after)


def _process(env: Any) -> int:
    return os.getpid()


@feature("`concurrent_envs`")
def _concurrent_envs(column: Column, folder: Path) -> None:
    with column.make(partial(Ledger, talks=False), 4, concurrent_envs=2) as envs:
        shown = column.play(envs, numbered)
        threads = envs.call(_thread)
    assert {name.removesuffix("0").removesuffix("1") for name in threads} == {"vecspaces-env-"}
    with COLUMNS["Sync"].make(partial(Ledger, talks=False), 4) as envs:
        np.testing.assert_equal(shown, Column().play(envs, numbered))


def _thread(env: Any) -> str:
    return threading.current_thread().name


@feature("`recv(at_least=)`")
def _at_least(column: Column, folder: Path) -> None:
    with column.make(Ledger, 4) as envs:
        envs.reset(seed=1)
        envs.recv()
        envs.send(np.ones(4, int))
        rows: list[int] = []
        give_up = time.monotonic() + 20
        while len(rows) < 4 and time.monotonic() < give_up:
            rows += envs.recv(4, 0.0, at_least=0).env_ids.tolist()
        assert sorted(rows) == [0, 1, 2, 3]
        assert len(envs.recv(timeout=0.0, at_least=0).env_ids) == 0


for _limit in ("recycle_after", "recycle_memory"):
    feature(f"`{_limit}`")(partial(_recycle, _limit))


@feature("`evaluate` of `tasks`")
def _evaluates_tasks(column: Column, folder: Path) -> None:
    def stand(observations: Any) -> Any:
        return np.zeros(len(observations), np.int64)

    arguments: Any = {"episodes": 6, "seed": 1, "num_envs": 3, "num_workers": 2}
    lengths = {"long": 3, "short": 2}
    tasks = {
        name: _played(column, partial(Ledger, length=length), arguments)
        for name, length in lengths.items()
    }
    results = evaluate(stand, tasks=tasks, backend=column.backend, **arguments)
    assert [set(result.lengths.tolist()) for result in results.values()] == [{3}, {2}]


@feature("`collect`")
def _collects(column: Column, folder: Path) -> None:
    arguments: Any = {"episodes": 6, "seed": 1, "num_envs": 3, "num_workers": 2, "ordered": True}
    factory = _played(column, partial(Ledger, length=3), arguments)
    for number, episode in enumerate(
        collect("random", factory, backend=column.backend, **arguments)
    ):
        assert episode.number == number
        assert episode.observations[:, 2].tolist() == [0, 1, 2, 3]
        assert episode.observations[1:, 3].tolist() == episode.actions.tolist()


# ---------------------------------------------------------------------- environments that wait


@feature("`aio.Pool`")
def _lends(column: Column, folder: Path) -> None:
    arguments: Any = {"backend": column.backend, "num_workers": 2}
    factory: Any = partial(Ledger, length=3)
    if isinstance(column, EnvIds | Wrappers):
        raise DoesNotMeet("a pool steps its vector env itself")
    if isinstance(column, Ring):
        arguments["buffers"] = 3
    elif isinstance(column, VectorMember):
        factory = partial(SyncVectorEnv, [factory, factory], autoreset_mode="Disabled")

    async def converse(pool: Pool) -> list[Any]:
        async with pool.acquire() as env:
            shown = [(await env.reset())[0], *[(await env.step(2))[0] for _ in range(3)]]
            return [[observation[2], observation[3]] for observation in shown]

    async def main() -> None:
        async with Pool(factory, 2, **arguments) as pool:
            shown = await asyncio.gather(*(converse(pool) for _ in range(4)))
        assert shown == [[[0, -1], [1, 2], [2, 2], [3, 2]]] * 4

    asyncio.run(main())
