"""Other environments in the same workers."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.crosses import diagonal
from tests.envs import Ledger, ledger_vector
from tests.envs.agents import Crowd
from tests.interrupts import Interrupts, guarded, interrupt_at
from vecspaces import make_vec, spaces
from vecspaces.adapters.pettingzoo import as_vector_env
from vecspaces.errors import (
    AlreadyPendingCallError,
    ResetNeededError,
    StepTimeoutError,
    WorkerDiedError,
)
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.vector.backends.remote import RemoteBackend


class Wider(Ledger):
    observation_space = spaces.Box(-1, 1, (7,), np.float32)
    ended: ClassVar[list[Any]] = []

    def close(self) -> None:
        self.ended.append(self)


def fails() -> Any:
    raise OSError("no licence")


KINDS = [
    SyncVectorEnv,
    partial(AsyncVectorEnv, num_workers=2),
    partial(AsyncVectorEnv, num_workers=2, context="spawn", on_worker_death="restart"),
    partial(AsyncVectorEnv, num_workers=2, shared_memory=False),
]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_replaced_one_by_one_and_the_others_go_on(kind: Any) -> None:
    with kind([partial(Ledger, n) for n in range(4)]) as envs:
        envs.reset(seed=0)
        before = envs.step([1] * 4)[0]
        envs.replace_envs([2, 0], [partial(Ledger, 20), partial(Ledger, 10)])
        assert envs.spec is None
        for call in (envs.step, partial(envs.step, env_ids=[0, 1]), envs.send):
            with pytest.raises(ResetNeededError, match="built environment"):
                call([1] * (2 if "env_ids" in getattr(call, "keywords", {}) else 4))
        assert envs.get_attr("number") == (10, 1, 20, 3)
        observations, infos = envs.reset(
            seed=5, options={"reset_mask": np.array([True, False, True, False])}
        )
        assert observations[:, 0].tolist() == [10, 1, 20, 3]
        np.testing.assert_array_equal(observations[[1, 3]], before[[1, 3]])
        assert infos["_episode"].tolist() == [True, False, True, False]
        after = envs.step([1] * 4)[0]
        assert (after[[1, 3], 2] == before[[1, 3], 2] + 1).all()
        if envs.num_workers is not None and "on_worker_death" in kind.keywords:
            envs.processes[0].kill()
            envs.step([1] * 4)
            assert envs.get_attr("number") == (10, 1, 20, 3)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize(
    ("factory", "error", "text"),
    [
        (Wider, RuntimeError, "another observation space than before: expected"),
        (fails, OSError, "no licence"),
    ],
)
def test_a_row_that_fails_is_broken_until_a_reset_builds_the_former_factory(
    kind: Any, factory: Any, error: Any, text: str
) -> None:
    env_fns = [partial(Ledger, n, length=9) for n in range(4)]
    Wider.ended.clear()
    with kind(list(env_fns)) as envs:
        envs.reset(seed=0)
        with pytest.raises(error, match=text) as caught:
            envs.replace_envs([3, 0], [factory, partial(Ledger, 10, length=9)])
        note = "the next reset of it builds the former environment again"
        assert caught.value.__notes__[-1:] == [note]
        if kind is SyncVectorEnv and factory is Wider:
            assert len(Wider.ended) == 1
        for call in (lambda: envs.step([0], env_ids=[3]), lambda: envs.get_attr("number")):
            with pytest.raises(ResetNeededError, match="environment 3 failed"):
                call()
        assert envs.env_fns[1:] == env_fns[1:]
        # First observations of former environments are not received; the others go on.
        assert envs.recv(2).env_ids.tolist() == [1, 2]
        assert envs.step([0, 0], env_ids=[1, 2])[0][:, 0].tolist() == [1, 2]
        envs.send_reset([0, 3], seed=4)
        assert sorted(envs.recv(2).observations[:, 0]) == [3, 10]
        for again in (True, False):
            with pytest.raises(error, match=text):
                envs.replace_envs([3], [factory])
            if again:  # without a reset
                envs.replace_envs([3], [partial(Ledger, 13, length=9)])
                assert envs.get_attr("number") == (10, 1, 2, 13)
        observations, _ = envs.reset(options={"reset_mask": np.arange(4) == 3})
        assert observations[:, 0].tolist() == [10, 1, 2, 13]
        envs.step([0] * 4)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_what_is_refused_closes_nothing(kind: Any) -> None:
    stuck = threading.Lock()
    with kind([Ledger] * 3) as envs:
        envs.replace_envs([], [])  # also before the first reset
        envs.replace_envs([1], [partial(Ledger, 4)])
        assert envs.reset(seed=0)[0][:, 0].tolist() == [0, 4, 0]
        for env_ids, env_fns, error, text in [
            ([1, 1], [Ledger, Ledger], ValueError, "name each environment once"),
            ([3], [Ledger], ValueError, "between 0 and 2"),
            ([True], [Ledger], TypeError, "found booleans"),
            ([0], Ledger, TypeError, "env_fns must be a list"),
            ([0], [Ledger()], TypeError, r"env_fns\[0\] must be a function"),
            (None, [Ledger], ValueError, "got 1 env_fns for 3 environments"),
            ([0], [], ValueError, "got 0 env_fns for 1 environments"),
            ([0, 1], [Ledger, lambda: stuck], TypeError, r"env_fns\[1\] cannot be pickled"),
        ]:
            if "pickled" not in text or envs.num_workers is not None:
                with pytest.raises(error, match=text):
                    envs.replace_envs(env_ids, env_fns)
        envs.step([0] * 3)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_vector_env_among_the_environments_is_replaced_as_a_whole(kind: Any) -> None:
    with kind([partial(ledger_vector, 0, 2), partial(Ledger, 2)]) as envs:
        with pytest.raises(ValueError, match="name environment 1 too"):
            envs.replace_envs([0], [Ledger])
        with pytest.raises(ValueError, match="got 2 env_fns for 1 environments"):
            envs.replace_envs([1, 0], [Ledger, Ledger])
        with pytest.raises(RuntimeError, match=r"another kind .* expected a vector env"):
            envs.replace_envs([1, 0, 2], [Ledger, partial(Ledger, 5)])
        envs.reset(seed=0)
        fns = [partial(ledger_vector, 10, 2), partial(Ledger, 12)]
        envs.replace_envs([1, 0, 2], fns)
        assert envs.env_fns == fns
        with pytest.raises(ResetNeededError, match="environments 0, 1 have one env_fn"):
            envs.reset(options={"reset_mask": np.array([True, False, True])})
        observations, _ = envs.reset(options={"reset_mask": np.array([True] * 3)})
        assert observations[:, 0].tolist() == [10, 11, 12]


def test_nothing_is_kept_of_the_former_environment_when_the_next_is_built() -> None:
    class Own(Ledger):
        """Has spaces of its own, as most environments have."""

        def __init__(self) -> None:
            super().__init__()
            shared = Ledger.observation_space
            self.observation_space = spaces.Box(shared.low, shared.high, dtype=shared.dtype)

    envs_made: list[Any] = []
    spaces_made: list[Any] = []

    def make() -> Any:
        gc.collect()
        assert not any(one() for one in envs_made)
        # That of the environment to be replaced is compared with that of the next.
        assert sum(one() is not None for one in spaces_made) <= 1
        env = Own()
        envs_made.append(weakref.ref(env))
        spaces_made.append(weakref.ref(env.observation_space))
        return env

    with SyncVectorEnv([Ledger, make]) as envs:
        for _ in range(4):
            envs.reset(seed=0)
            envs.replace_envs([1], [make])
    assert len(envs_made) == 5


# ---------------------------------------------------------------------- arguments and states


def test_spec_is_kept_until_something_is_replaced() -> None:
    with make_vec("CartPole-v1", 2, backend="sync") as envs:
        with pytest.raises(ValueError, match="got 0 env_fns for 2 environments"):
            envs.replace_envs(None, [])
        assert envs.spec is not None
        envs.replace_envs([1], [lambda: make_vec("CartPole-v1", 1, backend="sync").envs[0]])
        assert envs.spec is None


@pytest.mark.parametrize("kind", KINDS[:2])
def test_rows_under_way_or_unread_are_refused_and_others_of_their_worker_are_not(kind: Any) -> None:
    with kind([partial(Ledger, n) for n in range(4)]) as envs:
        envs.reset(seed=0)
        envs.recv(4)
        envs.send([1, 1], [0, 2])
        with pytest.raises(AlreadyPendingCallError, match=r"environment 0 .* recv first"):
            envs.replace_envs([0, 1], [Ledger, Ledger])
        envs.replace_envs([1, 3], [partial(Ledger, 11), partial(Ledger, 13)])
        with pytest.raises(ResetNeededError, match="environment 1"):
            envs.send([1], [1])
        envs.send_reset([3, 1], seed=[8, 9])
        rows: dict[int, Any] = {}
        for _ in range(4):
            received = envs.recv(1)
            rows[int(received.env_ids[0])] = received.observations[0]
        assert [rows[row][0] for row in range(4)] == [0, 11, 2, 13]
        assert rows[0][2] == rows[2][2] == 1  # they have stepped


def test_one_environment_cannot_be_in_two_rows() -> None:
    with SyncVectorEnv([Ledger] * 2) as envs:
        envs.reset(seed=0)
        other = envs.envs[0]
        with pytest.raises(ValueError, match="returned one and the same environment"):
            envs.replace_envs([1], [lambda: other])
        envs.step([1], env_ids=[0])  # it was not closed
        envs.reset(seed=0)


# ---------------------------------------------------------------------- what is replaced


class Noting(Ledger):
    """Declares its infos."""

    info_space = spaces.Dict({"own": spaces.Discrete(99)})

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0], {"own": self.number}

    def step(self, action: Any) -> Any:
        return *super().step(action)[:-1], {"own": self.number}


@diagonal(kind=KINDS[:2], mode=AutoresetMode)
def test_results_equal_those_of_a_vector_env_of_the_new_environments(kind: Any, mode: Any) -> None:
    options: Any = {"autoreset_mode": mode, "validate": True, "buffers": 2}
    runs = []
    for start, replaced in [([0, 1, 2], True), ([20, 21, 22], False)]:
        with kind([partial(Noting, number) for number in start], **options) as envs:
            if replaced:
                envs.reset(seed=9)
                for _ in range(3):
                    envs.step([1] * 3)
                envs.replace_envs([2, 0, 1], [partial(Noting, n) for n in (22, 20, 21)])
            run = [envs.reset(seed=4)]
            for _ in range(12):
                *step, infos = envs.step([1] * 3)
                run.append((*step, infos["own"]))
                if mode is AutoresetMode.DISABLED and (step[2] | step[3]).any():
                    envs.reset(options={"reset_mask": step[2] | step[3]})
            runs.append(run)
    np.testing.assert_equal(runs[0], runs[1])


def test_rows_of_agents_are_replaced_with_their_environment() -> None:
    def crowd(**arguments: Any) -> Any:
        return as_vector_env(Crowd(**arguments))

    with make_vec(Crowd, 2, agents="rows", num_workers=2) as envs:
        envs.reset(seed=0)
        with pytest.raises(ValueError, match="name environments 4, 5 too"):
            envs.replace_envs([3], [crowd])
        envs.replace_envs([3, 4, 5], [crowd])
        with pytest.raises(ValueError, match="agents of one environment"):
            envs.reset(options={"reset_mask": np.arange(6) == 4})
        observations, infos = envs.reset(seed=3)
        for _ in range(4):
            *_, infos = envs.step(np.zeros(6, np.int64))
        assert infos["alive"].shape == (6,)
        with pytest.raises(TypeError, match="must return"):
            envs.replace_envs([3, 4, 5], [Crowd])
        envs.reset(seed=3)
        again, _ = envs.reset(seed=3)
        np.testing.assert_array_equal(observations, again)


# ---------------------------------------------------------------------- failures


def dies_once(order: Path, number: int) -> Any:
    """Make an environment, but not in the first process that tries to."""
    if order.exists():
        order.unlink()
        os._exit(3)
    return Ledger(number)


@diagonal(context=["fork", "forkserver"], restarts=[False, True])
def test_a_worker_that_dies_while_it_replaces(context: Any, restarts: bool, tmp_path: Path) -> None:
    order = tmp_path / "die"
    order.touch()
    options: Any = {"on_worker_death": "restart" if restarts else "raise", "context": context}
    with AsyncVectorEnv([partial(Ledger, n) for n in range(4)], num_workers=2, **options) as envs:
        envs.reset(seed=0)
        change = partial(
            envs.replace_envs,
            [0, 2, 3],
            [partial(Ledger, 10), partial(dies_once, order, 12), Ledger],
        )
        if restarts:
            change()
            expected = (10, 1, 12, 0)
        else:
            with pytest.raises(WorkerDiedError):
                change()
            # The other worker had replaced its environment, or not yet.
            time.sleep(0.1)
            expected = (10, 1, 2, 3)
        envs.reset(seed=0)
        assert envs.get_attr("number")[1:] == expected[1:]
        first = envs.get_attr("number", env_ids=[0])
        assert first in ((10,), (0,)) if not restarts else first == (10,)
        if restarts:
            envs.processes[0].kill()
            envs.step([0] * 4)
        assert envs.get_attr("number", env_ids=[0]) == first


def hangs(gate: Path) -> Any:
    gate.with_name("hangs").touch()
    while not gate.exists():
        time.sleep(0.01)
    return Ledger(5)


@pytest.mark.parametrize("waits", [False, True])
def test_replacing_is_bounded_by_start_timeout(waits: bool, tmp_path: Path, hurry: Any) -> None:
    gate = tmp_path / "gate"
    expected = r"replace did not end within 30 s: environment 1"
    with AsyncVectorEnv([Ledger] * 2, num_workers=2, start_timeout=30.0) as envs:
        envs.reset(seed=0)
        hurry((tmp_path / "hangs").exists, 1)
        with pytest.raises(StepTimeoutError, match=expected):
            envs.replace_envs([0, 1], [partial(Ledger, 4), partial(hangs, gate)])
        if waits:
            gate.touch()
            assert envs.call_wait() == ()
            assert [env_fn.func for env_fn in envs.env_fns] == [Ledger, hangs]  # type: ignore[attr-defined]
            with pytest.raises(ResetNeededError, match="built environments 0, 1 anew"):
                envs.step([0, 0])
        envs.reset(seed=0)
        assert envs.get_attr("number") == (4, 5 if waits else 0)


def refused() -> Any:
    raise ImportError("no such module here")


class Refused:
    """Can be pickled, and not be read."""

    def __reduce__(self) -> Any:
        return refused, ()

    __call__ = refused


@pytest.mark.parametrize("dies", [False, True])
def test_late_answers_of_others_leave_no_environment_that_nothing_knows(
    dies: bool, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with AsyncVectorEnv([partial(Ledger, n) for n in range(2)], num_workers=2) as envs:
        envs.reset(seed=0)
        first: Any = partial(os._exit, 1) if dies else Refused()
        with pytest.raises(WorkerDiedError if dies else ImportError):
            envs.replace_envs([0, 1], [first, partial(hangs, gate)])
        gate.touch()
        with pytest.raises(ResetNeededError):
            envs.step([0, 0])
        observations, _ = envs.reset(seed=0)
        assert observations[:, 0].tolist() == [env_fn().number for env_fn in envs.env_fns] == [0, 1]


# ---------------------------------------------------------------------- interrupts


@guarded()
def test_after_an_interrupt_rows_have_the_one_environment_or_the_other() -> None:
    with (
        AsyncVectorEnv([Ledger] * 2, num_workers=2) as envs,
        Interrupts(seed=3, longest=0.03) as interrupts,
    ):
        numbers = [0, 0]
        for turn in range(1, 1001):  # until enough came: how many hit depends on the machine
            wanted = [2 * turn, 2 * turn + 1]
            change = partial(
                envs.replace_envs, None, [partial(Ledger, number) for number in wanted]
            )
            ended, _ = interrupts.during(change)
            if ended:
                with pytest.raises(ResetNeededError):
                    envs.step([0, 0])
            seen = envs.reset(seed=0)[0][:, 0].tolist()
            assert all(one in pair for one, *pair in zip(seen, numbers, wanted, strict=True))
            assert not ended or seen == wanted
            assert [env_fn().number for env_fn in envs.env_fns] == seen
            envs.step([0, 0])
            numbers = seen
            if turn >= 20 and interrupts.count > 5:
                break
        assert interrupts.count > 5


@pytest.mark.parametrize("stride", [53, pytest.param(7, marks=pytest.mark.full)])
def test_an_interrupt_at_any_point_leaves_no_row_without_an_environment(stride: int) -> None:
    reached, k = True, 1
    with SyncVectorEnv([Ledger] * 2) as envs:
        envs.reset(seed=0)
        while reached:
            change = partial(envs.replace_envs, [1], [partial(Ledger, k)])
            reached, ended, _ = interrupt_at(k, change)
            number = envs.reset(seed=0)[0][1, 0]
            assert number == k or not ended
            assert envs.env_fns[1]().number == number
            envs.step([0, 0])
            k += stride
    assert k > 100


def test_an_interrupt_cannot_separate_the_worker_and_the_factories_that_users_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point: Any = None
    note = RemoteBackend.note_factories

    def note_and_interrupt(*arguments: Any) -> None:
        sys.setprofile(point)
        try:
            note(*arguments)
        finally:
            sys.setprofile(None)

    def watch(one: Any) -> None:
        nonlocal point
        point = one

    monkeypatch.setattr(RemoteBackend, "note_factories", note_and_interrupt)
    reached, k = True, 1
    with AsyncVectorEnv([Ledger]) as envs:
        while reached:
            envs.reset(seed=0)
            reached, _, _ = interrupt_at(
                k, partial(envs.replace_envs, [0], [partial(Ledger, k)]), watch
            )
            number = envs.reset(seed=0)[0][0, 0]
            assert number in (k - 1, k) and envs.env_fns[0]().number == number
            envs.replace_envs([0], [partial(Ledger, k)])
            k += 1
    assert k > 10
