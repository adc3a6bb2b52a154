"""What `check_env` does with an environment, each in a process of its own; returns plain values."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vecspaces.checks import show_type, show_value
from vecspaces.sampling import MASK, sample_next
from vecspaces.testing.recording import DeclaredInfos, Record, Recorder, StopPlaying, digest
from vecspaces.testing.workers import Place
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.group.in_place import find_bind
from vecspaces.vector.group.members import Builder, Built, WrongSpace, is_vector_env
from vecspaces.vector.sync_vector_env import SyncVectorEnv

SIBLINGS = 8
_SUBJECT = 3  # which of the eight is recorded
_RESETS = 300
_RESETS_ALONE = 60
_FRAMES = 20


@dataclass
class Played:
    """What came out of one run.

    Attributes:
        trace: What the environment returned.
        findings: By name, what is wrong.
        failure: What was raised, and where; None if nothing was.
        extra: Values of this probe alone.
    """

    trace: list[Record] = field(default_factory=list)
    findings: dict[str, str] = field(default_factory=dict)
    failure: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def guard(self, place: Place, doing: str, name: str = "raises") -> Iterator[None]:
        """Turn an exception of the environment into a finding."""
        place.note(doing)
        try:
            yield
        except StopPlaying:
            pass
        except (Exception, SystemExit) as error:
            self.failure = f"{place.doing}: raises {_describe(error)}"
            self.findings.setdefault(name, self.failure)


def _describe(error: BaseException) -> str:
    """Return an exception in one line, with the line of the environment that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{where}"


def _seed_globals(seed: int) -> None:
    # No seed that an environment would choose.
    random.seed(seed + 1_299_709)
    np.random.seed(seed + 1_299_709)


def _global_state() -> tuple[bytes, bytes]:
    """Return digests of the states of the global generators."""
    return digest(hash(random.getstate()[1])), digest(np.random.get_state())


def _build(make_env: Callable[..., Any], **kwargs: Any) -> Built:
    built = Builder(AutoresetMode.NEXT_STEP).build(partial(make_env, **kwargs), 0)
    if is_vector_env(built.env):
        raise TypeError("the factory returns a vector env: check its single environments")
    return built


def _close(env: Any) -> None:
    """Close an environment; `use_up` reports what that raises."""
    if hasattr(env, "close"):
        with contextlib.suppress(Exception):
            env.close()


# ---------------------------------------------------------------------- alone


def play_alone(
    place: Place, seed: int, num_steps: int, budget: float, globals_seed: int, inspect: bool
) -> Played:
    """Play one environment, alone in this process; where steps are slow, fewer of them.

    With `inspect`, also look at all that it returns and touches.
    """
    played = Played()
    _seed_globals(globals_seed)
    with played.guard(place, "construction", "construction"):
        built = _build(place.make_env)
    if played.failure is not None:
        return played
    env, player, declared = built.env, None, None
    played.extra["binds"] = binds = find_bind(env) is not None
    if isinstance(built.info_space, WrongSpace):
        played.findings["info-space"] = built.info_space.text
    elif built.info_space is not None and inspect:
        declared = DeclaredInfos(built.info_space)
    printed, folder, began = place.printed_bytes(), os.getcwd(), time.perf_counter()
    with played.guard(place, "reset 1"):
        classes = _read_classes(env) if inspect else {}
        player = Recorder(
            env, seed, num_steps, place.note, inspect=inspect, declared=declared, binds=binds
        )
        played.trace = player.trace
        states = _global_state()
        for number, _ in enumerate(player.play()):
            if number == 0:
                played.extra["state after reset"] = _global_state()
            if inspect and _global_state() != states:
                states = _global_state()
                played.findings.setdefault(
                    "touches-globals",
                    f"{player.trace[-1].where}: draws from the global generators of `random` or "
                    "NumPy, or seeds them",
                )
            if time.perf_counter() - began > budget and number > 3:
                break
    if inspect and player is not None:
        played.findings.update(player.findings)
        if declared is not None and declared.missing:
            played.findings["info-missing"] = (
                f"no info of {len(played.trace)} resets and steps has {', '.join(declared.missing)}"
            )
        forms = list(player.masks)
        if declared is None and len(forms) == 1 and forms[0] is not None:
            played.findings["info-undeclared"] = (
                f"infos have {MASK!r}, always a {show_type(*forms[0])}, and there is no info_space"
            )
        if os.getcwd() != folder:
            played.findings["changes-directory"] = (
                f"changes the working directory from {folder} to {os.getcwd()}"
            )
        if place.printed_bytes() > printed:
            text = " ".join(place.printed_text(printed).split())
            played.findings["prints"] = (
                f"resets and steps print {place.printed_bytes() - printed:,} bytes: {text[:80]!r}"
            )
        changed = sorted(
            name for name, value in _read_classes(env).items() if classes.get(name) != value
        )
        if changed:
            played.findings["class-attribute"] = f"changes {', '.join(changed)}"
        played.extra["changed"] = changed
    return played


