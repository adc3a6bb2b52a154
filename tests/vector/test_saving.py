"""save_state and load_state: a run that goes on from a state equals the run that never stopped."""

from __future__ import annotations

import multiprocessing
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract import ALL_SPACES
from tests.crosses import FASTEST, NEWEST, diagonal
from tests.envs import Failing, Ledger, Sampler, ledgers
from tests.envs.agents import Crowd
from vecspaces import Env, make_vec, spaces
from vecspaces.adapters.pettingzoo import as_env
from vecspaces.errors import (
    AlreadyPendingCallError,
    InvalidActionError,
    InvalidObservationError,
    NoAsyncCallError,
    ResetNeededError,
)
from vecspaces.vector import AutoresetMode, SyncVectorEnv, VectorState

BACKENDS = {
    "sync": {"backend": "sync"},
    "thread": {"backend": "thread"},
    "fork": {"num_workers": 2, "context": FASTEST},
    "forkserver": {"num_workers": 3, "context": NEWEST},
    "spawn": {"num_workers": 1, "context": "spawn"},
    "pipes": {"num_workers": 2, "shared_memory": False},
}


class Run:
    """Steps a vector env with actions that depend on the time alone; resets what has ended."""

    def __init__(self, envs: Any, time: int = 0, ended: Any = None) -> None:
        self.envs, self.time, self.ended = envs, time, ended

    def steps(self, count: int) -> list[Any]:
        envs, shown = self.envs, []
        for _ in range(count):
            if envs.autoreset_mode is AutoresetMode.DISABLED and np.any(self.ended):
                shown.append(envs.reset(options={"reset_mask": self.ended}))
            envs.action_space.seed(self.time)
            result = envs.step(envs.action_space.sample())
            shown.append(result)
            self.ended, self.time = result[2] | result[3], self.time + 1
        return shown


def stacked() -> Any:
    """CartPole in Gymnasium's wrappers that have a state."""
    env: Any = gymnasium.make("CartPole-v1", max_episode_steps=23)
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env = gymnasium.wrappers.TransformObservation(env, lambda x: x * 2, env.observation_space)
    return gymnasium.wrappers.FrameStackObservation(env, 3)


def sampler(name: str) -> Env[Any, Any]:
    return Sampler(ALL_SPACES[name], spaces.Discrete(3), shortest=2)


def crowd() -> Any:
    return as_env(Crowd())


def check_resumed(
    factory: Callable[[], Any], first: Any, second: Any, before: int, **kw: Any
) -> None:
    """Compare a run with its two parts, the second of which goes on in another vector env."""
    with make_vec(factory, 4, backend="sync", **kw) as envs:
        envs.reset(seed=7)
        expected = Run(envs).steps(3 * before)
    with make_vec(factory, 4, **first, **kw) as envs:
        envs.reset(seed=7)
        run = Run(envs)
        results = run.steps(before)
        state = pickle.loads(pickle.dumps(envs.save_state()))
        run.steps(3)  # the state does not change
    with make_vec(factory, 4, **second, **kw) as envs:
        last, _ = envs.load_state(state)
        assert_identical(last, results[-1][0])
        results += Run(envs, before, results[-1][2] | results[-1][3]).steps(2 * before)
    assert_identical(without_times(results), without_times(expected))


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key not in ("t", "_t")}
    if isinstance(value, (tuple, list)):
        return [without_times(part) for part in value]
    return value


@diagonal(
    factory={"stacked": stacked, "ledger": Ledger},
    first=BACKENDS,
    second=dict(reversed(BACKENDS.items())),
    mode=AutoresetMode,
)
def test_load_state_goes_on_as_the_run_that_never_stopped(
    factory: Any, first: Any, second: Any, mode: AutoresetMode
) -> None:
    check_resumed(factory, first, second, 20, autoreset_mode=mode)


@pytest.mark.parametrize("name", ALL_SPACES)
def test_load_state_of_every_space_with_its_generators(name: str) -> None:
    mode = list(AutoresetMode)[len(name) % 3]
    check_resumed(partial(sampler, name), {"backend": "thread"}, {}, 7, autoreset_mode=mode)


