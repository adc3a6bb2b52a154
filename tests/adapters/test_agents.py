"""Parallel environments in every part of a vector env: both layouts, beside bare loops."""

from __future__ import annotations

import copy
import signal
import threading
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.adapters.bare_loops import play, row
from tests.crosses import diagonal, ordinarily
from tests.envs import Tag
from tests.envs.agents import Changed, Crowd, Steady, die
from vecspaces import make_vec, spaces
from vecspaces.adapters.pettingzoo import as_env, as_vector_env
from vecspaces.env import Env
from vecspaces.errors import (
    AlreadyPendingCallError,
    InvalidObservationError,
    InvalidRewardError,
    ResetNeededError,
    WorkerDiedError,
)
from vecspaces.vector import AutoresetMode, SyncVectorEnv
from vecspaces.wrappers import NormalizeObservation

NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
MODES = [NEXT, SAME, DISABLED]
SYNC: Any = {"backend": "sync"}
BACKENDS = [{"backend": "sync"}, {"num_workers": 2}]


@diagonal(
    layout=["rows", "dict"], backend=BACKENDS, mode=MODES, masks=["", "infos", "observations"]
)
def test_steps_equal_a_bare_loop(
    layout: Any, backend: Any, mode: AutoresetMode, masks: str
) -> None:
    make = partial(Crowd, masks=masks, different=layout == "dict" and not masks)
    arguments: Any = {"agents": layout, "state": True, "autoreset_mode": mode, **backend}
    with make_vec(make, 3, validate=True, **arguments) as envs:
        play(envs, make, mode)


def as_arrays(env: Any, result: Any) -> Any:
    """Let rewards be arrays of one number."""
    observations, rewards, *rest = result
    return observations, {agent: np.array([reward]) for agent, reward in rewards.items()}, *rest


def use_again(env: Any, result: Any) -> Any:
    """Return observations in arrays of which the environment has one per agent."""
    kept = vars(env).setdefault("own", {})
    for agent, observation in result[0].items():
        kept.setdefault(agent, np.empty(4))[:] = observation
    return {agent: kept[agent] for agent in result[0]}, *result[1:]


OTHER = spaces.Dict(other=spaces.Box(0, 1, (2,)))
AGE = spaces.Dict(age=spaces.Box(0, 9, (), np.int64), alive=spaces.MultiBinary(()))
MASKED: Any = partial(Crowd, masks="infos")
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    # Most steps of a Steady are plain; some environments take them while agents of others end.
    "plain": (Steady, {}),
    "views": (Steady, {"copy": False}),
    "ring": (Steady, {"buffers": 4}),
    "validated": (Steady, {"validate": True}),
    "workers": (Steady, {"num_workers": 2}),
    "stats": (Steady, {"stats": True}),
    "plain, other info": (Steady, {"info_space": OTHER}),
    "plain, less info": (Steady, {"info_space": AGE}),
    "other info": (Crowd, {"info_space": OTHER}),
    "less info": (Crowd, {"info_space": AGE}),
    "arrays as rewards": (partial(Changed, Steady, as_arrays), {}),
    "arrays used again": (partial(Changed, Crowd, use_again, use_again), {}),
    "all end at once": (partial(Crowd, length=1), {}),
    "one agent": (partial(Crowd, 1), {"agents": "dict", "state": True}),
    "two agents": (partial(Crowd, 2), {"agents": "dict", "state": True}),
    "spawn": (MASKED, {"agents": "dict", "num_workers": 2, "context": "spawn"}),
    "forkserver": (MASKED, {"state": True, "num_workers": 2, "context": "forkserver"}),
}
ORDINARY = ("plain", "views", "ring", "workers", "stats", "plain, other info", "less info")
ORDINARY += ("arrays used again", "two agents")


@pytest.mark.parametrize(
    ("name", "mode"),
    ordinarily(
        lambda name, mode: (name, mode) in zip(ORDINARY, MODES * 3, strict=True),
        product(CASES, MODES),
    ),
)
def test_other_environments_and_arguments(name: str, mode: AutoresetMode) -> None:
    make, options = CASES[name]
    backend = "async" if "num_workers" in options else "sync"
    arguments: Any = {"agents": "rows", "backend": backend, "autoreset_mode": mode, **options}
    with make_vec(make, 4, **arguments) as envs:
        play(envs, make, mode)
        play(envs, make, mode, steps=9)


