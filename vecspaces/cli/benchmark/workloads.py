"""Workloads: the environments that are measured, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vecspaces.interop import require_extra
from vecspaces.make import GymnasiumFactory, find_factory

#: The environments of the benchmark: name -> what they do.
BUILT_IN = {
    "nothing": "does nothing, Box(4,)",
    "robot": "does nothing, a Dict of a camera, two joint vectors, a gripper and contacts",
    "infos": "does nothing, three numbers in the info of every step, as Atari has them",
    "image": "84x84x4 uint8 after 100 us of work",
    "CartPole-v1": "Gymnasium's",
    "skewed": "sleeps for 0.2 ms, in one step of ten for 2 ms",
}


@dataclass(frozen=True)
class Workload:
    """One environment to measure.

    Attributes:
        name: Its name in tables.
        make: Called once per environment, where it runs.
        gymnasium_id: The id under which libraries with environments of their own may have it.
        waits: Whether a step waits instead of computing, so that more workers than cores pay.
    """

    name: str
    make: Callable[[], Any]
    gymnasium_id: str | None = None
    waits: bool = False


def find_workload(name: str, arguments: Mapping[str, Any] | None = None) -> Workload:
    """Return one of `BUILT_IN`, or the environment that `find_factory` finds by the name.

    `arguments` are those of its factory.
    """
    if name in BUILT_IN and name != "CartPole-v1":
        if arguments:
            raise ValueError(f"--env-arg: {name} takes no arguments, found {dict(arguments)}")
        require_extra("gymnasium", "gymnasium")  # what other libraries can step derives from it
        environments = importlib.import_module("vecspaces.cli.benchmark.environments")
        return Workload(name, environments.find_environment(name), waits=name == "skewed")
    factory = find_factory(name)
    if arguments:  # which other libraries could not give to an environment of their own
        return Workload(name, partial(factory, **arguments))
    gymnasium_id = factory.spec.id if isinstance(factory, GymnasiumFactory) else None
    return Workload(name, factory, gymnasium_id=gymnasium_id)
