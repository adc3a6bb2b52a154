"""Random programs over agents that die, come late and come back, beside bare loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.adapters.bare_loops import Bare, Record, check_rows
from tests.crosses import FASTEST
from tests.envs.agents import Crowd, Steady
from vecspaces import make_vec
from vecspaces.vector import AutoresetMode

MODES = list(AutoresetMode)


class Program:
    """Random calls of a vector env of rows, whose results are compared with bare loops."""

    def __init__(self, seed: int, **arguments: Any) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.mode = MODES[rng.integers(3)]
        count, self.width = int(rng.integers(1, 5)), int(rng.integers(1, 5))
        kind: Any = [Crowd, Steady][rng.integers(2)]
        masks = ["", "observations", "infos"][rng.integers(2 if kind is Steady else 3)]
        self.make: Callable[[], Any] = partial(
            kind, self.width, int(rng.integers(3, 8)), masks=masks
        )
        self.loops = [Bare(self.make(), self.mode) for _ in range(count)]
        self.envs = make_vec(
            self.make,
            count,
            agents="rows",
            autoreset_mode=self.mode,
            state=bool(rng.integers(2)),
            validate=bool(rng.integers(2)),
            copy=bool(rng.integers(2)),
            **arguments,
        )
        self.envs.action_space.seed(seed)
        self.shown: list[Record] = [{} for _ in self.loops]
        self.sent: dict[int, Record] = {}  # what environments in flight must show

    def rows(self, envs: Any) -> Any:
        """Return the rows of environments."""
        return (np.array(envs)[:, None] * self.width + range(self.width)).ravel()

    def some(self) -> list[int]:
        """Choose environments that are not in flight, in any order."""
        idle = [env for env in range(len(self.loops)) if env not in self.sent]
        chosen = self.rng.permutation(idle)[: self.rng.integers(len(idle) + 1)]
        return [int(env) for env in chosen if not self.is_finished(int(env))]

    def is_finished(self, env: int) -> bool:
        return self.mode is AutoresetMode.DISABLED and not self.loops[env].crowd.agents

    def act(self, envs: Any, rows: Any) -> Any:
        """Step the bare loops of environments; return the actions of rows."""
        actions = self.envs.action_space.sample()
        for env in envs:
            part = actions[env * self.width : (env + 1) * self.width]
            self.shown[env] = self.loops[env].step(list(part))
        return actions[rows]

    def check(self, envs: Any, result: Any) -> None:
        for place, env in enumerate(envs):
            check_rows(self.loops[env].crowd, self.shown[env], place, result)

    def reset(self) -> None:
        seed = int(self.rng.integers(100))
        observations, infos = self.envs.reset(seed=seed)
        self.shown = [loop.begin(seed=seed + env) for env, loop in enumerate(self.loops)]
        self.sent.clear()
        self.check(range(len(self.loops)), (observations, None, None, None, infos))

    def reset_some(self) -> None:
        finished = [env for env in range(len(self.loops)) if self.is_finished(env)]
        chosen = sorted({*self.some(), *finished})
        if self.sent or not chosen:
            return
        mask = np.isin(np.arange(self.envs.num_envs), self.rows(chosen))
        observations, infos = self.envs.reset(options={"reset_mask": mask})
        self.envs.recv(len(chosen) * self.width)
        for env in chosen:
            self.shown[env] = self.loops[env].begin()
            check_rows(
                self.loops[env].crowd, self.shown[env], env, (observations, *[None] * 3, infos)
            )

    def step(self) -> None:
        everyone = range(len(self.loops))
        if not self.sent and not any(map(self.is_finished, everyone)):
            actions = self.act(everyone, slice(None))
            self.check(everyone, self.envs.step(actions))

    def step_some(self) -> None:
        envs = self.some()
        if envs:
            rows = self.rows(envs)
            self.check(envs, self.envs.step(self.act(envs, rows), rows))

    def send(self) -> None:
        envs = self.some()
        if envs:
            rows = self.rows(envs)
            self.envs.send(self.act(envs, rows), rows)
            self.sent.update((env, self.shown[env]) for env in envs)

    def send_reset(self) -> None:
        envs = self.some()
        if envs:
            self.envs.send_reset(self.rows(envs), seed=[int(env) for env in envs])
            for env in envs:
                self.shown[env] = self.loops[env].begin(seed=env)
            self.sent.update((env, self.shown[env]) for env in envs)

    def recv(self) -> None:
        if self.sent:
            count = int(self.rng.integers(1, len(self.sent) + 1))
            received: Any = self.envs.recv(count * self.width)
            envs = received.env_ids[:: self.width] // self.width
            assert received.env_ids.tolist() == [
                env * self.width + place for env in envs for place in range(self.width)
            ]
            self.check(envs, received[:5])
            for env in envs:
                del self.sent[env]

    def call(self) -> None:
        idle = [env for env in range(len(self.loops)) if env not in self.sent]
        rows = [int(row) for row in self.rng.permutation(self.rows(idle))] if idle else []
        for row, state in zip(rows, self.envs.call("state", env_ids=rows), strict=True):
            assert state.tolist() == self.loops[row // self.width].crowd.state().tolist()

    def run(self, calls: int) -> None:
        with self.envs:
            self.reset()
            self.envs.recv()
            steps = [self.step, self.step_some, self.send, self.recv, self.recv]
            others = [self.reset, self.reset_some, self.send_reset, self.call]
            for _ in range(calls):
                chosen = steps if self.rng.random() < 0.8 else others
                call = chosen[self.rng.integers(len(chosen))]
                call()
                if call == self.reset:
                    self.envs.recv()


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_equal_bare_loops(seed: int) -> None:
    Program(seed, backend="sync").run(25)


@pytest.mark.parametrize(
    "backend",
    [{"num_workers": 1, "context": FASTEST}, {"backend": "thread"}],
    ids=["processes", "threads"],
)
def test_random_programs_in_workers_equal_bare_loops(backend: Any) -> None:
    for seed in range(60, 63):
        Program(seed, **backend).run(25)


@pytest.mark.full
@pytest.mark.parametrize("part", range(20))
def test_a_thousand_random_programs_equal_bare_loops(part: int) -> None:
    backends: list[dict[str, Any]] = [
        {"backend": "sync"},
        {"num_workers": 1, "context": FASTEST},
        {"backend": "thread"},
    ]
    for seed in range(100 + part * 50, 150 + part * 50):
        Program(seed, **backends[seed % 3]).run(60)
