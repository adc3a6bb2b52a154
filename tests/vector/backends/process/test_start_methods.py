"""Workers of every start method: what they can be given, and what they are at birth."""

from __future__ import annotations

import multiprocessing
import random
import sys
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.crosses import ordinarily
from tests.envs import Global, Ledger, Parent, ledgers
from vecspaces.vector import AsyncVectorEnv

METHODS = multiprocessing.get_all_start_methods()


# A new interpreter imports NumPy anew; all else is the same as in one of a fork server.
@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.full] if name == "spawn" != METHODS[0] else [])
        for name in METHODS
    ]
)
def method(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_tracebacks_name_the_file_of_local_classes_and_functions(method: str) -> None:
    class Raising(Ledger):
        def step(self, action: Any) -> Any:
            raise FloatingPointError

    with AsyncVectorEnv([Raising], context=method) as envs:
        envs.reset()
        with pytest.raises(FloatingPointError) as caught:
            envs.step([0])
    assert f'File "{__file__}"' in str(caught.value.__cause__)

    def fail(env: Any) -> None:
        raise LookupError

    with AsyncVectorEnv([Ledger], context=method) as envs, pytest.raises(LookupError) as caught:
        envs.call(fail)
    assert f'File "{__file__}"' in str(caught.value.__cause__)


def test_lambdas_closures_and_local_classes_cross(method: str) -> None:
    length = 5

    class Note:
        def __init__(self, text: str) -> None:
            self.text = text

    def shout(env: Any, note: Note) -> Note:
        return Note(note.text.upper() * env.number)

    class Local(Ledger):
        def where(self) -> str:
            return f"local {length}"

    def closure() -> Ledger:
        return Local(1, length=length)

    env_fns = [lambda: Local(0, length=length), closure, partial(Local, 2), Local]
    with AsyncVectorEnv(env_fns, context=method, num_workers=2) as envs:
        assert envs.get_attr("length") == (5, 5, 3, 3)
        assert envs.call("where") == ("local 5",) * 4
        assert envs.reset(seed=0)[0].shape == (4, 5)
        envs.set_attr("note", Note("kept"))
        assert [note.text for note in envs.get_attr("note")] == ["kept"] * 4
        assert [note.text for note in envs.call(shout, Note("a"))] == ["", "A", "AA", ""]
        first, second = [process.pid for process in envs.processes]
        assert envs.call("process") == (first, first, second, second)


def test_daemonic_workers_have_no_children_and_others_may(method: str) -> None:
    with AsyncVectorEnv([Parent] * 2, context=method, num_workers=1) as envs:
        assert [process.daemon for process in envs.processes] == [True]
        for _ in range(2):
            with pytest.raises(AssertionError, match="daemonic") as caught:
                envs.call("child", env_ids=[0])
            (note,) = caught.value.__notes__
            assert "daemon=False" in note
    with AsyncVectorEnv([Parent] * 2, context=method, num_workers=1, daemon=False) as envs:
        assert [process.daemon for process in envs.processes] == [False]
        assert envs.call("child", env_ids=[0]) == (0,)


def make_another() -> Any:
    AsyncVectorEnv(ledgers(1), num_workers=1).close()
    return Ledger()


@pytest.mark.parametrize(
    "method", ordinarily(lambda method: method == "fork", [(name,) for name in METHODS])
)
def test_a_daemon_that_makes_a_vector_env_reads_what_to_do(method: str) -> None:
    advice = r"daemon=False; instead of a multiprocessing\.Pool"
    with pytest.raises(RuntimeError, match=advice):
        AsyncVectorEnv([make_another], context=method)
    AsyncVectorEnv([make_another], context=method, daemon=False).close()
    with (
        multiprocessing.get_context(method).Pool(1) as pool,
        pytest.raises(RuntimeError, match=advice),
    ):
        pool.apply(make_another)
    pool.join()


@pytest.fixture
def global_state() -> Any:
    states = random.getstate(), np.random.get_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])


def globals_of(method: str, workers: int) -> Any:
    with AsyncVectorEnv([Global] * 4, context=method, num_workers=workers) as envs:
        return np.concatenate([envs.reset()[0], *[envs.step([0] * 4)[0] for _ in range(3)]])


