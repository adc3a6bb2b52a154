"""The probes of `check_env`: what each measures in a separate process, and its thresholds.

A probe is a function that `ProbeHost.run` calls with a `Played` to fill.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces import system
from vecspaces.checks import show_value
from vecspaces.testing.isolation import Played, ProbeHost
from vecspaces.testing.recording import Recorder, digest
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.group.building import Builder, Built, WrongSpace, is_vector_env

SIBLINGS = 8
_RESETS = 300
_FRAMES = 20
# Fewer items than `_FEW` may take `_PATIENCE` times as long, for environments with slow resets.
_FEW, _PATIENCE = 50, 10


def _for_seconds(seconds: float, items: Iterable[Any], least: int = 5) -> Iterator[Any]:
    """Yield at least `least` items, until the time is over; fewer than 50 may take ten times it."""
    began = time.perf_counter()
    for number, item in enumerate(items, 1):
        yield item
        took = time.perf_counter() - began
        if number >= least and took > (seconds if number >= _FEW else _PATIENCE * seconds):
            return


def _seed_globals(seed: int) -> None:
    # A seed that no environment would choose.
    random.seed(seed + 1_299_709)
    np.random.seed(seed + 1_299_709)


def _global_state() -> tuple[bytes, bytes]:
    """Return digests of the states of the global generators."""
    return digest(hash(random.getstate()[1])), digest(np.random.get_state())


def _build(host: ProbeHost, **kwargs: Any) -> Built:
    built = Builder(AutoresetMode.NEXT_STEP).check(host.make_env(**kwargs), 0)
    if is_vector_env(built.env):
        raise TypeError("the factory returns a vector env: check its single environments")
    return built


def _record(host: ProbeHost, env: Any, ahead: int = 0, **options: Any) -> Recorder:
    """Return a recorder of the host's episodes, or of others with a seed that is `ahead`."""
    return Recorder(env, host.seed + ahead, host.num_steps, host.note, **options)


def _close(*envs: Any) -> None:
    """Close environments; `use_up` reports exceptions of this."""
    for env in envs:
        with contextlib.suppress(Exception):
            env.close()


# ---------------------------------------------------------------------- alone


def inspect_alone(host: ProbeHost, played: Played, budget: float) -> None:
    """Play one environment, and inspect its results and its effects on the process."""
    _seed_globals(0)
    built = _build(host)
    env, declared = built.env, None
    modes = (getattr(env, "metadata", None) or {}).get("render_modes", ())
    played.modes = [str(mode) for mode in modes if mode != "human"]
    if isinstance(built.info_space, WrongSpace):
        played.findings["info-space"] = built.info_space.text
    elif built.info_space is not None:
        declared = built.info_space.spaces
    recorder = _record(host, env, inspect=True, declared=declared)
    played.trace = trace = recorder.trace
    findings, folder, state = recorder.findings, os.getcwd(), _global_state()
    with played.guard(host, "reset 1"):
        for _ in _for_seconds(budget, recorder.play()):
            if "touches-globals" not in findings and _global_state() != state:
                findings["touches-globals"] = (
                    f"{trace[-1].where}: draws from the global generators of `random` or NumPy, or "
                    "seeds them"
                )
    if os.getcwd() != folder:
        findings["changes-directory"] = (
            f"changes the working directory from {folder} to {os.getcwd()}"
        )
    played.findings.update(findings)


# ---------------------------------------------------------------------- seeds


