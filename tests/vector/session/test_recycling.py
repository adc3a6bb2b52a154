"""Workers that are replaced although they live: when, with which seeds, and what goes wrong."""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.workers import restart_seed
from tests.crosses import diagonal, ordinarily
from tests.envs import Gated
from tests.envs.faulty import FAULTS, OddError
from tests.interrupts import Interrupts, guarded
from tests.vector.bounds import overrun, wait_until_idle
from vecspaces import Env, evaluate, make_vec
from vecspaces.errors import (
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeededError,
    StepTimeoutError,
    WorkerDiedError,
)
from vecspaces.spaces import Box, Dict, Discrete
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.vector.session.workers import Workers

MODES = list(AutoresetMode)
NEXT_STEP, SAME_STEP, DISABLED = MODES
NUM_ENVS, AFTER, STEPS = 3, 2, 24
ENDED = np.array([True, False])
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
on_posix = pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")


DEEDS = {"fail": FAULTS["exception"], "die": FAULTS["SIGKILL"], "hang": FAULTS["hang"]}


class Errand(Env[Any, Any]):
    """Its values depend on its seed; it notes in a file what happens to it, and fails on demand.

    Args:
        number: Which one it is; the length of its episodes.
        folder: Where it notes that it was built and closed, and finds what it is to do.
        leak: How many bytes each episode leaks.
    """

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)
    action_space = Discrete(9)
    info_space = Dict({"length": Discrete(99)})

    def __init__(self, number: int = 0, folder: Path | None = None, leak: int = 0) -> None:
        self.number, self.folder, self.leak = number, folder, leak
        self.leaked: list[bytes] = []
        self.note("built")

    def note(self, what: str) -> None:
        if self.folder is None:
            return
        for deed, do in DEEDS.items():
            order = self.folder / f"{deed} {what}"
            if order.exists():
                order.unlink()
                do()
        with (self.folder / "notes").open("a") as file:
            file.write(f"{what} {self.number} {os.getpid()}\n")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.note("first reset" if not self.leaked else "reset")
        super().reset(seed=seed)
        self.leaked.append(b"x" * self.leak)
        self.time, self.options = 0, float((options or {}).get("x", 0))
        return self.observe(), {"seed": -1 if seed is None else seed}

    def observe(self) -> Any:
        return np.array([self.np_random.random(), self.time, self.options])

    def step(self, action: Any) -> Any:
        self.time += 1
        ends = self.time == 2 + self.number
        info = {"length": self.time, "state": f"{self.number}:{self.time}"} if ends else {}
        return self.observe(), float(self.time + action), ends, False, info

    def close(self) -> None:
        self.note("closed")


def play_alone(number: int, mode: AutoresetMode) -> tuple[list[Any], int]:
    """Step one environment by hand, with the seeds that its documentation promises.

    Return observation, reward, flag and info of each step, and how often it was replaced.
    """
    env, ended, replaced, over = Errand(number), 0, 0, False
    options = {"options": {"x": 5}}

    def begin() -> Any:
        nonlocal env, replaced
        if ended % AFTER:
            return env.reset(**options)
        replaced += 1
        env = Errand(number)
        return env.reset(seed=restart_seed(7 + number, replaced), **options)

    observation, info = env.reset(seed=7 + number, **options)
    found = [(observation, 0.0, False, info)]
    for step in range(STEPS):
        if over and mode is not SAME_STEP:
            observation, info = begin()
            over = False
            if mode is NEXT_STEP:
                found.append((observation, 0.0, False, info))
                continue
        observation, reward, over, _, info = env.step(step % 3)
        ended += over
        if over and mode is SAME_STEP:
            final = {"final_obs": observation, "final_info": info}
            observation, info = begin()
            info = {**info, **final}
        found.append((observation, reward, over, info))
    return found, replaced


def step_together(envs: Any, actions: Any) -> Any:
    return [(*envs.step(actions), range(NUM_ENVS))]


def stream(envs: Any, actions: Any) -> Any:
    envs.send(actions)
    return [envs.recv(1) for _ in range(NUM_ENVS)]


def info_of(infos: Any, at: int) -> dict[str, Any]:
    """Return what merged infos hold for a row."""
    return {
        key: info_of(values, at) if isinstance(values, dict) else values[at]
        for key, values in infos.items()
        if not key.startswith("_") and infos[f"_{key}"][at]
    }