def _show_spaces(built: Built) -> str:
    return f"{built.observation_spaces[0]} with {built.action_spaces[0]}"


def _read_classes(env: Any) -> dict[str, bytes]:
    """Return digests of the attributes of an environment's classes, and of its wrappers'."""
    found: dict[str, bytes] = {}
    layer = env
    while layer is not None:
        for kind in type(layer).__mro__:
            if kind.__module__.partition(".")[0] in ("builtins", "typing", "abc", "vecspaces"):
                continue
            if kind.__module__ in ("gymnasium.core", "gymnasium.utils.record_constructor"):
                continue
            for name, value in vars(kind).items():
                if not name.startswith("__") and not name.startswith("_abc") and _is_data(value):
                    found[f"{kind.__name__}.{name}"] = digest(value)
        layer = vars(layer).get("env") if hasattr(layer, "__dict__") else None
    return found


def _is_data(value: Any) -> bool:
    plain = (int, float, str, bytes, bool, list, dict, tuple, set, np.ndarray, np.generic)
    return value is None or isinstance(value, plain)


# ---------------------------------------------------------------------- seeds


def try_seeds(place: Place, seed: int, num_steps: int, budget: float) -> Played:
    """Compare episodes with the same seed, with different seeds, and with none."""
    played = Played()
    with played.guard(place, "construction"):
        ends = time.perf_counter() + budget
        _seed_globals(0)
        env = _build(place.make_env).env
        first = _episode(place, env, seed, seed, num_steps)
        again = _episode(place, env, seed, seed, num_steps)
        unseeded = [first]
        while len(unseeded) < 17 and time.perf_counter() < ends:
            unseeded.append(_episode(place, env, None, seed, num_steps))
        seeded = [first]
        while len(seeded) < 9 and time.perf_counter() < ends + budget:
            other = _build(place.make_env).env
            seeded.append(_episode(place, other, seed + len(seeded), seed, num_steps))
            _close(other)
        # Where episodes rarely differ, some are equal by chance.
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
    return played


def _episode(place: Place, env: Any, seed: int | None, action_seed: int, num_steps: int) -> bytes:
    """Return a digest of a reset and of the steps that follow it."""
    player = Recorder(env, 0, num_steps, place.note, action_seed=action_seed)
    player.reset(seed, "reset" if seed is None else f"reset(seed={seed})")
    for number in range(num_steps):
        if player.step(f"step {number + 1} after it"):
            break
    return digest([record[1:3] for record in player.trace])


# ---------------------------------------------------------------------- in company


def _make_players(
    place: Place, envs: list[Any], seed: int, num_steps: int
) -> tuple[int, list[Recorder]]:
    """Return which environment is recorded, and a player of each; the others have other seeds."""
    subject = min(_SUBJECT, len(envs) - 1)
    seeds = [seed if i == subject else seed + 1000 + i for i in range(len(envs))]
    players = [
        Recorder(env, own, num_steps, place.note) for env, own in zip(envs, seeds, strict=True)
    ]
    return subject, players