def try_seeds(host: ProbeHost, played: Played, num_steps: int, budget: float) -> None:
    """Compare episodes with the same seed, with different seeds, and with none."""

    def play(env: Any, chosen: int | None) -> bytes:
        """Return a digest of a reset and of the steps that follow it."""
        recorder = _record(host, env)
        recorder.reset(chosen, "reset" if chosen is None else f"reset(seed={chosen})")
        for number in range(num_steps):
            if recorder.step(f"step {number + 1} after it"):
                break
        return digest([record[1:3] for record in recorder.trace])

    _seed_globals(0)
    env, seed = _build(host).env, host.seed
    first, again = play(env, seed), play(env, seed)
    unseeded = [play(env, None) for _ in _for_seconds(budget, range(16), least=1)]
    _close(env)
    seeded = []
    for number in _for_seconds(budget, range(1, 9), least=1):
        other = _build(host).env
        seeded.append(play(other, seed + number))
        _close(other)
    # If episodes rarely differ, some are equal by chance, but rarely all of them.
    repeats = {*unseeded} == {first} and first not in seeded
    ignores = {*seeded} == {first} and first not in unseeded
    if ignores and len(seeded) >= 4:
        played.findings["seed-ignored"] = (
            f"{len(seeded) + 1} different seeds begin the same episode, although others follow it"
        )
    elif repeats and len(unseeded) >= 8:
        played.findings["unseeded-reset"] = (
            f"reset() without a seed began the episode of the last seed {len(unseeded)} times: "
            "training sees one episode"
        )
    elif first != again:
        played.findings["same-seed"] = (
            "reset(seed) a second time, in the same environment, begins another episode"
        )


# ---------------------------------------------------------------------- in company


def _play_together(host: ProbeHost, played: Played, envs: list[Any]) -> Iterator[None]:
    """Play environments in turns; `played.trace` is that of the middle environment."""
    subject = len(envs) // 2
    # The others have other seeds.
    recorders = [_record(host, env, 0 if i == subject else 1000 + i) for i, env in enumerate(envs)]
    turns = [recorder.play() for recorder in recorders]
    played.trace = recorders[subject].trace
    # Episodes begin and end at different times.
    for ahead, turn in enumerate(turns[subject + 1 :], 1):
        for _ in range(ahead):
            next(turn, None)
    for _ in turns[subject]:
        for i, turn in enumerate(turns):
            if i != subject:
                next(turn, None)
        yield


def replay(
    host: ProbeHost,
    played: Played,
    budget: float,
    globals_seed: int,
    neighbours: tuple[str, ...] = (),
) -> None:
    """Play an environment in this process, alone or beside others that may disturb it.

    `"siblings"`: seven others are played too; `"random"`: the global generators are seeded and
    drawn from; `"directory"`: the working directory changes. `budget` is the time for all
    environments.
    """
    _seed_globals(globals_seed)
    if neighbours:
        host.note("construction beside others")
    built = [_build(host) for _ in range(SIBLINGS if "siblings" in neighbours else 1)]
    first, *others = built
    for other in others:
        if other.change_since(first):
            played.findings["spaces-differ"] = (
                "two environments of the factory have different spaces: "
                f"{first.observation_spaces[0]} with {first.action_spaces[0]} and "
                f"{other.observation_spaces[0]} with {other.action_spaces[0]}"
            )
            return
    envs = [env.env for env in built]
    with tempfile.TemporaryDirectory() as elsewhere, contextlib.chdir("."):
        turns = _for_seconds(budget, _play_together(host, played, envs))
        for number, _ in enumerate(itertools.chain([None], turns)):
            if "random" in neighbours:
                random.random()
                np.random.random(3)
                if number % 7 == 0:
                    _seed_globals(number)
            if "directory" in neighbours:
                os.chdir(elsewhere)
    _close(*envs)


# ---------------------------------------------------------------------- render