@pytest.mark.parametrize(
    ("mode", "step", "shared"),
    ordinarily(
        lambda mode, step, shared: (
            (mode, step, shared) in ((SAME_STEP, stream, True), (DISABLED, step_together, False))
        ),
        product(MODES, [step_together, stream], [True, False]),
    ),
)
def test_results_are_those_of_environments_that_are_given_the_same_seeds(
    mode: AutoresetMode, step: Any, shared: bool
) -> None:
    """One of them is a vector env of one row."""
    expected, replaced = zip(*(play_alone(n, mode) for n in range(NUM_ENVS)), strict=True)
    env_fns: list[Any] = [partial(Errand, number) for number in range(NUM_ENVS)]
    env_fns[2] = partial(SyncVectorEnv, env_fns[2:], autoreset_mode=mode)
    with AsyncVectorEnv(
        env_fns,
        num_workers=NUM_ENVS,
        shared_memory=shared,
        autoreset_mode=mode,
        recycle_after=AFTER,
        stats=True,
    ) as envs:
        observations, _ = envs.reset(seed=7, options=[{"x": 5}] * NUM_ENVS)
        assert_identical(observations, np.array([one[0][0] for one in expected]))
        ended = np.zeros(NUM_ENVS, np.bool_)
        for time in range(1, STEPS + 1):
            if mode is DISABLED and ended.any():
                envs.reset(options={"reset_mask": ended, "x": 5})
            for result in step(envs, np.full(NUM_ENVS, (time - 1) % 3)):
                observations, rewards, ended[result[-1]], _, infos, rows = result
                for at, row in enumerate(rows):
                    found = observations[at], rewards[at], ended[row], info_of(infos, at)
                    np.testing.assert_equal(found, expected[row][time])
        stats = envs.stats()
        assert stats.recycled_after.tolist() == list(replaced) and min(replaced) > 1
        assert stats.recycled_memory.tolist() == [0] * NUM_ENVS
        if shared:
            resets = [sum("seed" in one[3] for one in row[1:]) for row in expected]
            steps = [STEPS - (count if mode is NEXT_STEP else 0) for count in resets]
            assert stats.steps.tolist()[:2] == steps[:2]  # a vector env steps in its resets, too


def notes(folder: Path, what: str) -> list[str]:
    lines = (folder / "notes").read_text().splitlines()
    return [line for line in lines if line.startswith(what)]


def test_a_full_reset_replaces_workers_and_closes_their_environments(tmp_path: Path) -> None:
    env_fns: list[Any] = [partial(Errand, number, tmp_path) for number in range(4)]
    env_fns[:2] = [partial(SyncVectorEnv, env_fns[:2], autoreset_mode="Disabled")]
    with AsyncVectorEnv(
        env_fns,
        num_workers=2,
        autoreset_mode="Disabled",
        recycle_after=4,
        stats=True,
    ) as envs:
        envs.reset(seed=7)
        pids = [process.pid for process in envs.processes]
        envs.step([0] * 4)
        envs.step([0] * 4)  # the episode of environment 0 has ended
        envs.reset()  # and those of the others are given up: 2 episodes each
        assert [process.pid for process in envs.processes] == pids
        observations, infos = envs.reset(seed=[None, 1, None, None])
        assert not {process.pid for process in envs.processes} & set(pids)
        seeds = [restart_seed(7, 1), 1, *(restart_seed(7 + row, 1) for row in (2, 3))]
        assert infos["seed"].tolist() == seeds
        first = [Errand().reset(seed=seed)[0] for seed in seeds]
        assert_identical(observations, np.array(first))
        assert len(notes(tmp_path, "closed")) == 4
        assert envs.stats().recycled_after.tolist() == [1, 1]
        # Later resets go on with the environments' own generators.
        assert envs.reset()[1]["seed"].tolist() == [-1] * 4


def test_evaluate_drains_a_worker_before_it_is_replaced(tmp_path: Path) -> None:
    seen: list[int] = []

    def policy(observations: Any) -> Any:
        seen.append(len(observations))
        return np.zeros(len(observations), np.int64)

    arguments: dict[str, Any] = {"episodes": 30, "seed": 1, "env_kwargs": {}}
    for number, (kwargs, limits) in enumerate(
        # Its episodes are cut; the memory is not read at each end of one.
        [({"recycle_memory": 1}, {}), ({"recycle_after": 5}, {"max_episode_steps": 1})]
    ):
        if sys.platform != "linux" and not number:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        alone = evaluate(policy, Errand, backend="sync", **arguments, **limits)
        found = evaluate(
            policy,
            partial(Errand, 0, folder),
            num_envs=6,
            num_workers=2,
            vector_kwargs=kwargs,
            **arguments,
            **limits,
        )
        assert found.returns.tobytes() == alone.returns.tobytes()
        built = len(notes(folder, "built"))
        assert len(notes(folder, "reset")) + len(notes(folder, "first reset")) == 30
        # A worker of 3 plays 5 to 7 episodes.
        least, most = (30 / 7, 30 / 5 + 2) if number else (3, 32)
        assert least <= built / 3 <= most
        assert len(notes(folder, "closed")) == built


