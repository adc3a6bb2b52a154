"""The probes of `check_env`: what each measures in a separate process, and its thresholds."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import multiprocessing
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from vecspaces.checks import show_type, show_value
from vecspaces.sampling import MASK
from vecspaces.testing.isolation import Played, ProbeHost
from vecspaces.testing.recording import DeclaredInfos, Recorder, digest
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.group.building import Builder, Built, WrongSpace, is_vector_env

SIBLINGS = 8
_SUBJECT = 3  # which of the eight is recorded
_RESETS = 300
_RESETS_ALONE = 60
_FRAMES = 20
_TIMED_STEPS = 2000
# Modules and packages whose classes belong to no environment.
_LIBRARIES = {
    "builtins",
    "typing",
    "abc",
    "vecspaces",
    "gymnasium.core",
    "gymnasium.utils.record_constructor",
}
# The types of class attributes that are compared.
_DATA = (int, float, str, bytes, list, dict, tuple, set, np.ndarray, np.generic, type(None))

Args = ParamSpec("Args")
Item = TypeVar("Item")


def _probe(
    fill: Callable[Concatenate[ProbeHost, Played, Args], None],
) -> Callable[Concatenate[ProbeHost, Args], Played]:
    """Decorate a function that fills a result, as a probe."""

    @functools.wraps(fill)
    def probe(host: ProbeHost, /, *args: Args.args, **kwargs: Args.kwargs) -> Played:
        played = Played()
        with played.guard(host, "construction"):
            fill(host, played, *args, **kwargs)
        return played

    return probe


def _for_seconds(seconds: float, items: Iterable[Item], least: int = 5) -> Iterator[Item]:
    """Yield items until the time is over, but at least `least` of them."""
    ends = time.perf_counter() + seconds
    for number, item in enumerate(items, 1):
        yield item
        if number >= least and time.perf_counter() > ends:
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
        if hasattr(env, "close"):
            with contextlib.suppress(Exception):
                env.close()


# ---------------------------------------------------------------------- alone


@_probe
def inspect_alone(host: ProbeHost, played: Played, budget: float) -> None:
    """Play one environment, and inspect its results and its effects on the process."""
    _seed_globals(0)
    built = _build(host)
    env, declared, changed = built.env, None, played.extra.setdefault("changed", [])
    modes = (getattr(env, "metadata", None) or {}).get("render_modes", ())
    played.extra["modes"] = [str(mode) for mode in modes if mode != "human"]
    if isinstance(built.info_space, WrongSpace):
        played.findings["info-space"] = built.info_space.text
    elif built.info_space is not None:
        declared = DeclaredInfos(built.info_space)
    recorder = _record(host, env, inspect=True, declared=declared)
    played.trace = trace = recorder.trace
    printed, folder, classes = host.printed_bytes(), os.getcwd(), _read_classes(env)
    with played.guard(host, "reset 1"):
        states = _global_state()
        for _ in _for_seconds(budget, recorder.play()):
            if _global_state() != states:
                states = _global_state()
                played.findings.setdefault(
                    "touches-globals",
                    f"{trace[-1].where}: draws from the global generators of `random` or NumPy, or "
                    "seeds them",
                )
    found = recorder.findings
    if declared is not None and declared.missing:
        names = ", ".join(declared.missing)
        found["info-missing"] = f"no info of {len(trace)} resets and steps has {names}"
    forms = list(recorder.masks)
    if declared is None and len(forms) == 1 and forms[0] is not None:
        found["info-undeclared"] = (
            f"infos have {MASK!r}, always a {show_type(*forms[0])}, and there is no info_space"
        )
    if os.getcwd() != folder:
        found["changes-directory"] = f"changes the working directory from {folder} to {os.getcwd()}"
    size = host.printed_bytes() - printed
    if size > 0:
        text = " ".join(host.printed_text(printed).split())
        found["prints"] = f"resets and steps print {size:,} bytes: {text[:80]!r}"
    changed += sorted(
        name for name, value in _read_classes(env).items() if classes.get(name) != value
    )
    if changed:
        found["class-attribute"] = f"changes {', '.join(changed)}"
    played.findings.update(found)


def _read_classes(env: Any) -> dict[str, bytes]:
    """Return digests of the attributes of an environment's classes, and of its wrappers'."""
    found: dict[str, bytes] = {}
    layer = env
    while layer is not None:
        for kind in type(layer).__mro__:
            if {kind.__module__, kind.__module__.partition(".")[0]} & _LIBRARIES:
                continue
            for name, value in vars(kind).items():
                if not name.startswith(("__", "_abc")) and isinstance(value, _DATA):
                    found[f"{kind.__name__}.{name}"] = digest(value)
        layer = vars(layer).get("env") if hasattr(layer, "__dict__") else None
    return found


# ---------------------------------------------------------------------- seeds


@_probe
def try_seeds(host: ProbeHost, played: Played, num_steps: int, budget: float) -> None:
    """Compare episodes with the same seed, with different seeds, and with none."""

    def play(env: Any, own: int | None) -> bytes:
        """Return a digest of a reset and of the steps that follow it."""
        recorder = _record(host, env)
        recorder.reset(own, "reset" if own is None else f"reset(seed={own})")
        for number in range(num_steps):
            if recorder.step(f"step {number + 1} after it"):
                break
        return digest([record[1:3] for record in recorder.trace])

    _seed_globals(0)
    env, seed = _build(host).env, host.seed
    first, again = play(env, seed), play(env, seed)
    unseeded, seeded = [first], [first]
    for _ in _for_seconds(budget, range(16), least=1):
        unseeded.append(play(env, None))
    for number in _for_seconds(budget, range(1, 9), least=1):
        other = _build(host).env
        seeded.append(play(other, seed + number))
        _close(other)
    # If episodes rarely differ, some are equal by chance.
    repeats = len(set(unseeded)) == 1 and 2 * len(set(seeded)) > len(seeded)
    ignores = len(set(seeded)) == 1 and 2 * len(set(unseeded)) > len(unseeded)
    if first != again and not ignores:
        played.findings["same-seed"] = (
            "reset(seed) a second time, in the same environment, begins another episode"
        )
    elif repeats and len(unseeded) > 8:
        played.findings["unseeded-reset"] = (
            f"reset() without a seed began the episode of the last seed {len(unseeded) - 1} "
            "times: training sees one episode"
        )
    if ignores and len(seeded) > 4:
        played.findings["seed-ignored"] = (
            f"{len(seeded)} different seeds begin the same episode, although others follow it"
        )
    _close(env)


# ---------------------------------------------------------------------- in company


class _Company:
    """Environments in one process, one of which is recorded in `played.trace`."""

    def __init__(self, host: ProbeHost, played: Played, envs: list[Any]) -> None:
        self.envs, self.subject = envs, min(_SUBJECT, len(envs) - 1)
        # The others have other seeds.
        self.recorders = [
            _record(host, env, 0 if i == self.subject else 1000 + i) for i, env in enumerate(envs)
        ]
        self.turns = [recorder.play() for recorder in self.recorders]
        played.trace = self.recorders[self.subject].trace


@_probe
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
    each = [_build(host) for _ in range(SIBLINGS if "siblings" in neighbours else 1)]
    other = next((one for one in each if one.change_since(each[0])), None)
    if other is not None:
        shown = " and ".join(
            f"{one.observation_spaces[0]} with {one.action_spaces[0]}" for one in (each[0], other)
        )
        played.findings["spaces-differ"] = (
            f"two environments of the factory have different spaces: {shown}"
        )
        return
    company = _Company(host, played, [one.env for one in each])
    turns, subject = company.turns, company.subject
    # Episodes begin and end at different times.
    for ahead, turn in enumerate(turns[subject + 1 :], 1):
        for _ in range(ahead):
            next(turn, None)
    with tempfile.TemporaryDirectory() as elsewhere, contextlib.chdir("."):
        _disturb(neighbours, 0, elsewhere)
        for number, _ in enumerate(_for_seconds(budget, turns[subject]), 1):
            for i, turn in enumerate(turns):
                if i != subject:
                    next(turn, None)
            _disturb(neighbours, number, elsewhere)
    _close(*company.envs)


def _disturb(neighbours: tuple[str, ...], number: int, elsewhere: str) -> None:
    if "random" in neighbours:
        random.random()
        np.random.random(3)
        if number % 7 == 0:
            _seed_globals(number)
    if "directory" in neighbours:
        os.chdir(elsewhere)


# ---------------------------------------------------------------------- render


@_probe
def render_frames(
    host: ProbeHost, played: Played, mode: str | None, budget: float, number: int
) -> None:
    """Render in each step of one of `number` environments; `extra` has the frames' digests."""
    kwargs = {} if mode is None else {"render_mode": mode}
    frames: list[bytes] = played.extra.setdefault("frames", [])
    _seed_globals(0)
    with played.guard(host, f"construction with render_mode={mode!r}", "render"):
        envs = [_build(host, **kwargs).env for _ in range(number)]
        mode = getattr(envs[0], "render_mode", None)
        if mode is None or mode == "human":
            return
        company = _Company(host, played, envs)
        for _ in _for_seconds(budget, zip(*company.turns, strict=False), least=3):
            for i, env in enumerate(envs):
                host.note(f"render() after {company.recorders[i].trace[-1].where}")
                frame = env.render()
                if i == company.subject:
                    wrong = _wrong_frame(mode, frame)
                    if wrong is not None:
                        played.findings.setdefault("render", f"render_mode={mode!r}: {wrong}")
                    frames.append(digest(frame))
            if len(frames) == _FRAMES:
                break
        _close(*envs)