def breakout() -> Any:
    gymnasium.register_envs(pytest.importorskip("ale_py"))
    env: Any = gymnasium.make("ALE/Breakout-v5", frameskip=1, max_episode_steps=40)
    return gymnasium.wrappers.FrameStackObservation(gymnasium.wrappers.AtariPreprocessing(env), 4)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("library", ["mujoco", "ale_py"])
def test_load_state_of_simulators(library: str, mode: AutoresetMode) -> None:
    pytest.importorskip(library)
    # An Ant observes forces that a step reads before the simulator computes them anew.
    ant = partial(gymnasium.make, "Ant-v5", max_episode_steps=30)
    factory = ant if library == "mujoco" else breakout
    check_resumed(factory, {"num_workers": 2}, {"backend": "sync"}, 25, autoreset_mode=mode)


def test_load_state_of_an_environment_of_agents() -> None:
    check_resumed(crowd, {"backend": "thread"}, {"num_workers": 3}, 9)


def test_load_state_gives_autoresets_their_options() -> None:
    options = [{"time": number} for number in range(4)]
    with make_vec(ledgers(4), backend="sync") as envs:
        envs.reset(seed=0, options=options)
        expected = Run(envs).steps(9)
    with make_vec(ledgers(4), num_workers=2) as envs:
        envs.reset(seed=0, options=options)
        run = Run(envs)
        assert_identical(run.steps(3), expected[:3])
        state = envs.save_state()
        envs.reset(seed=1)
        envs.load_state(state)
        assert_identical(Run(envs, 3).steps(6), expected[3:])