# ---------------------------------------------------------------------- what is refused


def test_limits_that_are_wrong_or_would_replace_no_worker_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"recycle_after": 0}, "recycle_after must be an integer of at least 1, found 0"),
        ({"recycle_memory": 1.5}, r"recycle_memory must be an integer of at least 1, found 1\.5"),
    ]
    for name in ("recycle_after", *(["recycle_memory"] if sys.platform == "linux" else [])):
        for mode in (NEXT_STEP, SAME_STEP):
            arguments = {name: 5, "autoreset_mode": mode}
            wrong.append((arguments, "replace a worker where episodes are handed out"))
            # A single process has no workers to replace.
            make_vec(Errand, 3, backend="sync", **arguments).close()
    for arguments, error in wrong:
        with pytest.raises((TypeError, ValueError), match=error):
            AsyncVectorEnv([Errand] * 3, num_workers=2, **arguments)


def test_resets_of_some_environments_of_a_worker_are_refused() -> None:
    with AsyncVectorEnv(
        [Errand] * 3, num_workers=2, autoreset_mode="Disabled", recycle_after=1
    ) as envs:
        envs.reset()
        mask = np.array([True, False, False])
        for reset in (
            partial(envs.reset, options={"reset_mask": mask}),
            partial(envs.send_reset, [0]),
        ):
            with pytest.raises(ValueError, match="cannot be reset one by one"):
                reset()
        envs.reset()


def test_memory_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ValueError, match=r"recycle_memory needs .*: use recycle_after"):
        AsyncVectorEnv([Errand], recycle_memory=10**9)


# ---------------------------------------------------------------------- what goes wrong


def make(folder: Path, mode: AutoresetMode = NEXT_STEP, **arguments: Any) -> Any:
    arguments = {"recycle_after": 1, **arguments}
    return AsyncVectorEnv(
        [partial(Errand, number, folder) for number in range(2)],
        num_workers=2,
        autoreset_mode=mode,
        **arguments,
    )


def play(envs: Any, steps: int = 6) -> list[float]:
    """Step, reset what has ended, and return the sums of rewards so far."""
    rewards = []
    for _ in range(steps):
        _, got, terminations, truncations, _ = envs.step([0, 0])
        rewards.append(float(got.sum()))
        ended = terminations | truncations
        if envs.autoreset_mode is DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
    return rewards