def _wrong_frame(mode: str, frame: Any) -> str | None:
    """Return the fault of a frame, or None; modes without a fixed form have none."""
    if mode.endswith("_list"):
        if not isinstance(frame, list):
            return f"render() returns {show_value(frame)}, expected a list of frames"
        found = [_wrong_frame(mode.removesuffix("_list"), one) for one in frame]
        return next((wrong for wrong in found if wrong is not None), None)
    if mode == "rgb_array":
        right = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3
        if not right or frame.shape[2] != 3:
            return f"render() returns {show_value(frame)}, expected uint8 (height, width, 3)"
    if mode == "ansi" and not isinstance(frame, str):
        return f"render() returns {show_value(frame)}, expected a str"
    return None


# ---------------------------------------------------------------------- resources


@_probe
def use_up(host: ProbeHost, played: Played, budget: float) -> None:
    """Find leaks by 300 resets and two closes: memory, descriptors, threads, processes."""
    _trim_heap()
    base, threads = _resources(), threading.active_count()
    env = _build(host).env
    recorder, seed = _record(host, env), host.seed
    marks: list[dict[str, float]] = []
    steps, ends = 0, time.perf_counter() + budget
    for count in range(1, _RESETS + 1):
        recorder.reset(seed + count, f"reset {count} of {_RESETS}")
        ended = recorder.step("the step after it")
        if not ended:
            recorder.step("the second step after it")
        steps += 1 if ended else 2
        recorder.trace.clear()
        late = time.perf_counter() > ends
        if late or count in (10, _RESETS // 3, 2 * _RESETS // 3, _RESETS):
            marks.append({"resets": count, "steps": steps, **_resources()})
        if late:
            break
    grown = _find_growth(marks)
    if grown:
        before = _resources()
        for number in range(1, _RESETS_ALONE + 1):
            recorder.reset(seed + number, f"reset {number} of {_RESETS_ALONE}, without steps")
            recorder.trace.clear()
        after = _resources()
        alone = {name: (after[name] - before[name]) / _RESETS_ALONE for name in after}
        _report_growth(played, marks, grown, alone)
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
            found = f"after close(), {more:.0f} of its {name} go on"
            played.findings.setdefault(f"leaks-{name}", found)


def _find_growth(marks: list[dict[str, float]]) -> dict[str, float]:
    """Return the growth per reset between the marks, the first of which follows a warm-up."""
    found: dict[str, float] = {}
    resets = marks[-1]["resets"] - marks[0]["resets"]
    for name in ("descriptors", "threads", "processes"):
        grown = marks[-1][name] - marks[0][name]
        if resets >= 5 and grown >= max(5, resets // 4):
            found[name] = grown / resets
    # Each third must have grown, by a megabyte and by ten kilobytes per reset.
    sizes, counts = (np.diff([mark[name] for mark in marks[1:]]) for name in ("memory", "resets"))
    if len(sizes) >= 2 and (sizes > np.maximum(2**20, 10_000 * counts)).all():
        found["memory"] = sizes.sum() / counts.sum()
    return found


def _report_growth(
    played: Played, marks: list[dict[str, float]], grown: dict[str, float], alone: dict[str, float]
) -> None:
    """Report growth with its cause: steps, if resets alone cause less than half of it."""
    resets, steps = (marks[-1][name] - marks[0][name] for name in ("resets", "steps"))
    for name, each in grown.items():
        count, kind = (steps, "step") if alone[name] < each / 2 else (resets, "reset")
        if name == "memory":
            found = f"{each * resets / count / 1000:,.0f} kB more memory in each {kind}"
        else:
            found = f"{each * resets:.0f} more {name} after {count} {kind}s"
        played.findings[f"leaks-{name}"] = found


def _trim_heap() -> None:
    """Give back the memory that the parent had freed before the fork: a leak would hide in it."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # the C library is not glibc
            ctypes.CDLL(None).malloc_trim(0)


def _resources() -> dict[str, float]:
    gc.collect()
    proc = Path("/proc/self")
    if sys.platform != "linux" or not proc.is_dir():
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


# ---------------------------------------------------------------------- after the end, and time


@_probe
def step_after_end(host: ProbeHost, played: Played, budget: float) -> None:
    """Step after the end of an episode, when an environment may raise."""
    env = _build(host).env
    recorder = _record(host, env)
    recorder.reset(host.seed, "reset")
    numbers = _for_seconds(budget, range(1, host.num_steps + 1), least=1)
    if not any(recorder.step(f"step {number}") for number in numbers):
        return
    after = Played()
    with after.guard(host, "a step after the end of its episode"):
        inspector = _record(host, env, inspect=True)
        for _ in range(3):
            inspector.step("a step after the end of its episode")
    for name in ("observation", "reward", "step-form"):
        if after.failure is None and name in inspector.findings:
            played.findings["after-end"] = inspector.findings[name]


@_probe
def measure(host: ProbeHost, played: Played, budget: float) -> None:
    """Time steps and resets without inspecting results; `extra` has the seconds."""
    steps, busy, resets = (
        played.extra.setdefault(name, []) for name in ("steps", "busy", "resets")
    )
    env = _build(host).env
    recorder = _record(host, env)
    over = True
    for _ in _for_seconds(budget, range(_TIMED_STEPS)):
        if over:
            host.note("a reset that is timed")
            began = time.perf_counter()
            _, info = env.reset(seed=host.seed) if not resets else env.reset()
            resets.append(time.perf_counter() - began)
            recorder.take_mask(info, host.doing)
        action = recorder.next_action()
        host.note("a step that is timed")
        began = time.perf_counter()
        worked = time.process_time()
        _, _, terminated, truncated, info = env.step(action)
        busy.append(time.process_time() - worked)
        steps.append(time.perf_counter() - began)
        over = bool(terminated) or bool(truncated)
        recorder.take_mask(None if over else info, host.doing)
    _close(env)