def play_in_company(
    place: Place, seed: int, num_steps: int, budget: float, neighbours: tuple[str, ...]
) -> Played:
    """Play one of eight environments in this process, beside neighbours that disturb it.

    `"siblings"`: the others are played; `"random"`: the global generators are drawn from and
    seeded; `"directory"`: the working directory changes. `budget` is eight times that of one alone.
    """
    played = Played()
    _seed_globals(7)
    number = SIBLINGS if "siblings" in neighbours else 1
    with played.guard(place, "construction beside others"):
        each = [_build(place.make_env) for _ in range(number)]
        other = next((one for one in each if one.change_since(each[0])), None)
        if other is not None:
            played.findings["spaces-differ"] = (
                "two environments of the factory have different spaces: "
                f"{_show_spaces(each[0])} and {_show_spaces(other)}"
            )
            return played
        envs = [one.env for one in each]
        subject, players = _make_players(place, envs, seed, num_steps)
        played.trace = players[subject].trace
        turns = [player.play() for player in players]
        # Out of step with each other: episodes begin and end at different times.
        for ahead, turn in enumerate(turns[subject + 1 :], 1):
            for _ in range(ahead):
                next(turn, None)
        ends = time.perf_counter() + budget
        with _disturbances(neighbours) as disturb:
            for _ in turns[subject]:
                for i, turn in enumerate(turns):
                    if i != subject:
                        next(turn, None)
                disturb()
                if time.perf_counter() > ends and len(played.trace) > 3:
                    break
        for env in envs:
            _close(env)
    return played


@contextlib.contextmanager
def _disturbances(neighbours: tuple[str, ...]) -> Iterator[Callable[[], None]]:
    turn = iter(range(10**9))
    with tempfile.TemporaryDirectory() as elsewhere:

        def disturb() -> None:
            number = next(turn)
            if "random" in neighbours:
                random.random()
                np.random.random(3)
                if number % 7 == 0:
                    _seed_globals(number)
            if "directory" in neighbours:
                os.chdir(elsewhere)

        with contextlib.chdir("."):  # back again at the end
            disturb()
            yield disturb


# ---------------------------------------------------------------------- in place


class _Unbound:
    """Hides the `bind` of an environment."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


def compare_bound(place: Place, seed: int, num_steps: int, budget: float) -> Played:
    """Step an environment that writes to its row, and one that does not, and compare."""
    played = Played()
    _seed_globals(0)
    factories = [place.make_env, lambda: _Unbound(place.make_env())]
    with contextlib.ExitStack() as stack, played.guard(place, "construction, bound", "bind"):
        # With two buffers, it is bound to another row in each step.
        envs = [stack.enter_context(SyncVectorEnv([make], buffers=2)) for make in factories]
        rng = np.random.default_rng(seed)
        results: list[Any] = []
        ends = time.perf_counter() + budget
        for number in range(num_steps):
            where = f"step {number} after the reset" if number else "reset"
            place.note(f"{where}, bound")
            action = sample_next(envs[0], results[0], rng) if number else None
            results = [one.step(action) if number else one.reset(seed=seed) for one in envs]
            bound, unbound = ([digest(part) for part in result[:-1]] for result in results)
            if bound != unbound:
                part = "observation" if bound[0] != unbound[0] else "reward or a flag"
                played.findings["bind"] = (
                    f"{where}: the {part} is another one where `bind` was called"
                )
                break
            if time.perf_counter() > ends and number > 3:
                break
    return played


# ---------------------------------------------------------------------- render


def render_frames(
    place: Place, mode: str | None, seed: int, num_steps: int, budget: float, number: int
) -> Played:
    """Render in each step of one of `number` environments; `extra` has the frames' digests."""
    played = Played()
    kwargs = {} if mode is None else {"render_mode": mode}
    frames: list[bytes] = []
    played.extra["frames"] = frames
    _seed_globals(0)
    with played.guard(place, f"construction with render_mode={mode!r}", "render"):
        envs = [_build(place.make_env, **kwargs).env for _ in range(number)]
        mode = getattr(envs[0], "render_mode", None)
        if mode is None or mode == "human":
            return played
        subject, players = _make_players(place, envs, seed, num_steps)
        played.trace = players[subject].trace
        turns = [player.play() for player in players]
        ends = time.perf_counter() + budget
        while _advance(turns):
            for i, env in enumerate(envs):
                place.note(f"render() after {players[i].trace[-1].where}")
                frame = env.render()
                if i == subject:
                    wrong = _wrong_frame(mode, frame)
                    if wrong is not None:
                        played.findings.setdefault("render", f"render_mode={mode!r}: {wrong}")
                    frames.append(digest(frame))
            if len(frames) == _FRAMES or (time.perf_counter() > ends and len(frames) > 2):
                break
        for env in envs:
            _close(env)
    return played