class Shelf(Env[Any, Any]):
    """Observes the last three actions of its episode, which two of its attributes share."""

    observation_space = spaces.Box(-1, 9, (3,), np.int64)
    action_space = spaces.Discrete(10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.actions = self.same = [-1, -1, -1]
        return np.array(self.actions), {}

    def step(self, action: Any) -> Any:
        self.actions.append(int(action))
        assert self.same is self.actions
        return np.array(self.same[-3:]), 0.0, False, False, {}


class Owner(Shelf):
    """Has its own pair of methods, and an attribute that cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def get_state(self) -> Any:
        return self.actions

    def set_state(self, state: Any) -> None:
        self.actions = self.same = state


class Namesake(Shelf):
    """Has methods of the same names with other arguments."""

    def get_state(self, kind: str) -> Any:
        raise NotImplementedError

    def set_state(self, first: Any, second: Any) -> None:
        raise NotImplementedError


class Holder(Ledger):
    """Has an attribute of any value."""

    def __init__(self, value: Any = None) -> None:
        super().__init__()
        self.value = value


@pytest.mark.parametrize("backend", ["sync", "thread", "fork", "spawn"])
def test_load_state_copies_one_environment_into_others_without_sharing(backend: str) -> None:
    with make_vec(Shelf, 6, **BACKENDS[backend], buffers=4) as envs:
        envs.reset(seed=0)
        envs.step([0, 1, 2, 3, 4, 5])
        before = envs.step([0] * 6)[0]
        last, infos = envs.load_state(envs.save_state([3]), [5, 0])
        assert_identical((last, infos), (before[[3, 3]], {}))
        rows = envs.step([7, 1, 1, 1, 1, 9])[0].tolist()
        assert rows == [[3, 0, 7], [1, 0, 1], [2, 0, 1], [3, 0, 1], [4, 0, 1], [3, 0, 9]]
        # The load replaced observations, as a reset with a mask does.
        assert envs.rollout_view().observations[2, :, 1].tolist() == [3, 1, 2, 3, 4, 3]
        envs.load_state(envs.save_state())
        with pytest.raises(ValueError, match="found 0"):  # it began a rollout
            envs.rollout_view()


@pytest.mark.parametrize("kind", [Owner, Namesake])
def test_save_state_uses_the_pair_of_an_environment_but_no_namesake(kind: Any) -> None:
    with SyncVectorEnv([kind] * 2) as envs:
        envs.reset(seed=0)
        envs.step([1, 2])
        state = envs.save_state()
        drawn = [env.np_random.random() for env in envs.envs]
        expected = envs.step([3, 4])[0]
        for _ in range(2):  # a state can be loaded again
            envs.load_state(state)
            assert [env.np_random.random() for env in envs.envs] == drawn
            assert_identical(envs.step([3, 4])[0], expected)


def test_save_state_names_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "log"
    pipe, other = multiprocessing.Pipe()
    with pipe, other, path.open("w") as written, path.open() as read:
        for value, place in (
            (threading.Lock(), ""),
            (written, ""),
            ({"logs": [1, read]}, r"\['logs'\]\[1\]"),
            (memoryview(b"ab"), ""),
            (multiprocessing.Lock(), ""),
            (pipe, ""),
            ((x for x in "ab"), ""),
        ):
            with SyncVectorEnv([Ledger, partial(Holder, value), Ledger]) as envs:
                envs.reset(seed=0)
                text = rf"^environment 1: Holder\.value{place} cannot be saved: .*(cannot|only)"
                with pytest.raises(TypeError, match=text):
                    envs.save_state()
                assert len(envs.save_state([2, 0])) == 2
                envs.step([0, 0, 0])


def test_load_state_keeps_functions_and_restores_closures() -> None:
    def counting() -> Any:
        count = 0

        def count_up() -> int:
            nonlocal count
            count += 1
            return count

        return count_up

    plain = lambda: 5  # noqa: E731
    with SyncVectorEnv([lambda: Holder(plain), lambda: Holder(counting())]) as envs:
        envs.reset(seed=0)
        assert envs.envs[1].value() == 1
        state = envs.save_state()
        assert envs.envs[1].value() == 2
        envs.load_state(state)
        assert envs.envs[0].value is plain
        assert envs.envs[1].value() == 2


def test_load_state_names_an_attribute_that_the_environment_has_not_set() -> None:
    with SyncVectorEnv([Ledger]) as envs, SyncVectorEnv([Ledger]) as others:
        envs.reset(seed=0)
        envs.envs[0].late = lambda: 5
        with pytest.raises(ValueError, match=r"^environment 0: Ledger\.late of the state stays"):
            others.load_state(envs.save_state())


DIFFERENT: dict[str, Any] = {
    "mode": (Ledger, 2, {"autoreset_mode": "SAME_STEP"}, "autoreset_mode: expected"),
    "number": (Ledger, 3, {}, "the state of 3 environments, or of 1, found that of 2"),
    "spaces": (
        partial(sampler, next(iter(ALL_SPACES))),
        2,
        {},
        "the observation_space of the state differs",
    ),
    "class": (Holder, 2, {}, "environment 0: expected the state of Holder .* Ledger"),
    "infos": (
        Ledger,
        2,
        {"info_space": spaces.Dict(episode=spaces.Discrete(9))},
        "the info_space of the state differs",
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_load_state_refuses_what_does_not_fit_and_changes_nothing(case: str, backend: Any) -> None:
    factory, count, options, text = DIFFERENT[case]
    with make_vec(Ledger, 2, backend="sync") as envs:
        envs.reset(seed=0)
        state = envs.save_state()
    with (
        make_vec(factory, count, backend=backend, **options) as envs,
        make_vec(factory, count, backend="sync", **options) as twin,
    ):
        for vector_env in (envs, twin):
            vector_env.reset(seed=0)
        with pytest.raises(ValueError, match=text):
            envs.load_state(state)
        with pytest.raises(TypeError, match="expected a VectorState, found dict"):
            envs.load_state({})
        assert_identical(Run(envs).steps(5), Run(twin).steps(5))


def test_save_and_load_state_in_each_state_of_a_row() -> None:
    with make_vec(Ledger, 3, num_workers=3) as envs:
        with pytest.raises(ResetNeededError, match="save_state was called before the first reset"):
            envs.save_state()
        envs.reset(seed=0)  # which `recv` has not returned
        fresh = envs.save_state()
        with pytest.raises(ValueError, match="found that of 3"):
            envs.load_state(fresh, [1, 2])
        only = envs.save_state([1])
        envs.restart([1])
        with pytest.raises(ResetNeededError, match="environment 1 must be reset first"):
            envs.save_state([0, 1])
        envs.load_state(only, [1])
        envs.send([0, 0], [0, 2])
        with pytest.raises(AlreadyPendingCallError, match=r"environment 0.*recv first"):
            envs.save_state([0])
        with pytest.raises(AlreadyPendingCallError):
            envs.load_state(fresh)
        assert len(envs.save_state([1])) == 1
        envs.recv(2)
        envs.load_state(fresh)
        with pytest.raises(NoAsyncCallError):  # there is nothing to be received
            envs.recv(1, timeout=0)
        envs.send([0], [0])
        with pytest.raises(AlreadyPendingCallError, match="environment 0"):
            envs.load_state(only, [1])
    with make_vec(Ledger, 3, backend="sync") as envs:
        with pytest.raises(ResetNeededError, match="load_state was called before the first reset"):
            envs.load_state(only, [1])
        envs.load_state(fresh)
        envs.step([0, 0, 0])


class Picky(Failing):
    """Cannot be built again while a file exists."""

    def __init__(self, number: int, file: Path) -> None:
        if file.exists():
            raise ZeroDivisionError
        super().__init__(number)


@pytest.mark.parametrize("backend", ["sync", "thread", "async"])
def test_load_state_of_an_environment_that_was_not_built_again_changes_nothing(
    backend: Any, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    options: Any = {} if backend == "sync" else {"num_workers": 1}
    with make_vec([partial(Picky, i, file) for i in range(3)], backend=backend, **options) as envs:
        envs.reset(seed=0)
        envs.step([0] * 3)
        state = envs.save_state()
        with pytest.raises(FloatingPointError):
            envs.step([4], [1])
        file.touch()
        envs.send_reset([1])
        with pytest.raises(ZeroDivisionError):
            envs.recv(1)
        file.unlink()
        envs.step([0, 0], [0, 2])
        text = r"environment 1 could not be built again: call reset\(\), then load_state"
        with pytest.raises(ResetNeededError, match=text):
            envs.load_state(state)
        assert envs.get_attr("time", env_ids=[0, 2]) == (2, 2)
        envs.reset()
        envs.load_state(state)
        assert envs.step([0] * 3)[0][:, 2].tolist() == [2, 2, 2]


def test_load_state_repairs_a_failed_environment() -> None:
    with SyncVectorEnv([Shaky, Shaky]) as envs:
        envs.reset(seed=0)
        state = envs.save_state()
        with pytest.raises(FloatingPointError):
            envs.step([4, 0], [0, 1])
        with pytest.raises(ResetNeededError):
            envs.save_state([0])
        envs.recv(1)
        envs.load_state(state)
        assert envs.step([1, 1])[0][:, 2].tolist() == [1, 1]
        with pytest.raises(FloatingPointError):
            envs.step([4, 0])
        with pytest.raises(ResetNeededError, match=r"call reset\(\)"):
            envs.load_state(state)


class Shaky(Failing):
    """Cannot load a state if its number is 7."""

    def get_state(self) -> Any:
        return vars(self).copy()

    def set_state(self, state: Any) -> None:
        vars(self).update(state)
        if state["number"] == 7:
            raise ZeroDivisionError("set_state")


def test_load_state_whose_environment_fails_needs_a_reset() -> None:
    with make_vec([partial(Shaky, 7), Shaky], num_workers=2) as envs:
        envs.reset(seed=0)
        state = envs.save_state()
        with pytest.raises(ZeroDivisionError, match="set_state"):
            envs.load_state(state)
        with pytest.raises(ResetNeededError):
            envs.step([0, 0])
        envs.reset(seed=0)
        envs.step([0, 0])


def test_load_state_after_an_end_refuses_actions_in_disabled_mode() -> None:
    with make_vec(ledgers(2), backend="sync", autoreset_mode="DISABLED") as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        *_, terminations, _, _ = envs.step([0, 0])
        assert terminations.tolist() == [True, False]
        state = envs.save_state()
        envs.reset()
        envs.load_state(state)
        with pytest.raises(ResetNeededError, match="environment 0 finished an episode"):
            envs.step([0, 0])


def test_step_after_load_state_reports_its_number_and_ignores_invalid_actions() -> None:
    with make_vec(ledgers(3), backend="sync", validate=True) as envs:
        envs.reset(seed=0)
        envs.step([0, 0, 0])
        envs.step([0, 0, 0])
        state = envs.save_state()
    with make_vec(ledgers(3), num_workers=1, validate=True) as envs:
        envs.load_state(state)
        envs.step([99, 0, 0])  # the first environment is reset
        with pytest.raises(InvalidActionError):
            envs.step([99, 0, 0])
        envs.load_state(state)
        envs.call(_spoil, env_ids=[2])
        with pytest.raises(
            InvalidObservationError, match=r"environment 2 .* in step 3 of its epis"
        ):
            envs.step([0, 0, 0])


def _spoil(env: Any) -> None:
    env.time = 2.0**40


def test_load_state_survives_the_death_of_a_worker() -> None:
    options: Any = {"num_workers": 2, "on_worker_death": "restart", "autoreset_mode": "SAME_STEP"}
    with make_vec(ledgers(4), **options) as envs:
        envs.reset(seed=0)
        expected = Run(envs).steps(2)
        state = envs.save_state()
        expected += Run(envs, 2).steps(6)
        envs.processes[0].kill()
        envs.processes[0].join()
        with pytest.raises(ResetNeededError, match="must report a lost episode first"):
            envs.save_state()
        envs.load_state(state)
        assert_identical(Run(envs, 2).steps(6), expected[2:])


def test_vector_state_in_a_file_is_complete_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    with make_vec(Shelf, 2, backend="sync") as envs:
        envs.reset(seed=0)
        state = envs.save_state()
        state.save(path)
        assert list(tmp_path.iterdir()) == [path]
        loaded = VectorState.load(path)
        assert repr(loaded) == repr(state) == "VectorState(num_envs=2, autoreset_mode='NextStep')"
        envs.load_state(loaded)
    data = path.read_bytes()
    for wrong in (data[:-1], data[: len(data) // 2], b"", b"text", pickle.dumps(3)):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=re.escape(f"{path}: expected a")):
            VectorState.load(path)
    with pytest.raises(FileNotFoundError):
        VectorState.load(tmp_path / "none")


def test_load_state_finds_classes_of_the_main_module_and_keeps_spaces(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from vecspaces import Env, make_vec, spaces\n"
        "from vecspaces.vector import VectorState\n"
        "class Cell:\n"
        "    count = 0\n"
        "class Cells(Env):\n"
        "    observation_space = action_space = spaces.Discrete(9)\n"
        "    def __init__(self):\n"
        "        self.large_space = spaces.Box(0, 1, (1000, 1000))\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        self.cell = Cell()\n"
        "        return 0, {}\n"
        "    def step(self, action):\n"
        "        assert isinstance(self.cell, Cell)\n"
        "        self.cell.count += 1\n"
        "        return self.cell.count, 0.0, False, False, {}\n"
        "if __name__ == '__main__':\n"
        "    *contexts, path = sys.argv[1:]\n"
        "    with make_vec(Cells, 2, context=contexts[0], num_workers=1) as envs:\n"
        "        envs.reset()\n"
        "        envs.step([0, 0])\n"
        "        envs.save_state().save(path)\n"
        "    for context in contexts:\n"
        "        with make_vec(Cells, 2, context=context, num_workers=2) as envs:\n"
        "            envs.load_state(VectorState.load(path))\n"
        "            assert envs.step([0, 0])[0].tolist() == [2, 2]\n",
    )
    path = tmp_path / "state"
    for contexts in ([FASTEST, "spawn"], ["spawn", FASTEST]):
        command = [sys.executable, str(program), *contexts, str(path)]
        subprocess.run(command, check=True, timeout=100, cwd=Path(__file__).parents[2])
        assert path.stat().st_size < 10_000