@pytest.mark.parametrize("mode", [NEXT, SAME])
@pytest.mark.parametrize("make", [MASKED, partial(Crowd, 1, masks="observations")])
def test_rows_by_themselves_equal_a_bare_loop(make: Any, mode: AutoresetMode) -> None:
    with as_vector_env(make(), autoreset_mode=mode, state=True) as env:
        play(env, make, mode)


def test_a_copy_goes_on_by_itself() -> None:
    with make_vec(Steady, 2, agents="rows", backend="sync") as envs:
        envs.reset(seed=1)
        envs.step(np.zeros(6, int))
        with copy.deepcopy(envs) as other:
            for turn in range(9):
                first, two = (vec.step(np.full(6, turn % 3)) for vec in (envs, other))
                np.testing.assert_equal(first, two)


def fail(how: str, env: Any, result: Any) -> Any:
    """Return something wrong in the third step, or raise."""
    observations, rewards, *rest = result
    if env.time == 3:
        if how == "raises":
            raise RuntimeError("a fault")
        if how == "observation":
            observations["red_1"] = np.zeros(2)
        if how == "outside":
            observations["red_1"][0] = 1e9
        if how == "reward":
            rewards["red_1"] = "much"
        if how == "infos":
            return observations, rewards, *rest[:2], None
    return result


@pytest.mark.parametrize(
    ("how", "kind", "where"),
    [
        ("raises", RuntimeError, "a fault"),
        (
            "observation",
            InvalidObservationError,
            "environments 3 to 5 .*1.: expected float64 array of shape .4,., found",
        ),
        ("outside", InvalidObservationError, "environments 3 to 5 .*index .1, 0.,"),
        ("reward", (InvalidRewardError, ValueError), "much"),
        ("infos", TypeError, "must return infos as a dict by agent"),
    ],
)
def test_a_fault_in_a_plain_step(how: str, kind: Any, where: str) -> None:
    """The error names the row, and the next reset begins anew: no result is left over."""
    factories = [Steady, partial(Changed, Steady, partial(fail, how))]
    with make_vec(factories, agents="rows", backend="sync", validate=how == "outside") as envs:
        for _ in range(2):
            envs.reset(seed=1)
            with pytest.raises(kind, match=where):
                for _ in range(4):
                    envs.step(np.zeros(6, int))
        observations, infos = envs.reset(seed=1)
        assert infos["alive"].all()
        observations = envs.step(np.full(6, 2))[0]
        assert observations[:, 1].tolist() == [1] * 6  # the time
        assert observations[:, 2].tolist() == [2] * 6  # the last action


# ---------------------------------------------------------------------- streams and parts


def test_disabled_refuses_steps_after_the_end_and_parts_of_an_environment() -> None:
    with make_vec(Steady, 2, agents="rows", autoreset_mode=DISABLED, backend="sync") as envs:
        _, infos = envs.reset(seed=3)
        while not infos["episode_over"].any():
            *_, infos = envs.step(np.zeros(6, int))
        over = infos["episode_over"]
        with pytest.raises(ResetNeededError, match=r"autoreset is DISABLED: reset with"):
            envs.step(np.zeros(6, int))
        some = over.copy()
        some[int(over.argmax())] = False
        with pytest.raises(ValueError, match=f"name environment {int(over.argmax())} too"):
            envs.reset(options={"reset_mask": some})
        _, infos = envs.reset(options={"reset_mask": over})
        assert not infos["episode_over"].any() and infos["alive"][over].all()
        envs.step(np.zeros(6, int))
    with as_vector_env(Steady(length=3), autoreset_mode="Disabled") as env:
        env.reset(seed=1)
        with pytest.raises(ResetNeededError, match="autoreset is DISABLED"):
            for _ in range(9):
                env.step(np.zeros(3, int))
        with pytest.raises(ValueError, match="name environments 1, 2 too"):
            env.reset(options={"reset_mask": np.array([True, False, False])})
        with pytest.raises(ValueError, match="reset_mask"):
            env.reset(options={"reset_mask": np.zeros(3, bool)})
        first, _ = env.reset(seed=[4], options=[{"a": 1}])
        assert env.get_attr("options")[0][-1] == {"a": 1}
        alone, _ = as_env(Steady(length=3)).reset(seed=4)
        np.testing.assert_array_equal(first[0], alone["blue_0"])
    with as_vector_env(Tag()) as env, pytest.raises(ResetNeededError, match="first reset"):
        env.step(np.zeros(3, int))


