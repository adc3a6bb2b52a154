"""What cannot go through a pipe: arguments that cannot be pickled."""

from __future__ import annotations

import multiprocessing
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Ledger, ledgers
from vecspaces import make_vec
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

METHODS = multiprocessing.get_all_start_methods()

ASKED: dict[str, Callable[[Any, Any], Any]] = {
    r"call\.args\[0\]": lambda envs, thing: envs.call("number", thing),
    r"call\.kwargs\['key'\]\.thing": lambda envs, thing: envs.call("number", key=Holder(thing)),
    r"call\.name, variable thing": lambda envs, thing: envs.call(lambda env: thing),
    r"set_attr\.values\[0\]": lambda envs, thing: envs.set_attr("gain", [thing, 1, 2]),
    r"set_attr\.values\[2\]": lambda envs, thing: envs.set_attr("gain", [1, 2, thing]),
    r"reset\.options\[0\]\['thing'\]": lambda envs, thing: envs.reset(options={"thing": thing}),
    r"reset\.options\[0\]\['other'\]": lambda envs, thing: envs.reset(
        options={"reset_mask": np.array([True, False, True]), "other": thing}
    ),
}


class Holder:
    """An object with an attribute."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def make(self, number: int) -> Ledger:
        return Ledger(number)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_an_argument_that_cannot_be_pickled_reaches_nobody_and_breaks_nothing(
    shared_memory: bool,
) -> None:
    with (
        AsyncVectorEnv(ledgers(3), num_workers=2, shared_memory=shared_memory) as envs,
        SyncVectorEnv(ledgers(3)) as twin,
    ):
        envs.reset(seed=3)
        twin.reset(seed=3)
        for where, ask in ASKED.items():
            said = rf"^{where} \(generator\) .*: cannot pickle 'generator' object; let the"
            with pytest.raises(TypeError, match=said):
                ask(envs, (number for number in ()))
            assert envs.call("number") == twin.call("number")
            for _ in range(5):
                assert_identical(envs.step([1, 0, 1])[:4], twin.step([1, 0, 1])[:4])


def test_what_is_not_sent_changes_no_rollout() -> None:
    thing = {"thing": (number for number in ())}
    with AsyncVectorEnv(ledgers(2), num_workers=2, buffers=3) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            envs.step([1, 0])
        with pytest.raises(TypeError, match="cannot pickle"):
            envs.send_reset([0], options=thing)
        envs.rollout_view()
        with pytest.raises(TypeError, match="cannot pickle"):
            envs.reset(options=thing)
        for _ in range(2):
            envs.step([1, 0])
        envs.rollout_view()  # the reset that was not sent began nothing
        envs.step([1, 0])
        envs.step([1], env_ids=[0])
        with pytest.raises(TypeError, match="cannot pickle"):
            envs.reset(options=thing)
        envs.step([1, 0])
        with pytest.raises(ValueError, match="stepped alone"):
            envs.rollout_view()


LOCK = threading.Lock()


def make_bad_factories() -> dict[str, Callable[[], Any]]:
    lock = threading.Lock()
    holder = Holder({"a": [1, lock]})
    return {
        ", variable lock": lambda: Ledger(lock),  # type: ignore[arg-type]
        ", variable holder.thing['a'][1]": lambda: Ledger(holder),  # type: ignore[arg-type]
        ".keywords['number'].thing['a'][1]": partial(Ledger, number=holder),
        ".args[0]": partial(Ledger, lock),  # type: ignore[arg-type]
        ".func.__self__.thing['a'][1]": partial(holder.make, 1),
        ".__defaults__[0]": lambda number=lock: Ledger(number),
    }


@pytest.mark.parametrize("method", [method for method in METHODS if method != "fork"])
@pytest.mark.parametrize("where", list(make_bad_factories()))
def test_a_factory_that_cannot_be_pickled_is_named_with_its_variable(
    where: str, method: str
) -> None:
    env_fns = [Ledger, Ledger, make_bad_factories()[where], Ledger]
    said = rf"^env_fns\[2\]{re.escape(where)} \(lock\) cannot be sent to a worker: cannot pickle"
    with pytest.raises(TypeError, match=said):
        AsyncVectorEnv(env_fns, num_workers=2, context=method)
    assert not multiprocessing.active_children()


def test_env_kwargs_that_cannot_be_pickled_are_named() -> None:
    with pytest.raises(TypeError, match=r"^env_fns\[0\]\.kwargs\['number'\] \(lock\)"):
        make_vec(Ledger, 2, context="spawn", env_kwargs={"number": LOCK})


# Keeps the file of multiprocessing's heap, which is never freed, from appearing in a test.
HEAP = multiprocessing.RawValue("i")


class Sharing(Ledger):
    """A ledger with what processes share."""

    def __init__(self, shared: dict[str, Any]) -> None:
        super().__init__()
        self.shared = shared

    def use(self, number: int) -> None:
        shared = self.shared
        for name in ("lock", "semaphore", "condition"):
            with shared[name]:
                pass
        with shared["value"].get_lock():
            shared["value"].value += 1
        shared["event"].set()
        shared["array"][number] = number
        shared["queue"].put(number)
        shared["pipe"].send(number)
        shared["names"].append(number)
        assert shared["barrier"].parties == 2


@pytest.mark.parametrize("method", METHODS)
def test_what_processes_share_may_be_part_of_a_factory(method: str) -> None:
    context = multiprocessing.get_context(method)
    receiver, sender = context.Pipe(duplex=False)
    with context.Manager() as manager, receiver, sender:
        queue = context.Queue()
        shared = {
            "lock": context.Lock(), "semaphore": context.Semaphore(), "event": context.Event(),
            "condition": context.Condition(), "barrier": context.Barrier(2),
            "value": context.Value("i"), "array": context.Array("i", 2), "queue": queue,
            "pipe": sender, "names": manager.list(),
        }  # fmt: skip
        env_fns = [partial(Sharing, shared), lambda: Sharing(shared)]
        with AsyncVectorEnv(env_fns, num_workers=2, context=method) as envs:
            for count in (1, 2):
                for number in (0, 1):
                    envs.call("use", number, env_ids=[number])
                    assert queue.get(timeout=30) == receiver.recv() == number
                assert shared["value"].value == 2 * count
                assert list(shared["array"]) == [0, 1] and shared["event"].is_set()
                assert list(shared["names"]) == [0, 1] * count
                envs.restart(terminate=count == 1)
            for name in ("lock", "semaphore", "event", "condition", "value", "queue", "pipe"):
                said = rf"^set_attr\.values\[0\] \({type(shared[name]).__name__}\) cannot be sent"
                with pytest.raises(TypeError, match=rf"{said} .* which a worker gets at its start"):
                    envs.set_attr(name, shared[name])
        queue.close()
        queue.join_thread()
