"""Where an error is: numbers in messages are fields, and errors travel by their fields."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import cloudpickle
import pytest

from tests.envs import Ledger, ledgers
from vecspaces.errors import (
    InvalidInfoError,
    InvalidObservationError,
    InvalidRewardError,
    ResetNeededError,
    StepTimeoutError,
    WorkerDiedError,
    WorkerError,
)
from vecspaces.layout import Mismatch
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.engine.restarts import RestartBudget
from vecspaces.vector.exchange.failures import Death, Failure, Message, died, overdue

ERRORS: list[Any] = [
    WorkerError("lost", (1, 2), 3, "step"),
    WorkerDiedError("gone", (1,), 0, "reset", -9, "SIGKILL", "node7"),
    StepTimeoutError("late", (4, 5)),
    died(1, [5, 6], "step", Death(3), 6, "reset"),
    overdue("step", 0.5, [1, 2, 3], [2], "wait again"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error)[:9])
def test_errors_travel_with_all_of_their_fields(error: Any) -> None:
    for dump, notes in product((pickle.dumps, cloudpickle.dumps), ([], ["while evaluating"])):
        sent = copy.copy(error)
        sent.extra = {"mine": 1}
        for note in notes:
            sent.add_note(note)
        arrived = pickle.loads(dump(sent))
        assert type(arrived) is type(sent)
        assert (str(arrived), arrived.args) == (str(sent), sent.args)
        assert vars(arrived) == vars(sent)


def test_message_within_changes_its_numbers_and_no_others() -> None:
    inner = Message("{:envs} of 3 environments, {:env_fn}: {{x}}", [3], 2)
    message = Message("environment 3 wrote {} [{}]", "environment 3 {}", inner)
    expected = "environment 3 wrote environment 3 {} [environment 13 of 3 environments, env_fns[12]"
    for copied in (message, pickle.loads(pickle.dumps(message)), copy.deepcopy(message)):
        assert copied.within(10).startswith(expected)
    assert message.endswith("{x}]")


def test_the_history_of_a_crash_loop_keeps_its_numbers_as_fields() -> None:
    budget = RestartBudget(max_restarts=1, window=60.0)
    budget.spend(died(0, [1], "step", Death(3), -1, "worker 9: environment 9"), (0, 1))
    with pytest.raises(WorkerDiedError) as caught:
        budget.spend(died(1, [2, 3], "reset", Death(4), 3, "go on"), (1, 1))
    rows = range(10, 14)
    failure = Failure.of_vector_env(caught.value, rows, "step")
    text = str(failure.exception)
    assert "s ago: worker 0 (environment 11) exited with code 3 during step; " in text
    assert "worker 1 (environments 12, 13) exited with code 4 during reset while" in text
    assert text.endswith("while environment 13 was running")
    assert failure.env_ids == caught.value.env_ids == (12, 13)


class Accusing(Ledger):
    """Raises the error that it is told, in the call that it is told."""

    told: Any = None, ""

    def reset(self, **arguments: Any) -> Any:
        if self.told[1] == "reset":
            raise self.told[0]
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        if self.told[1] == "step":
            raise self.told[0]
        return super().step(action)


FAMILIAR: list[Exception] = [
    InvalidRewardError("mine"),
    InvalidInfoError("mine"),
    InvalidObservationError("mine"),
    Mismatch("this", "that", ("mine",), 7),
    WorkerError("mine", (9,), 8, "call"),
    TypeError("mine"),
    ValueError("not enough values to unpack (expected 5, got mine)"),
]


KINDS = {"sync": SyncVectorEnv, "async": partial(AsyncVectorEnv, num_workers=2)}


@pytest.mark.parametrize("kind", KINDS)
def test_an_environment_may_raise_any_error_of_its_own(kind: str) -> None:
    place = "environment 1" if kind == "sync" else "environment 1 (worker 1)"
    with KINDS[kind]([*ledgers(1), Accusing, *ledgers(1)]) as envs:
        for error, where in product(FAMILIAR, ("reset", "step")):
            envs.reset(seed=0)
            envs.set_attr("told", [(copy.copy(error), where)], env_ids=[1])
            with pytest.raises(type(error), match="mine") as caught:
                envs.reset() if where == "reset" else envs.step([0, 0, 0])
            assert str(caught.value) == str(error)
            assert vars(caught.value).items() >= vars(error).items()
            assert str(caught.value.__cause__).lstrip().startswith(f"{place} failed in {where}:")
            with pytest.raises(ResetNeededError):
                envs.step([0, 0, 0])


class Quitting(Ledger):
    """Ends its process by `SystemExit` at the action 4."""

    def step(self, action: Any) -> Any:
        if action == 4:
            raise SystemExit(7)
        return super().step(action)


@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=1)])
def test_what_is_no_exception_names_its_row_in_a_vector_env_inside(make: Any) -> None:
    inner = partial(AsyncVectorEnv, [partial(Quitting, number) for number in range(2)])
    arguments = {} if make is SyncVectorEnv else {"daemon": False}
    with make([*ledgers(2), inner], **arguments) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerError, match=r"^environment 3.* failed in step") as caught:
            envs.step([0, 0, 0, 4])
        assert caught.value.env_ids == (3,)


def test_numbers_in_an_error_of_the_environments_own_stay_as_they_are() -> None:
    error = WorkerError("mine", (9,), 8, "call")
    with SyncVectorEnv([*ledgers(2), lambda: SyncVectorEnv([*ledgers(1), Accusing])]) as envs:
        envs.reset(seed=0)
        envs.set_attr("told", [(error, "step")], env_ids=[3])
        with pytest.raises(WorkerError, match="mine") as caught:
            envs.step([0] * 4)
        assert caught.value.env_ids == (9,)
        assert "environment 3 failed in step" in str(caught.value.__cause__)


def odd_attribute(name: str, raised: Any) -> type[Exception]:
    """An exception with an attribute that raises."""

    def read(self: Any, *_: Any) -> Any:
        raise raised

    value = read if name == "__repr__" else property(read)
    return type("OddAttribute", (Exception,), {name: value, "__module__": __name__})


ODD: dict[str, Callable[[], type[Exception]]] = {
    "cause": partial(odd_attribute, "__cause__", RuntimeError("cause")),
    "traceback": partial(odd_attribute, "__traceback__", SystemExit(3)),
    "repr": partial(odd_attribute, "__repr__", SystemExit(3)),
    "reduce": partial(odd_attribute, "__reduce__", RuntimeError("reduce")),
}


class Raising(Ledger):
    """Raises an exception of a class that is made in its step."""

    odd = ""

    def step(self, action: Any) -> Any:
        raise ODD[self.odd]()("odd")


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_with_odd_attributes_names_its_environment(kind: str) -> None:
    with KINDS[kind]([Ledger, Raising]) as envs:
        for odd in ODD:
            envs.reset()
            envs.set_attr("odd", odd, env_ids=[1])
            with pytest.raises(Exception) as caught:
                envs.step([0, 0])
            error = caught.value
            assert type(error).__name__ in ("OddAttribute", "WorkerError")
            where = error if type(error) is WorkerError else BaseException.__cause__.__get__(error)
            assert "environment 1" in str(where)
            assert 'raise ODD[self.odd]()("odd")' in str(where)