# ---------------------------------------------------------------------- members, seeds, options


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_partial_reset_shows_who_is_alive_elsewhere(backend: Any) -> None:
    """A program that reads `alive` and masks from the last infos finds those of all rows."""
    with make_vec(MASKED, 4, agents="rows", autoreset_mode=DISABLED, state=True, **backend) as envs:
        _, infos = envs.reset(seed=3)
        compared = 0
        for _ in range(30):
            *_, infos = envs.step(envs.action_space.sample())
            over = infos["episode_over"].copy()
            if over.any():
                _, first = envs.reset(options={"reset_mask": over})
                for key in ("alive", "episode_over", "action_mask", "state"):
                    np.testing.assert_array_equal(first[key][~over], infos[key][~over])
                    assert first[f"_{key}"].all()
                compared += int(infos["alive"][~over].sum())
                assert first["alive"].reshape(4, 3).any(axis=1).all()
        assert compared > 9


class Alone(Env[Any, Any]):
    """One agent, with the spaces of a row of Tag; episodes have two steps."""

    observation_space, action_space = Tag().observation_space(""), Tag().action_space("")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.ones(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.full(3, 2, np.float32), 1.0, self.time == 2, False, {}


class Lone(Alone):
    """The same with the spaces of a row of Crowd; observes its seed, and then its actions."""

    observation_space = Crowd().observation_space("")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.array([seed or 0.0, 0, 0, 0]), {}

    def step(self, action: Any) -> Any:
        return np.full(4, float(action)), 1.0, False, False, {}


def test_members_get_the_seeds_of_their_first_rows() -> None:
    """The environment of agents gets the seed of its first row, however deeply it lies."""
    members = [lambda: as_vector_env(Crowd()), Lone, lambda: as_vector_env(Crowd())]
    inner = partial(make_vec, Crowd, 2, agents="rows", backend="sync")
    declared = as_vector_env(Crowd()).info_space
    with SyncVectorEnv([*members, inner], info_space=declared) as envs:
        observations, infos = envs.reset(seed=10)
        for low, seed in ((0, 10), (4, 14), (7, 17), (10, 20)):
            alone, _ = as_env(Crowd()).reset(seed=seed)
            np.testing.assert_array_equal(observations[low], alone["blue_0"])
        assert observations[3, 0] == 13
        assert not infos["_alive"][3] and infos["_alive"][[0, 4, 7, 10]].all()
        for _ in range(20):
            observations, rewards, *_, infos = envs.step(np.full(13, 2))
            assert rewards[3] == 1 and (observations[3] == 2).all()
        mask = np.arange(13) == 3
        assert envs.reset(options={"reset_mask": mask})[0][3, 0] == 0
        with pytest.raises(ValueError, match="name environments 7, 9 too"):
            envs.reset(options={"reset_mask": np.arange(13) == 8})


@pytest.mark.parametrize("members", [[Tag] * 2, [Tag, Alone]])
def test_normalised_rows_that_report_no_agents_are_not_zero(members: Any) -> None:
    """A reset of some environments reports the agents of these, and `Alone` never reports any."""
    env_fns = [partial(as_vector_env, Tag()) if make is Tag else make for make in members]
    envs = SyncVectorEnv(env_fns, autoreset_mode=NEXT, info_space=spaces.Dict())
    with NormalizeObservation(envs) as envs:
        envs.reset()
        for chosen in (np.arange(envs.num_envs) < 3, np.arange(envs.num_envs) >= 3):
            envs.step(np.full(envs.num_envs, 2))
            observations, _ = envs.reset(options={"reset_mask": chosen})
            assert observations[~chosen].any(axis=1).all()


# ---------------------------------------------------------------------- rollouts, restarts


@diagonal(
    mode=MODES,
    arguments=[SYNC, {"num_workers": 2, "copy": False}, {"num_workers": 2}],
    make=[MASKED, Steady],
)
def test_rollouts_are_what_steps_returned(mode: AutoresetMode, arguments: Any, make: Any) -> None:
    """In DISABLED mode, first observations and their infos replace the last ones."""
    with make_vec(
        make, 3, agents="rows", autoreset_mode=mode, buffers=6, state=True, **arguments
    ) as envs:
        first = envs.reset(seed=3)
        keys = [key for key in envs.info_space if key in first[1]]

        def kept(observations: Any, infos: Any) -> list[Any]:
            return copy.deepcopy([observations, *(infos[key] for key in keys)])

        shown = kept(*first)
        over = np.zeros(9, bool)
        for _ in range(4):
            seen, results = [shown], []
            for _ in range(5):
                if mode is DISABLED and over.any():
                    seen[-1] = kept(*envs.reset(options={"reset_mask": over}))
                observations, *others, infos = envs.step(envs.action_space.sample())
                shown, over = kept(observations, infos), infos["episode_over"].copy()
                seen.append(shown)
                results.append(copy.deepcopy(others))
            view = envs.rollout_view()
            for part, expected in zip(view[1:4], zip(*results, strict=True), strict=True):
                np.testing.assert_array_equal(part, np.stack(expected))
            part = [view.observations, *(view.infos[key] for key in keys)]
            for values, expected in zip(part, zip(*seen, strict=True), strict=True):
                np.testing.assert_array_equal(values, np.stack(expected))


@pytest.mark.parametrize("count", [1, 2])
def test_infos_of_a_rollout_are_copies(count: int) -> None:
    make = partial(Crowd, count, masks="infos")
    with make_vec(make, 2, agents="rows", buffers=3, copy=False, backend="sync") as envs:
        envs.reset(seed=1)
        rollouts, kept = [], []
        for _ in range(2):
            for _ in range(2):
                envs.step(np.zeros(envs.num_envs, int))
            rollouts.append(envs.rollout_view())
            kept.append(copy.deepcopy(rollouts[-1].infos))
        assert not np.array_equal(kept[0]["action_mask"], kept[1]["action_mask"])
        np.testing.assert_equal(rollouts[0].infos, kept[0])


def test_errors_of_a_lost_worker_name_all_rows(tmp_path: Path) -> None:
    order = tmp_path / "die"
    factories = [Crowd, partial(Changed, Crowd, partial(die, order))]
    with make_vec(factories, agents="rows", num_workers=2) as envs:
        envs.reset(seed=0)
        order.touch()
        with pytest.raises(WorkerDiedError, match="environments 3 to 5") as caught:
            for _ in range(9):
                envs.step(np.zeros(6, int))
        assert (caught.value.env_ids, caught.value.running) == ((3, 4, 5), 3)
        envs.reset(seed=1)
        envs.recv()
        order.touch()
        envs.send(np.zeros(6, int))
        received = envs.recv(6, return_errors=True)
        assert received.env_ids.tolist() == [0, 1, 2] and sorted(received.errors) == [3, 4, 5]
        assert envs.restart([5, 3, 4]).tolist() == [3, 4, 5]
        envs.send_reset([3, 4, 5], seed=4)
        assert envs.recv(3).begins.all()


@diagonal(mode=MODES, streams=[False, True])
def test_a_restart_ends_agents_that_were_alive(
    tmp_path: Path, mode: AutoresetMode, streams: bool
) -> None:
    """A row that was dead shows no flag; the others are truncated; all begin anew together."""
    order = tmp_path / "die"
    with make_vec(
        [partial(Changed, MASKED, partial(die, order)), Crowd], agents="rows",
        autoreset_mode=mode, num_workers=2, on_worker_death="restart",
    ) as envs:  # fmt: skip
        # With this seed one agent of the first environment is dead and the others live on.
        envs.reset(seed=4)
        infos = {"alive": np.ones(3)}
        while infos["alive"][:3].all():
            observations, *_, infos = envs.step(np.zeros(6, int))
        alive = infos["alive"][:3].copy()
        assert alive.any() and not infos["episode_over"][:3].any()
        order.touch()
        if streams:
            envs.send(np.zeros(3, int), [0, 1, 2])
            shown, rewards, terminations, truncations, infos, _ = envs.recv(3)
        else:
            shown, rewards, terminations, truncations, infos = envs.step(np.zeros(6, int))
        assert not terminations[:3].any() and not rewards[:3].any()
        np.testing.assert_array_equal(truncations[:3], alive)
        assert infos["worker_restarted"][:3].all() and infos["episode_over"][:3].all()
        if mode is SAME:
            np.testing.assert_array_equal(infos["_final_obs"][:3], alive)
            for agent in np.flatnonzero(alive):
                np.testing.assert_array_equal(infos["final_obs"][agent], observations[agent])
            assert infos["alive"][0]  # of the episode that has begun
            return
        assert not infos["alive"][:3].any()
        assert (infos["action_mask"][:3] == 1).all()
        np.testing.assert_array_equal(shown[:3], observations[:3])
        if mode is DISABLED:
            mask = np.arange(6) < 3
            first, infos = envs.reset(options={"reset_mask": mask})
        else:
            first, rewards, *flags, infos = envs.step(np.zeros(3, int), env_ids=[0, 1, 2])
            assert not rewards.any() and not np.any(flags)
        assert infos["alive"][0] and not infos["episode_over"][:3].any()
        assert (first[np.flatnonzero(infos["alive"][:3]), 1] == 0).all()  # their time


@diagonal(mode=MODES, others=[1, 0])
def test_a_restart_of_dicts_while_some_are_dead(
    tmp_path: Path, mode: AutoresetMode, others: int
) -> None:
    """Also without other environments, all agents are reported, as in each step."""
    order = tmp_path / "die"
    factories = [partial(Changed, MASKED, partial(die, order)), *[MASKED] * others]
    with make_vec(
        factories, agents="dict", autoreset_mode=mode, num_workers=1 + others,
        on_worker_death="restart",
    ) as envs:  # fmt: skip
        nothing = {agent: np.zeros(1 + others, int) for agent in envs.agent_names}
        observations, infos = envs.reset(seed=4)
        while all(alive[0] for alive in infos["agents"]["alive"].values()):
            observations, *_, infos = envs.step(nothing)
        order.touch()
        shown, rewards, terminations, truncations, infos = envs.step(nothing)
        assert (rewards[0], terminations[0], truncations[0]) == (0, False, True)
        assert infos["_worker_restarted"].tolist() == [True] + [False] * others
        by_agent = (infos["final_info"] if mode is SAME else infos)["agents"]
        for agent in envs.agent_names:
            assert by_agent["truncations"][agent][0] and not by_agent["terminations"][agent][0]
            assert not by_agent["alive"][agent][0] and by_agent["rewards"][agent][0] == 0
            assert by_agent["action_mask"][agent][0].tolist() == [1, 1, 1]
        if mode is SAME:
            np.testing.assert_equal(infos["final_obs"][0], row(observations, 0))
            return
        np.testing.assert_equal(row(shown, 0), row(observations, 0))
        if mode is DISABLED:
            shown, infos = envs.reset(options={"reset_mask": np.arange(1 + others) == 0})
        else:
            shown, *_, infos = envs.step(nothing)
        assert infos["agents"]["alive"]["blue_0"][0] and shown["blue_0"][0, 1] == 0


class Waits(Crowd):
    """Its call interrupts the main thread, and ends when it may."""

    may_end = threading.Event()

    def wait(self) -> str:
        self.may_end.wait(0.1)  # a signal just before the main thread waits is handled much later
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert self.may_end.wait(30)
        return self.possible_agents[0]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to threads")
def test_a_call_that_was_interrupted_has_its_rows() -> None:
    Waits.may_end.clear()
    with make_vec(Waits, 2, agents="rows", backend="thread", num_workers=1) as envs:
        envs.reset(seed=1)
        with pytest.raises(KeyboardInterrupt):
            envs.call("wait", env_ids=[4, 3])
        with pytest.raises(AlreadyPendingCallError):
            envs.call("state", env_ids=[0])
        Waits.may_end.set()
        assert envs.call_wait() == ("blue_0", "blue_0")


def test_a_reset_that_is_refused_leaves_the_pending_one_whole() -> None:
    with make_vec(Crowd, 2, agents="rows", backend="thread") as envs:
        envs.reset(seed=1)
        while envs.step(envs.action_space.sample())[4]["alive"].all():
            pass
        envs.reset_async(seed=1)
        with pytest.raises(AlreadyPendingCallError):
            envs.reset(options={"reset_mask": np.arange(6) < 3})
        _, infos = envs.reset_wait()
        _, expected = envs.reset(seed=1)
        np.testing.assert_equal(infos, expected)


def test_set_attr_takes_one_value_per_row() -> None:
    with make_vec(Crowd, 2, agents="rows", backend="sync") as envs:
        for values, rows in (([1] * 2, 3), ([1] * 4, 3), ([1] * 7, 6)):
            with pytest.raises(ValueError, match=f"expected {rows} values.* found {len(values)}"):
                envs.set_attr("length", values, env_ids=range(rows))


def test_different_numbers_of_agents_are_members_of_a_vector_env() -> None:
    counts = (3, 1, 2)
    with pytest.raises(RuntimeError, match=r"agents='rows' .*number of agents.* as_vector_env"):
        make_vec([partial(Crowd, count) for count in counts], agents="rows", backend="sync")
    with SyncVectorEnv([lambda n=n: as_vector_env(Crowd(n)) for n in counts]) as envs:
        observations, infos = envs.reset(seed=5)
        shown = []
        for first, count in zip((0, 3, 4), counts, strict=True):
            with as_vector_env(Crowd(count)) as alone:
                seen, alive = alone.reset(seed=5 + first)
                shown.append(seen)
                rows = slice(first, first + count)
                np.testing.assert_array_equal(infos["alive"][rows], alive["alive"])
        np.testing.assert_array_equal(observations, np.concatenate(shown))