@on_posix
@pytest.mark.parametrize(
    ("deed", "line", "mode"),
    ordinarily(
        lambda deed, line, mode: (deed, mode) in (("fail", NEXT_STEP), ("die", SAME_STEP)),
        [
            (*deed, mode)
            for deed in (
                ("fail", "OddError: the gripper is stuck; it is replaced"),
                ("die", "ended before its environments were closed; it is replaced"),
                ("hang", "did not close within"),
            )
            for mode in MODES
        ],
    ),
)
def test_what_goes_wrong_while_it_closes_is_logged(
    deed: str,
    line: str,
    mode: AutoresetMode,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vecspaces.vector.session.recycling.CLOSE_SECONDS", overrun(0.3))
    caplog.set_level(logging.INFO, "vecspaces")
    with make(tmp_path, mode) as envs:
        envs.reset(seed=7)
        expected = play(envs)
        envs.reset(seed=7)
        (tmp_path / f"{deed} closed").touch()
        assert play(envs) == expected
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1 and line in lines[0] and lines[0].startswith("worker ")
    reasons = {record.getMessage() for record in caplog.records if record.levelname == "INFO"}
    assert reasons == {
        f"worker {row} (environment {row}) was replaced after 1 episodes (recycle_after=1)"
        for row in range(2)
    }


@on_posix
def test_workers_that_are_replaced_together_have_one_time_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecspaces.vector.session.recycling.CLOSE_SECONDS", overrun(0.3))
    env_fns = [Errand, Errand, partial(Errand, 0, tmp_path)]
    with AsyncVectorEnv(env_fns, num_workers=3, autoreset_mode="Disabled", recycle_after=1) as envs:
        envs.reset()
        envs.step([0] * 3)
        (tmp_path / "hang closed").touch()
        envs.reset()
    late = [record.getMessage() for record in caplog.records if "within" in record.getMessage()]
    assert len(late) == 1 and late[0].startswith("worker 2 (environment 2) did not close")


@on_posix
@pytest.mark.parametrize(
    ("deed", "place", "action", "mode"),
    ordinarily(
        lambda *cell: (
            cell
            in (
                ("fail", "built", "raise", NEXT_STEP),
                ("die", "first reset", "restart", SAME_STEP),
                ("hang", "first reset", "restart", NEXT_STEP),
            )
        ),
        [
            (*fault, mode)
            for fault in (
                ("fail", "built", "raise"),
                ("fail", "first reset", "raise"),
                *product(["die"], ["built", "first reset"], ["raise", "restart"]),
                *product(["hang"], ["first reset"], ["raise", "restart"]),
            )
            for mode in MODES
        ],
    ),
)
def test_a_successor_that_fails_is_restarted_or_raises_and_a_reset_builds_it_again(
    deed: str, place: str, action: str, mode: AutoresetMode, tmp_path: Path, hurry: Any
) -> None:
    arguments: dict[str, Any] = {"on_worker_death": action, "max_restarts": 1}
    order = tmp_path / f"{deed} {place}"
    if deed == "hang":
        arguments = {"on_step_timeout": action, "step_timeout": 30.0}
    with make(tmp_path, mode, **arguments) as envs:
        rewards = []
        for touches in (False, True):
            envs.reset(seed=7)
            envs.step([0, 0])
            if touches:
                order.touch()
                if deed == "hang":
                    hurry(lambda: not order.exists(), 0)
            if touches and action == "raise":
                kinds = {"fail": OddError, "die": WorkerDiedError, "hang": StepTimeoutError}
                with pytest.raises(kinds[deed]) as caught:
                    play(envs, 4)
                if deed == "fail":
                    begins = "step" if mode is NEXT_STEP else "reset"
                    verb = "build" if place == "built" else begins
                    where = f"environment 0 (worker 0) failed in {verb}"
                    assert where in str(caught.value.__cause__)
                envs.reset(seed=7)
                envs.step([0, 0])
            rewards.append(play(envs))
        assert rewards[0] == rewards[1]  # no episode is lost
    assert not order.exists()


@on_posix
@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_a_successor_that_dies_after_it_has_answered_loses_its_episode(
    mode: AutoresetMode, tmp_path: Path
) -> None:
    fns = [partial(Gated, tmp_path / "gate", number, length=2 + number) for number in range(2)]
    options: Any = {"autoreset_mode": mode, "on_worker_death": "restart", "stats": True}
    with AsyncVectorEnv(fns, num_workers=2, recycle_after=1, **options) as envs:
        begin(envs)
        pid = envs.processes[0].pid
        envs.step_async([0, 4])  # the other one waits at the gate
        while envs.processes[0].pid == pid:
            with pytest.raises(StepTimeoutError):
                envs.step_wait(timeout=0.05)
        wait_until_idle(envs.processes[0].pid)
        envs.processes[0].kill()
        (tmp_path / "gate").touch()
        *_, truncations, infos = envs.step_wait()
        assert not truncations.any() and "worker_restarted" not in infos
        *_, truncations, infos = envs.step([0, 0])
        assert truncations.tolist() == infos["worker_restarted"].tolist() == [True, False]
        stats = envs.stats()
        assert stats.restarts.tolist() == stats.lost_episodes.tolist() == [1, 0]
        envs.step([0, 0])


@on_posix
def test_an_episode_that_a_crash_ends_does_not_count(tmp_path: Path) -> None:
    with make(tmp_path, on_worker_death="restart", recycle_after=2, stats=True) as envs:
        envs.reset(seed=7)
        envs.step([0, 0])
        envs.processes[0].kill()
        envs.processes[0].join()
        *_, truncations, _ = envs.step([0, 0])
        assert truncations.tolist() == [True, False]
        # Twice a reset and 2 steps; the worker is replaced at the next step.
        for count in (0, 0, 0, 0, 0, 0, 0, 1):
            assert envs.stats().recycled_after[0] == count
            envs.step([0, 0])


@on_posix
@guarded()
@pytest.mark.parametrize("mode", [pytest.param(NEXT_STEP, marks=pytest.mark.full), SAME_STEP])
def test_close_while_a_worker_is_replaced_ends_the_call(
    mode: AutoresetMode, tmp_path: Path
) -> None:
    envs = make(tmp_path, mode)
    envs.reset(seed=7)
    order = tmp_path / "hang closed"
    order.touch()

    def close(*_: Any) -> None:
        if not order.exists():  # a worker hangs in it
            signal.setitimer(signal.ITIMER_REAL, 0)
            envs.close(timeout=0.1)

    before = signal.signal(signal.SIGALRM, close)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.warns(RuntimeWarning), pytest.raises(ClosedEnvironmentError):
            while True:
                play(envs)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@on_posix
@guarded(900)
@pytest.mark.parametrize(
    ("mode", "rounds"),
    [(SAME_STEP, 4), *(pytest.param(mode, 300, marks=pytest.mark.full) for mode in MODES)],
)
def test_an_interrupted_replacement(mode: AutoresetMode, rounds: int, tmp_path: Path) -> None:
    """Whether it had begun or not, it ends then, and nothing of the old worker is left."""
    count = 0
    with make(tmp_path, mode, recycle_after=1) as envs, Interrupts(7, 0.02) as interrupts:
        while interrupts.count < rounds:
            count += 1
            begin(envs)
            pids = [process.pid for process in envs.processes]
            call, wait = (lambda: envs.step([0, 0])), envs.step_wait
            if mode is DISABLED:
                call, wait = (lambda: envs.reset(options={"reset_mask": ENDED})), envs.reset_wait
            done, result = interrupts.during(call)
            try:
                if not done:
                    try:
                        result = wait()
                    except NoAsyncCallError:  # it had not begun
                        result = call()
            except ResetNeededError:  # some workers may have received it
                continue
            observations, infos = result[0], result[-1]
            (expected, _) = Errand().reset(seed=int(infos["seed"][0]))
            assert_identical(observations[0], expected)
            if mode is not DISABLED:
                assert result[1].tolist() == [
                    0.0 if mode is NEXT_STEP else 2.0,
                    3.0 - (mode is SAME_STEP),
                ]
            now = [process.pid for process in envs.processes]
            assert now[0] != pids[0] and now[1] == pids[1]
            assert envs.step([0, 0])[0][0, 1] == 1.0
    assert count > 2 and len(notes(tmp_path, "built")) >= count


@diagonal(mode=MODES, call=["reset", "send_reset"])
def test_a_step_after_a_reset_that_was_interrupted(
    call: str, mode: AutoresetMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker was replaced already, and the reset of the new environment was not sent."""

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with make(tmp_path, mode) as envs:
        begin(envs)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Workers, "note_start", interrupt)
            if call == "reset":
                envs.reset(options={"reset_mask": ENDED})
            else:
                envs.send_reset([0])
        with pytest.raises(ResetNeededError, match="built environment 0 anew"):
            envs.step([0, 0])
        envs.reset(options={"reset_mask": ENDED})
        envs.step([0, 0])


def begin(envs: Any) -> None:
    """Step until the next step or reset replaces worker 0, and not the other."""
    envs.reset(seed=5)
    envs.step([0, 0])
    if envs.autoreset_mode is not SAME_STEP:
        envs.step([0, 0])


# ---------------------------------------------------------------------- memory


def read_memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("Pss:")[2].split()[0]) * 1024


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@on_linux
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("episodes", "num_envs", "num_workers", "limit"),
    # 10^5 episodes take some four minutes of processor time: more environments for each message,
    # more episodes for each worker that is started.
    [(100, 2, 1, 60), pytest.param(100_000, 32, 2, 250, marks=pytest.mark.full)],
)
def test_an_environment_that_leaks_runs_in_bounded_memory(
    episodes: int, num_envs: int, num_workers: int, limit: int
) -> None:
    """It leaks a megabyte per episode."""
    most, megabyte = [0], 1 << 20

    def policy(observations: Any) -> Any:
        return np.zeros(len(observations), np.int64)

    def look(finished: int, _: int) -> None:
        if finished % (limit // 6) == 0:
            for server in children(os.getpid()):
                for worker in children(server):
                    try:
                        most.append(read_memory(worker))
                    except (OSError, IndexError):  # it has just ended
                        continue

    found = evaluate(
        policy,
        partial(Errand, leak=megabyte),
        episodes=episodes,
        seed=1,
        num_envs=num_envs,
        num_workers=num_workers,
        progress=look,
        # A fork would count pages of this process.
        vector_kwargs={"context": "forkserver", "recycle_memory": (limit + 90) * megabyte},
    )
    assert (found.lengths == 2).all()
    # On a busy machine memory is read rarely, since reading may take a twentieth of the time.
    assert limit * megabyte < max(most) < (4 * limit + 10) * megabyte
