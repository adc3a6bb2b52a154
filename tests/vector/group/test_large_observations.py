"""Observations of 64 KiB or more, which are written before the next environment steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from vecspaces import Env, make_vec, spaces
from vecspaces.errors import InvalidObservationError

SHAPE = (160, 140, 3)
SPACES = {
    "array": spaces.Box(0, 255, SHAPE, np.uint8),
    "dict": spaces.Dict(image=spaces.Box(0, 255, SHAPE, np.uint8), speed=spaces.Discrete(100)),
}


class Camera(Env[Any, Any]):
    """Returns one array again and again, as cameras do, whose entries are 10 * number + step."""

    action_space = spaces.Discrete(3)

    def __init__(self, number: int, kind: str) -> None:
        self.observation_space = SPACES[kind]
        self._number, self._kind, self._step = number, kind, 0
        self._image = np.zeros(SHAPE, np.uint8)

    def _observe(self) -> Any:
        self._image[:] = 10 * self._number + self._step
        return self._image if self._kind == "array" else {"image": self._image, "speed": self._step}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._step = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        if action == 1:
            raise OSError("no picture")
        self._step += 1
        observation = self._observe()
        if action == 2:
            observation = np.zeros(3)
        return observation, float(self._step), self._step == 2 + self._number % 2, False, {}


def make(count: int, kind: str, backend: Any, **options: Any) -> Any:
    factories = [lambda number=number: Camera(number, kind) for number in range(count)]
    workers = {} if backend == "sync" else {"num_workers": min(2, count)}
    return make_vec(factories, backend=backend, vector_kwargs={**workers, **options})


def values(observations: Any, kind: str) -> list[int]:
    """Return the value of each row, all of whose entries are equal."""
    images = observations if kind == "array" else observations["image"]
    flat = images.reshape(len(images), int(np.prod(SHAPE)))
    assert (flat == flat[:, :1]).all()
    return flat[:, 0].tolist()


class Follower:
    """What the environments of a vector env show, in lists."""

    def __init__(self, count: int, mode: str) -> None:
        self.steps, self.ended, self.mode = [0] * count, [False] * count, mode

    def check(self, rows: Sequence[int], kind: str, result: Any) -> list[int]:
        """Check a step of some rows; return the value of the observation of each."""
        observations, rewards, terminations, _, infos = result
        for place, row in enumerate(rows):
            is_reset = self.mode == "next_step" and self.ended[row]
            steps = self.steps[row] = 0 if is_reset else self.steps[row] + 1
            self.ended[row] = steps == 2 + row % 2
            assert (rewards[place], terminations[place]) == (steps, self.ended[row])
            if self.ended[row] and self.mode == "same_step":
                final = infos["final_obs"][place]
                image = final if kind == "array" else final["image"]
                assert (image == 10 * row + steps).all()
                self.steps[row] = 0
        expected = [10 * row + self.steps[row] for row in rows]
        assert values(observations, kind) == expected
        return expected


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("backend", ["sync", "async", "thread"])
def test_step_returns_the_observations_of_all(
    backend: str, kind: str, count: int, mode: str
) -> None:
    with make(count, kind, backend, autoreset_mode=mode) as envs:
        envs.reset()
        kept, follower = [], Follower(count, mode)
        for _ in range(7):
            result = envs.step(np.zeros(count, np.int64))
            kept.append((result[0], follower.check(range(count), kind, result)))
        for observations, expected in kept:
            assert values(observations, kind) == expected


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("backend", ["sync", "async", "thread"])
def test_rows_are_their_own_in_random_calls(backend: str, mode: str) -> None:
    rng, rows = np.random.default_rng(0), np.arange(6)
    with make(6, "array", backend, autoreset_mode=mode) as envs:
        envs.reset(), envs.recv(6)
        follower, sent = Follower(6, mode), set[int]()
        for call in rng.choice(["step", "some", "send", "recv", "send_reset", "mask"], 150):
            free = np.array([row for row in rng.permutation(rows) if row not in sent], np.int64)
            free = free[: rng.integers(6) + 1]
            actions = np.zeros(len(free), np.int64)
            if call == "some":
                follower.check(free, "array", envs.step(actions, free))
            elif call == "send":
                envs.send(actions, free)
                sent.update(free.tolist())
            elif call == "recv" and sent:
                *result, received = envs.recv(rng.integers(len(sent)) + 1)
                follower.check(received, "array", result)
                sent.difference_update(received.tolist())
            elif call == "step" and not sent:
                follower.check(rows, "array", envs.step(np.zeros(6, np.int64)))
            elif call in ("send_reset", "mask") and not sent:
                if call == "send_reset":
                    envs.send_reset(free)
                else:
                    envs.reset(options={"reset_mask": np.isin(rows, free)})
                shown = envs.recv(len(free))
                assert sorted(shown.env_ids) == sorted(free)
                assert values(shown[0], "array") == [10 * row for row in shown.env_ids]
                for row in free:
                    follower.steps[row], follower.ended[row] = 0, False


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_recv_returns_the_rows_beside_a_row_that_fails(backend: str, kind: str) -> None:
    with make(6, kind, backend) as envs:
        envs.reset(), envs.recv(6)
        envs.send(np.array([0, 0, 1, 0, 0, 0]))
        result = envs.recv(6, return_errors=True)
        assert list(result.errors) == [2] and sorted(result.env_ids.tolist()) == [0, 1, 3, 4, 5]
        assert values(result.observations, kind) == [10 * row + 1 for row in result.env_ids]
        assert (result.rewards == 1).all()


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("row", [0, 2])
def test_step_names_the_environment_of_an_observation_that_does_not_fit(
    backend: str, row: int
) -> None:
    actions = np.zeros(3, np.int64)
    actions[row] = 2
    with make(3, "array", backend) as envs:
        envs.reset()
        with pytest.raises(InvalidObservationError, match=f"environment {row}"):
            envs.step(actions)
        envs.reset(), envs.recv(3)
        envs.send(actions)
        result = envs.recv(3, return_errors=True)
        assert list(result.errors) == [row]
        assert values(result.observations, "array") == [10 * other + 1 for other in result.env_ids]
