"""Random calls of a vector env, compared after each with a model of lists, to the last bit."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.compare import assert_identical
from tests.contract import ALL_SPACES
from tests.crosses import FASTEST, diagonal
from tests.envs import Sampler, ledger_vector, ledgers
from tests.vector.model import Model, Row, assert_shows
from tests.vector.wrapped import WRAPPERS
from vecspaces.adapters.gymnasium import from_gymnasium
from vecspaces.errors import (
    AlreadyPendingCallError,
    InvalidActionError,
    NoAsyncCallError,
    ResetNeededError,
    StepTimeoutError,
)
from vecspaces.spaces import Space
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, ThreadVectorEnv
from vecspaces.vector.group import slot_writer
from vecspaces.vector.utils import batch_space, concatenate, create_empty_array, iterate

COUNT = 4
ROWS = range(COUNT)
SEEDS = st.one_of(
    st.none(),
    st.integers(0, 99),
    st.lists(st.none() | st.integers(0, 9), min_size=COUNT, max_size=COUNT),
    st.integers(0, 9).map(np.random.SeedSequence),
)
OPTIONS = st.none() | st.builds(dict, time=st.integers(0, 1))
SOME = st.permutations(ROWS).flatmap(lambda rows: st.integers(0, COUNT).map(lambda n: rows[:n]))
# Those of which observations have no fixed size, so that there is no rollout.
KINDS = ["ledger", "ledger", "vector", "vector", "Box", "Dict", "Graph", "all"]


def seeds_of(seed: Any, count: int) -> list[Any]:
    """The seed of each of so many environments."""
    if isinstance(seed, np.random.SeedSequence):
        return [int(child.generate_state(1)[0]) & 0x7FFFFFFF for child in seed.spawn(count)]
    return [seed + row for row in range(count)] if isinstance(seed, int) else seed or [None] * count


def history(env: Any) -> Any:
    """What happened to a ledger."""
    options = [option or None for option in env.options]
    return env.number, env.episode, env.time, env.length, env.seeds, options, env.np_random_seed


def fail_in_the_next_step(env: Any) -> None:
    """Let an environment raise in its next step."""

    def step(action: Any) -> Any:
        raise FloatingPointError("as it was told to")

    env.unwrapped.step = step


class Rows(RuleBasedStateMachine):
    """Makes the same calls of a vector env and of the model.

    A derived class chooses what is made: `backend`, `mode`, and which wrapper stands `around` it.
    """

    backend: Any = SyncVectorEnv
    mode = "NextStep"
    around = "none"

    def __init__(self) -> None:
        super().__init__()
        self.envs: Any = None

    @initialize(kind=st.sampled_from(KINDS), copies=st.booleans(), buffers=st.integers(1, 3))
    def make(self, kind: str, copies: bool, buffers: int) -> None:
        self.wrapper = WRAPPERS[self.around]
        self.is_plain = self.around in ("none", "plain")
        self.kind = kind if self.is_plain else "ledger"
        self.is_ledger, self.copies = self.kind in ("ledger", "vector"), copies
        # RecordEpisodeStatistics and talking ledgers use the same key.
        env_fns = ledgers(COUNT, talks=self.is_plain)
        self.env_fns = list(env_fns)  # of each row
        if not self.is_ledger:
            env_fns = [partial(Sampler, ALL_SPACES[kind], ALL_SPACES[kind])] * COUNT
        self.inner = [env_fn() for env_fn in env_fns]
        self.model = Model([Row(env, **self.wrapper.row) for env in self.inner], self.mode, buffers)
        if self.kind == "vector":
            env_fns[1:3] = [partial(ledger_vector, 1, 2, AutoresetMode(self.mode))]
        envs = self.backend(env_fns, autoreset_mode=self.mode, copy=copies, buffers=buffers)
        self.envs = self.wrapper.around(envs)
        spaces = self.envs.single_observation_space, self.envs.single_action_space
        self.space, self.action_space = (
            space if isinstance(space, Space) else from_gymnasium(space) for space in spaces
        )
        self.kept: list[Any] = []
        self.reset(0, None, False)
        if copies:  # what autoresets get is seen late: it is there from the beginning
            self.reset_with_options_per_env([0, 1, 1, None])

    def teardown(self) -> None:
        if self.envs is not None:
            self.envs.close()

    # ------------------------------------------------------------------ what is compared

    def compare(self, result: Any, shown: list[Any]) -> None:
        space = batch_space(self.space, len(shown))
        if self.wrapper.counts and len(result) > 2:
            result = (*result[:4], self.without_episodes(result[4], shown))
        assert_shows(iterate(space, result[0]), result, shown)
        if self.copies and self.is_ledger:
            self.kept = [result, copy.deepcopy(result)]

    def without_episodes(self, infos: dict[str, Any], shown: list[Any]) -> dict[str, Any]:
        """Return infos without what RecordEpisodeStatistics adds, which is checked."""
        ends = [row.ended for row in shown]
        assert ("episode" in infos) == any(ends)
        if not any(ends):
            return infos
        infos = dict(infos)
        episode = infos.pop("episode")
        assert infos.pop("_episode").tolist() == ends
        assert episode["r"].tolist() == [sum(row.rewards) * row.ended for row in shown]
        assert episode["l"].tolist() == [len(row.rewards) * row.ended for row in shown]
        return infos

    def actions(self, seed: int, count: int = COUNT) -> tuple[list[Any], Any]:
        """Actions, one by one and as a batch."""
        space = self.action_space
        space.seed(seed)
        actions = [space.sample() for _ in range(count)]
        return actions, concatenate(space, actions, create_empty_array(space, count))

    def whole(self, rows: list[int]) -> list[int]:
        """With all rows of the vector env that is an environment, or none of them."""
        if self.kind == "vector" and len({1, 2}.intersection(rows)) == 1:
            return [row for row in rows if row not in (1, 2)]
        return rows

    def free(self, rows: list[int]) -> list[int]:
        """Of some rows, those that may be sent an action."""
        busy = (self.model.ready.keys() - self.model.fresh) | self.model.over | self.model.failed
        return self.whole([row for row in rows if row not in busy])

    @invariant()
    def results_that_are_copies_stay(self) -> None:
        if self.envs is not None and self.kept:
            assert_identical(*self.kept)

    @invariant()
    def environments_are_where_they_should_be(self) -> None:
        if self.envs is not None and not self.model.streams and self.is_ledger:
            assert list(self.envs.call(history)) == list(map(history, self.inner))

    # ------------------------------------------------------------------ resets and steps

    @rule(seed=SEEDS, options=OPTIONS, halves=st.booleans())
    def reset(self, seed: Any, options: Any, halves: bool) -> None:
        if self.model.failed:
            seed = 7  # without one, what is built again would draw its own noise
        seeds = seeds_of(copy.deepcopy(seed), COUNT)
        self.build_again(self.model.failed)
        if halves:
            self.envs.reset_async(seed=seed, options=options)
            with pytest.raises(AlreadyPendingCallError):
                self.envs.reset_async()
            result = self.envs.reset_wait()
        else:
            result = self.envs.reset(seed=seed, options=options)
        self.compare(result, self.model.reset(seeds, [options] * COUNT, ROWS, masked=False))

    @rule(times=st.lists(st.none() | st.integers(0, 1), min_size=COUNT, max_size=COUNT))
    def reset_with_options_per_env(self, times: list[Any]) -> None:
        if self.model.failed:
            self.reset(7, None, False)
        if self.kind == "vector":
            times[2] = times[1]
        options = [None if time is None else {"time": time} for time in times]
        result = self.envs.reset(options=copy.deepcopy(options))
        self.compare(result, self.model.reset([None] * COUNT, options, ROWS, masked=False))
        self.model.options = dict(enumerate(options))

    @rule(rows=SOME.filter(len), seed=SEEDS, options=OPTIONS, halves=st.booleans())
    def reset_some(self, rows: list[int], seed: Any, options: Any, halves: bool) -> None:
        self.receive_all()
        seeds = seeds_of(copy.deepcopy(seed), COUNT)
        mask = np.array([row in rows for row in ROWS])
        masked = {"reset_mask": mask, **(options or {})}
        if halves:
            self.envs.reset_async(seed=seed, options=masked)
            mask[:] = True  # the caller's own, to be used again at once
            result = self.envs.reset_wait()
        else:
            result = self.envs.reset(seed=seed, options=masked)
        self.compare(result, self.model.reset(seeds, [options] * COUNT, sorted(rows), masked=True))

    def reset_what_is_over(self, seed: Any) -> None:
        if self.model.over:
            with pytest.raises(ResetNeededError, match="finished an episode"):
                self.envs.step(self.actions(0)[1])
            self.reset_some(sorted(self.model.over), seed, None, False)

    @rule(seed=st.integers(0, 999), steps=st.integers(1, 5))
    def step(self, seed: int, steps: int) -> None:
        self.receive_all()
        for number in range(steps):
            self.reset_what_is_over(seed)
            actions, batch = self.actions(seed + number)
            result = self.envs.step(batch)
            self.compare(result, self.model.step_all(actions))

    @rule(seed=st.integers(0, 999), patience=st.sampled_from([None, None, 0.0, 5.0]))
    def step_in_two_halves(self, seed: int, patience: float | None) -> None:
        self.receive_all()
        self.reset_what_is_over(seed)
        actions, batch = self.actions(seed)
        self.envs.step_async(batch)
        with pytest.raises(AlreadyPendingCallError):
            self.envs.step_async(batch)
        if isinstance(batch, np.ndarray):
            batch[...] = 0  # nothing keeps the caller's array
        try:
            result = self.envs.step_wait(None if self.wrapper.defers else patience)
        except StepTimeoutError:
            with pytest.raises(NoAsyncCallError):
                self.envs.call_wait()
            result = self.envs.step_wait()
        self.compare(result, self.model.step_all(actions))

    @precondition(lambda self: self.wrapper.some)
    @rule(rows=SOME, seed=st.integers(0, 999))
    def step_some(self, rows: list[int], seed: int) -> None:
        rows = self.free(rows)
        actions, batch = self.actions(seed, len(rows))
        result = self.envs.step(batch, env_ids=rows)
        self.model.send(dict(zip(rows, actions, strict=True)))
        self.compare(result, self.model.receive(rows))

    # ------------------------------------------------------------------ send and recv

    @precondition(lambda self: self.wrapper.streams)
    @rule(rows=SOME, seed=st.integers(0, 999))
    def send(self, rows: list[int], seed: int) -> None:
        rows = self.free(rows)
        actions, batch = self.actions(seed, len(rows))
        self.envs.send(batch, rows)
        self.model.send(dict(zip(rows, actions, strict=True)))

    @precondition(lambda self: self.wrapper.streams)
    @rule(rows=SOME, seed=st.none() | st.integers(0, 99), options=OPTIONS)
    def send_reset(self, rows: list[int], seed: Any, options: Any) -> None:
        busy = (self.model.ready.keys() - self.model.fresh) | self.model.failed
        rows = self.whole([row for row in rows if row not in busy])
        self.envs.send_reset(rows, seed=seed, options=options)
        seeds = seeds_of(seed, len(rows))
        starts = {row: (row_seed, options) for row, row_seed in zip(rows, seeds, strict=True)}
        self.model.send_reset(starts)

    @precondition(lambda self: self.wrapper.streams and self.is_ledger)
    @rule(rows=SOME.filter(len), seed=st.integers(0, 999))
    def send_what_fails(self, rows: list[int], seed: int) -> None:
        """The first row raises in its step; those that are not under way can be called."""
        rows = self.free(rows)
        if not rows or self.model.due or self.model.over:
            return  # a step may be a reset
        failed = [1, 2] if self.kind == "vector" and rows[0] in (1, 2) else rows[:1]
        self.envs.call(fail_in_the_next_step, env_ids=rows[:1])
        actions, batch = self.actions(seed, len(rows))
        self.envs.send(batch, rows)
        sent = dict(zip(rows, actions, strict=True))
        self.model.send({row: sent[row] for row in rows if row not in failed})
        self.model.fail(failed)

    def build_again(self, rows: Iterable[int]) -> None:
        """Build the environments of rows that failed again."""
        for row in list(rows):
            self.inner[row] = self.model.envs[row].env = self.env_fns[row]()
            self.model.failed.discard(row)

    @precondition(lambda self: self.around == "none" and self.is_ledger)
    @rule(rows=SOME.filter(len), terminate=st.booleans(), seed=st.integers(0, 99))
    def restart(self, rows: list[int], terminate: bool, seed: int) -> None:
        """Rows of other workers keep what they have not returned; a mask resets the restarted."""
        restarted = self.envs.restart(rows, terminate=terminate).tolist()
        assert set(restarted) >= {*rows}
        for row in restarted:
            self.model.ready.pop(row, None)
        self.model.fresh.difference_update(restarted)
        self.build_again(restarted)
        self.model.send_reset({row: (seed + row, None) for row in restarted})
        self.envs.send_reset(restarted, seed=[seed + row for row in restarted])

    @precondition(lambda self: self.wrapper.streams)
    @rule(count=st.integers(1, COUNT), partly=st.booleans())
    def recv(self, count: int, partly: bool = False) -> None:
        """Which rows are ready first is not the model's to say: each comes once.

        So no precondition may look at them: a rule that needs all rows receives them first.
        """
        if not (self.model.ready or self.model.failed):
            return
        count = min(count, len(self.model.ready) + len(self.model.failed))
        waits: dict[str, Any] = {"timeout": 20}
        if partly and self.around != "all":  # which knows no `at_least`
            waits = {"timeout": 0.0, "at_least": 0}
        try:
            received = self.envs.recv(None if count == COUNT else count, **waits)
        except FloatingPointError as error:
            (row,) = error.__cause__.env_ids  # type: ignore[union-attr]
            rows = [1, 2] if self.kind == "vector" and row in (1, 2) else [row]
            assert self.model.failed.issuperset(rows)
            self.build_again(rows)
            self.send_reset(rows, 7, None)
            return
        rows = received.env_ids.tolist()
        assert received.env_ids.dtype == np.int64
        assert len(set(rows)) == len(rows)
        assert len(rows) == count or (len(rows) < count and "at_least" in waits)
        self.compare(received[:5], self.model.receive(rows))

    def receive_all(self) -> None:
        while self.model.streams:
            self.recv(COUNT)

    # ------------------------------------------------------------------ calls, rollouts, errors

    @rule(
        lengths=st.dictionaries(st.sampled_from(ROWS), st.integers(1, 6)),
        value=st.one_of(st.integers(), st.text(max_size=3), st.none()),
        rows=SOME,
        patience=st.sampled_from([None, 0.0, 5.0]),
    )
    def call(self, lengths: dict[int, int], value: Any, rows: list[int], patience: Any) -> None:
        self.receive_all()
        self.envs.set_attr("extra", value)
        assert self.envs.get_attr("extra") == (value,) * COUNT
        if self.is_ledger:
            self.envs.set_attr("length", list(lengths.values()), env_ids=list(lengths))
            for row, length in lengths.items():
                self.inner[row].length = length
            expected = tuple(row * 3 + 1 for row in rows)
            assert self.envs.call("multiply", 3, plus=1, env_ids=rows) == expected
        seeds = tuple(env.np_random_seed for env in self.inner)
        self.envs.call_async("np_random_seed")
        try:
            assert self.envs.call_wait(timeout=patience) == seeds
        except StepTimeoutError:
            assert self.envs.call_wait() == seeds
        with pytest.raises(AttributeError, match="no_such_name"):
            self.envs.call("no_such_name")

    @rule(seed=st.integers(0, 999))
    def roll_out(self, seed: int) -> None:
        if not self.is_plain or self.kind in ("Graph", "all"):
            return
        self.receive_all()
        model = self.model
        while not model.is_mixed and (model.is_rolled or len(model.taken) < model.buffers - 1):
            self.step(seed, 1)
        if not model.has_rollout:
            with pytest.raises(ValueError, match="rollout_view"):
                self.envs.rollout_view()
            return
        observations, rewards, *flags, _ = self.envs.rollout_view()
        model.is_rolled = True
        times = batch_space(self.envs.observation_space, len(model.seen))
        for batch, rows in zip(iterate(times, observations), model.seen, strict=True):
            assert_identical(list(iterate(self.envs.observation_space, batch)), rows)
        assert rewards.tolist() == [[row.reward for row in rows] for rows in model.taken]
        assert flags[0].tolist() == [[row.terminated for row in rows] for rows in model.taken]
        assert flags[1].tolist() == [[row.truncated for row in rows] for rows in model.taken]

    @rule(actions=st.sampled_from([None, (), np.zeros((3, 7)), {"other": 1}, "actions"]))
    def call_what_is_refused(self, actions: Any) -> None:
        envs, model = self.envs, self.model
        batch = self.actions(0)[1]
        masked = {"reset_mask": np.array([True, False, False, False])}
        calls: list[tuple[Any, Any]] = []
        if model.streams:
            pending = (AlreadyPendingCallError, ResetNeededError)
            calls += [(pending, lambda: envs.step(batch)), (pending, lambda: envs.send(batch))]
            calls += [(pending, lambda: envs.reset(options=masked))]
            calls += [(AlreadyPendingCallError, envs.rollout_view)] if self.is_plain else []
        else:
            calls += [(NoAsyncCallError, wait) for wait in (envs.step_wait, envs.reset_wait)]
            calls += [(NoAsyncCallError, envs.call_wait)]
            if model.over:
                calls += [(ResetNeededError, lambda: envs.step(batch))]
            elif self.is_plain:
                calls += [(InvalidActionError, lambda: envs.step(actions))]
        if self.wrapper.streams:
            over = self.whole(sorted(model.over - (model.ready.keys() - model.fresh)))
            if over:
                some = self.actions(0, len(over))[1]
                calls += [(ResetNeededError, lambda: envs.send(some, over))]
            if not (model.ready or model.failed):
                calls += [(NoAsyncCallError, lambda: envs.recv(1))]
        for expected, call in calls:
            with pytest.raises(expected):
                call()

    # ------------------------------------------------------------------ one backend alone

    @precondition(lambda self: self.backend is SyncVectorEnv and not self.model.streams)
    @rule(way=st.sampled_from(["deepcopy", "pickle"]), seed=st.integers(0, 9))
    def go_on_with_a_copy(self, way: str, seed: int) -> None:
        """What the original does then, and its end, are nothing to the copy."""
        original = self.envs
        original.action_space.seed(seed)
        copied = (
            copy.deepcopy(original) if way == "deepcopy" else pickle.loads(pickle.dumps(original))
        )
        assert_identical(copied.action_space.sample(), original.action_space.sample())
        original.reset(seed=seed)
        if seed % 2:
            original.step(self.actions(seed)[1])
        original.close()
        self.envs = copied

    @precondition(lambda self: self.backend is not SyncVectorEnv)
    @rule(seed=st.integers(0, 999))
    def give_up_on_a_step(self, seed: int) -> None:
        """A reset after a timeout may build environments anew; what was set is set again."""
        self.receive_all()
        if self.model.over or not self.is_ledger or self.wrapper.defers:
            return
        self.envs.step_async(self.actions(seed)[1])
        with contextlib.suppress(StepTimeoutError):
            self.envs.step_wait(timeout=0.0)
        self.envs.reset(seed=seed)
        lengths = [env.length for env in self.inner]
        for name, values in {
            "length": lengths,
            "episode": [0] * COUNT,
            "seeds": [[], [], [], []],
            "options": [[], [], [], []],
        }.items():
            self.envs.set_attr(name, values)
            for env, value in zip(self.inner, copy.deepcopy(values), strict=True):
                setattr(env, name, value)
        self.reset(seed, None, False)


def machine(**attributes: Any) -> Any:
    """A machine with these attributes; from Python 3.14 on a partial would be its method."""
    members = {
        name: staticmethod(value) if name == "backend" else value
        for name, value in attributes.items()
    }
    return type("Machine", (Rows,), members)


def run(machine: Any, examples: int, steps: int = 20, shrinks: bool = True) -> None:
    # An explanation takes minutes, and what depends on time does not come again.
    phases = [Phase.reuse, Phase.generate, *([Phase.shrink] if shrinks else [])]
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps, phases=phases)
    )


MODES = [mode.value for mode in AutoresetMode]
WORKERS: dict[str, Any] = {
    "1": partial(AsyncVectorEnv, num_workers=1),
    "2, restarted": partial(AsyncVectorEnv, num_workers=2, on_worker_death="restart"),
    "3, over pipes": partial(AsyncVectorEnv, num_workers=3, shared_memory=False),
    "3": partial(AsyncVectorEnv, num_workers=3),
    "2 threads": partial(ThreadVectorEnv, num_workers=2),
    "4 threads": ThreadVectorEnv,
}


@pytest.mark.parametrize("mode", MODES)
def test_sync(mode: str) -> None:
    run(machine(mode=mode), 8)


@diagonal(around=list(WRAPPERS)[1:], mode=MODES)
def test_wrappers_around_sync(around: str, mode: str) -> None:
    run(machine(mode=mode, around=around), 2)


@diagonal(workers=list(WORKERS), mode=MODES)
def test_workers(workers: str, mode: str) -> None:
    run(machine(mode=mode, backend=WORKERS[workers]), 3, shrinks=False)


@diagonal(workers=["sync", "2, forked", "2 threads"], mode=MODES)
def test_observations_that_are_written_at_once(
    workers: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_writer, "_LARGE", 1)
    forked = partial(AsyncVectorEnv, num_workers=2, context=FASTEST)
    backends = {**WORKERS, "sync": SyncVectorEnv, "2, forked": forked}
    run(machine(mode=mode, backend=backends[workers]), 3, shrinks=False)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES)
def test_sync_for_long(mode: str) -> None:
    run(machine(mode=mode), 80)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", WORKERS)
def test_workers_for_long(workers: str, mode: str) -> None:
    run(machine(mode=mode, backend=WORKERS[workers]), 8, steps=40, shrinks=False)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("around", list(WRAPPERS)[1:])
def test_wrappers_around_workers_for_long(around: str) -> None:
    backend = partial(AsyncVectorEnv, num_workers=2)
    for mode in MODES:
        run(machine(mode=mode, around=around, backend=backend), 3, shrinks=False)