def render_frames(
    host: ProbeHost, played: Played, mode: str | None, budget: float, count: int
) -> None:
    """Render in each step of `count` environments; `frames` has the digests of one of them."""
    kwargs = {} if mode is None else {"render_mode": mode}
    _seed_globals(0)
    with played.guard(host, f"construction with render_mode={mode!r}", "render"):
        envs = [_build(host, **kwargs).env for _ in range(count)]
        mode = getattr(envs[0], "render_mode", None)
        if mode is None or mode == "human":
            return
        for _ in _for_seconds(budget, _play_together(host, played, envs), least=3):
            host.note(f"render() after {played.trace[-1].where}")
            frames = [env.render() for env in envs]
            frame = frames[len(envs) // 2]
            wrong = _wrong_frame(mode, frame)
            if wrong is not None:
                played.findings.setdefault("render", f"render_mode={mode!r}: {wrong}")
            played.frames.append(digest(frame))
            if len(played.frames) == _FRAMES:
                break
        _close(*envs)


def _wrong_frame(mode: str, frame: Any) -> str | None:
    """Return the fault of a frame, or None; modes without a fixed form have none."""
    if mode == "rgb_array":
        right = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3
        if not right or frame.shape[2] != 3:
            return f"render() returns {show_value(frame)}, expected uint8 (height, width, 3)"
    if mode == "ansi" and not isinstance(frame, str):
        return f"render() returns {show_value(frame)}, expected a str"
    return None


# ---------------------------------------------------------------------- resources


def use_up(host: ProbeHost, played: Played, budget: float) -> None:
    """Find leaks by 300 short episodes and two closes: memory, descriptors, threads, processes."""
    _trim_heap()
    base, threads = _resources(), threading.active_count()
    env = _build(host).env
    recorder, seed = _record(host, env), host.seed
    marks: list[dict[str, float]] = []
    ends = time.perf_counter() + budget
    for count in range(1, _RESETS + 1):
        recorder.reset(seed + count, f"reset {count} of {_RESETS}")
        if not recorder.step("the step after it"):
            recorder.step("the second step after it")
        recorder.trace.clear()
        late = time.perf_counter() > ends
        if late or count in (10, _RESETS // 3, 2 * _RESETS // 3, _RESETS):
            marks.append({"resets": count, **_resources()})
        if late:
            break
    for name, grown in _find_growth(marks).items():
        played.findings[f"leaks-{name}"] = f"{grown} of up to two steps"
    if hasattr(env, "close"):
        with played.guard(host, "close()", "close"):
            env.close()
        if played.failure is None:
            with played.guard(host, "a second close()", "close-twice"):
                env.close()
    # Threads of native libraries are not counted, because their pools remain for later use.
    left = {
        "threads": threading.active_count() - threads,
        "processes": _resources()["processes"] - base["processes"],
    }
    for name, more in left.items():
        if more > 0:
            message = f"after close(), {more:.0f} of its {name} go on"
            played.findings.setdefault(f"leaks-{name}", message)


def _find_growth(marks: list[dict[str, float]]) -> dict[str, str]:
    """Describe what grew between the marks, the first of which follows a warm-up."""
    grown = {}
    resets = marks[-1]["resets"] - marks[0]["resets"]
    for name in ("descriptors", "threads", "processes"):
        more = marks[-1][name] - marks[0][name]
        if resets >= 5 and more >= max(5, resets // 4):
            grown[name] = f"{more:.0f} more {name} after {resets:.0f} episodes"
    # Each third must have grown, by a megabyte and by ten kilobytes per reset.
    sizes, counts = (np.diff([mark[name] for mark in marks[1:]]) for name in ("memory", "resets"))
    if len(sizes) >= 2 and (sizes > np.maximum(2**20, 10_000 * counts)).all():
        mean = sizes.sum() / counts.sum() / 1000
        grown["memory"] = f"{mean:,.0f} kB more memory in each episode"
    return grown


def _trim_heap() -> None:
    """Give back the memory that the parent had freed before the fork: a leak would hide in it."""
    if system.PROC:
        with contextlib.suppress(AttributeError):  # the C library is not glibc
            system.load_libc().malloc_trim(0)


def _resources() -> dict[str, float]:
    gc.collect()
    proc = Path("/proc/self")
    if not system.PROC:
        threads, processes = threading.active_count(), len(multiprocessing.active_children())
        return {"descriptors": 0, "memory": 0, "threads": threads, "processes": processes}
    processes = 0
    for task in (proc / "task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended
            processes += len((task / "children").read_text().split())
    return {
        "descriptors": len(os.listdir(proc / "fd")),
        "memory": _count_memory((proc / "status").read_text()),
        "threads": len(os.listdir(proc / "task")),
        "processes": processes,
    }


def _count_memory(status: str) -> int:
    """Return the bytes of memory, without pages of files, which the kernel frees when it likes."""
    kilobytes = re.findall(r"^Rss(?:Anon|Shmem):\s*(\d+) kB$", status, re.MULTILINE)
    # Some kernels do not tell them apart.
    return 1024 * sum(map(int, kilobytes or re.findall(r"^VmRSS:\s*(\d+)", status, re.MULTILINE)))