def _advance(turns: list[Iterator[None]]) -> bool:
    """Let every player make one call; return whether all of them did."""
    done = object()
    made = [next(turn, done) is not done for turn in turns]
    return all(made)


def _wrong_frame(mode: str, frame: Any) -> str | None:
    """Return what is wrong with a frame; None if nothing is, or if its form is open."""
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


def use_up(place: Place, seed: int, budget: float) -> Played:
    """Reset 300 times, close twice, and see what is left: memory, descriptors, threads."""
    played = Played()
    with played.guard(place, "construction"):
        base, threads = _resources(), threading.active_count()
        env = _build(place.make_env).env
        player = Recorder(env, seed, 1, place.note)
        marks: list[_Mark] = []
        steps, ends = 0, time.perf_counter() + budget
        for count in range(1, _RESETS + 1):
            player.reset(seed + count, f"reset {count} of {_RESETS}")
            ended = player.step("the step after it")
            if not ended:
                player.step("the second step after it")
            steps += 1 if ended else 2
            player.trace.clear()
            late = time.perf_counter() > ends
            if late or count in (10, _RESETS // 3, 2 * _RESETS // 3, _RESETS):
                marks.append(_Mark(count, steps, _resources()))
            if late:
                break
        grown = _find_growth(marks)
        if grown:
            before = _resources()
            for number in range(1, _RESETS_ALONE + 1):
                player.reset(seed + number, f"reset {number} of {_RESETS_ALONE}, without steps")
                player.trace.clear()
            after = _resources()
            alone = {name: (after[name] - before[name]) / _RESETS_ALONE for name in after}
            _tell_growth(played, marks, grown, alone)
    if played.failure is None:
        _close_twice(place, played, env)
        # Not those of native libraries: their pools of threads stay, and are of use to the next.
        after = _resources()
        left = {
            "threads": threading.active_count() - threads,
            "processes": after["processes"] - base["processes"],
        }
        for name, more in left.items():
            if more > 0:
                found = f"after close(), {more:.0f} of its {name} go on"
                played.findings.setdefault(f"leaks-{name}", found)
    return played


def _close_twice(place: Place, played: Played, env: Any) -> None:
    if not hasattr(env, "close"):
        return
    with played.guard(place, "close()", "close"):
        env.close()
    if played.failure is None:
        with played.guard(place, "a second close()", "close-twice"):
            env.close()


class _Mark(NamedTuple):
    """What there is after some resets and steps."""

    resets: int
    steps: int
    resources: dict[str, float]


def _find_growth(marks: list[_Mark]) -> dict[str, float]:
    """Return what grew between the marks, per reset; the first of them comes after a warm-up."""
    found: dict[str, float] = {}
    if len(marks) < 2:
        return found
    first, last = marks[0], marks[-1]
    resets = last.resets - first.resets
    for name in ("descriptors", "threads", "processes"):
        grown = last.resources[name] - first.resources[name]
        if resets >= 5 and grown >= max(5, resets // 4):
            found[name] = grown / resets
    grown_each = [
        (two.resources["memory"] - one.resources["memory"], two.resets - one.resets)
        for one, two in itertools.pairwise(marks[1:])
    ]
    # Each third must have grown, by a megabyte and by ten kilobytes per reset.
    if len(grown_each) >= 2 and all(
        size > max(2**20, 10_000 * resets) for size, resets in grown_each
    ):
        sizes, counts = zip(*grown_each, strict=True)
        found["memory"] = sum(sizes) / sum(counts)
    return found


def _tell_growth(
    played: Played, marks: list[_Mark], grown: dict[str, float], alone: dict[str, float]
) -> None:
    """Tell what grew by its cause: steps where resets alone let it grow by less than half."""
    resets, steps = marks[-1].resets - marks[0].resets, marks[-1].steps - marks[0].steps
    for name, each in grown.items():
        is_step = alone[name] < each / 2
        count, kind = (steps, "step") if is_step else (resets, "reset")
        if name == "memory":
            found = f"{each * resets / count / 1000:,.0f} kB more memory in each {kind}"
        else:
            found = f"{each * resets:.0f} more {name} after {count} {kind}s"
        played.findings[f"leaks-{name}"] = found


def _resources() -> dict[str, float]:
    gc.collect()
    proc = Path("/proc/self")
    found: dict[str, float] = {"descriptors": 0, "memory": 0}
    found["threads"] = threading.active_count()
    found["processes"] = len(multiprocessing.active_children())
    if sys.platform == "linux" and proc.is_dir():
        found["descriptors"] = len(os.listdir(proc / "fd"))
        found["memory"] = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        found["threads"] = len(os.listdir(proc / "task"))
        children = [
            child
            for task in (proc / "task").iterdir()
            for child in _read(task / "children").split()
        ]
        found["processes"] = len(children)
    return found


def _read(path: Path) -> str:
    """Return the text of a file that may be gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


# ---------------------------------------------------------------------- after the end, and time


def step_after_end(place: Place, seed: int, num_steps: int, budget: float) -> Played:
    """Step on after the end of an episode; an exception is a right answer."""
    played = Played()
    with played.guard(place, "construction"):
        env = _build(place.make_env).env
        player = Recorder(env, seed, num_steps, place.note)
        player.reset(seed, "reset")
        ends = time.perf_counter() + budget
        over = False
        for number in range(num_steps):
            over = player.step(f"step {number + 1}")
            if over or time.perf_counter() > ends:
                break
    if played.failure is None and over:
        after = Played()
        with after.guard(place, "a step after the end of its episode"):
            inspector = Recorder(env, seed, 3, place.note, inspect=True)
            for _ in range(3):
                inspector.step("a step after the end of its episode")
        for name in ("observation", "reward", "step-form"):
            if after.failure is None and name in inspector.findings:
                played.findings["after-end"] = inspector.findings[name]
    return played


def measure(place: Place, seed: int, num_steps: int, budget: float) -> Played:
    """Time steps and resets, without looking at what they return."""
    played = Played()
    steps: list[float] = []
    busy: list[float] = []
    resets: list[float] = []
    with played.guard(place, "construction"):
        env = _build(place.make_env).env
        player = Recorder(env, seed, 1, place.note)
        ends = time.perf_counter() + budget
        over = True
        while len(steps) < num_steps and (time.perf_counter() < ends or len(steps) < 5):
            if over:
                place.note("a reset that is timed")
                began = time.perf_counter()
                _, info = env.reset(seed=seed) if not resets else env.reset()
                resets.append(time.perf_counter() - began)
                player.take_mask(info, place.doing)
            action = player.next_action()
            place.note("a step that is timed")
            began = time.perf_counter()
            worked = time.process_time()
            _, _, terminated, truncated, info = env.step(action)
            busy.append(time.process_time() - worked)
            steps.append(time.perf_counter() - began)
            over = bool(terminated) or bool(truncated)
            player.take_mask(None if over else info, place.doing)
        _close(env)
    played.extra.update(steps=steps, busy=busy, resets=resets)
    return played


def list_render_modes(place: Place) -> list[str]:
    """Return the render modes that an environment declares; none where it cannot be built."""
    with contextlib.suppress(Exception):  # `play_alone` reports it
        env = _build(place.make_env).env
        modes = [
            str(mode) for mode in (getattr(env, "metadata", None) or {}).get("render_modes", ())
        ]
        _close(env)
        return modes
    return []