@pytest.mark.parametrize(
    "method", ordinarily(lambda method: method != "spawn", [(name,) for name in METHODS])
)
def test_global_streams_follow_from_the_callers_seeds_and_no_two_are_the_same(
    method: str, global_state: None
) -> None:
    runs = []
    for seed in (1, 1, 2):
        random.seed(seed)
        np.random.seed(seed)
        runs.append(globals_of(method, 2 if seed == 1 or method == "fork" else 1))
        mine = np.array([random.random(), np.random.random()])
        # Making workers took no number of the caller's.
        assert mine.tolist() == [random.Random(seed).random(), np.random.RandomState(seed).rand()]
        assert len(np.unique(runs[-1])) == runs[-1].size
        assert not np.isin(mine, runs[-1]).any()
    assert np.array_equal(runs[0], runs[1])
    assert not np.isin(runs[0], runs[2]).any()


class Seeded(Ledger):
    """A ledger that knows how its process seeded PyTorch."""

    def library_seeds(self) -> list[int]:
        return SEEDS


SEEDS: list[int] = []


def test_pytorchs_generator_is_seeded_for_each_worker(
    global_state: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = ModuleType("torch")
    torch.manual_seed = SEEDS.append  # type: ignore[attr-defined]
    torch.set_num_threads = abs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    runs = []
    for _ in range(2):
        random.seed(5)
        with AsyncVectorEnv([Seeded] * 2, num_workers=2, context="fork") as envs:
            seeds = envs.call("library_seeds")
            envs.restart()
            envs.reset()
            runs.append([*seeds, *envs.call("library_seeds")])
        assert SEEDS == []
    assert len(set(map(tuple, runs[0]))) == 4, "two workers and their successors"
    assert runs[0] == runs[1]


class Computing(Ledger):
    """A ledger whose reset uses CUDA in a forked process."""

    def reset(self, **arguments: Any) -> Any:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with ...")


def test_cuda_in_a_forked_worker_is_answered_by_another_start_method() -> None:
    with AsyncVectorEnv([Computing], context="fork") as envs:
        with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA") as caught:
            envs.reset()
        (note,) = caught.value.__notes__
        assert 'context="forkserver"' in note


def test_max_concurrency_is_another_name_of_num_workers_and_the_smaller_one_counts() -> None:
    with AsyncVectorEnv(ledgers(5), num_workers=3, max_concurrency=2, stats=True) as envs:
        assert envs.num_workers == len(envs.processes) == 2 and "num_workers=2" in repr(envs)
        assert [len(rows) for rows in envs.stats().worker_envs] == [2, 3]
    with AsyncVectorEnv(ledgers(5), max_concurrency=1) as envs:
        assert envs.num_workers == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_workers": 3}, "num_workers=3 is more than the 2 environments"),
        ({"num_workers": 0}, "num_workers must be an integer of at least 1, found 0"),
        ({"num_workers": 1.0}, "num_workers"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"buffers": 0}, "buffers must be an integer of at least 1, found 0"),
        ({"buffers": 2.5}, "buffers must be an integer"),
        ({"batch_size": 1.0}, "batch_size must be an integer"),
        ({"worker": print}, "on_worker_death"),
        ({"on_worker_death": "ignore"}, "'raise' or 'restart', or a function .*found 'ignore'"),
        ({"on_step_timeout": "restart"}, "step_timeout is None: pass .* such as step_timeout=60"),
        (
            {"on_step_timeout": "kill", "step_timeout": 1},
            "'raise' or 'restart', or a function of a StepTimeoutError, found 'kill'",
        ),
        ({"start_timeout": 0}, "start_timeout"),
        ({"step_timeout": -1}, "step_timeout"),
        ({"variable_capacity": -1}, "variable_capacity"),
        ({"context": "teleport"}, "teleport"),
        ({"worker_threads": 0}, "worker_threads must be an integer of at least 1, found 0"),
        ({"worker_threads": True}, "worker_threads must be an integer"),
        ({"worker_threads": 1.5}, "worker_threads must be an integer"),
    ],
)
def test_arguments_that_mean_nothing_are_refused_before_anything_starts(
    arguments: dict[str, Any], said: str
) -> None:
    is_no_count = any(isinstance(value, float | bool) for value in arguments.values())
    with pytest.raises(TypeError if is_no_count else ValueError, match=said):
        AsyncVectorEnv(ledgers(2), **arguments)
    assert not multiprocessing.active_children()
