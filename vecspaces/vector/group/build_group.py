"""Building of a process's group: single environments, or one vector env."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vecspaces.checks import RAISED
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.exchange.failures import WORKER_PER_ENV, Failure, Message
from vecspaces.vector.group.building import Builder, Built, check_distinct, close_all
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.single_envs import SingleEnvs
from vecspaces.vector.group.vector_member import VectorMember

# Hint for simulators that allow one instance per process.
_ADVICE = f"(if this environment allows one instance per process: {WORKER_PER_ENV})"
_NOT_ALONE = (
    "{:env_fn} returned a vector env, which must be the only environment of its worker: use "
    f"{WORKER_PER_ENV}, or ThreadVectorEnv"
)


def build_group(
    env_fns: Sequence[Callable[[], Any]],
    mode: AutoresetMode,
    first: int = 0,
    *,
    validate: bool = False,
    note_building: Callable[..., None] | None = None,
) -> Group:
    """Call each factory once, check what it returns, and make a group of all.

    `first` is the index of the first one in the vector env. `note_building` is called with the
    index of each factory before the factory, and with -1 at the end.
    """
    builder, built = Builder(mode, validate), list[Built]()
    numbers: dict[int, int] = {}  # by the identity of the environment
    for number, env_fn in enumerate(env_fns, first):
        try:
            if note_building is not None:
                note_building(number)
            try:
                env = env_fn()
            except RAISED as error:
                advice = _ADVICE if built else ""
                raise Failure.of(error, (number,), "build").adding(advice) from None
            result = builder.check(env, number)
            check_distinct(env, number, numbers)
            built.append(result)
            if result.is_vector and len(env_fns) > 1:
                raise ValueError(Message(_NOT_ALONE, number))
        except BaseException as error:
            close_all(built, 0)
            if isinstance(error, RAISED):
                raise Failure.of(error, (number,), "build") from None
            raise
    if note_building is not None:
        note_building(-1)
    kind = VectorMember if built[0].is_vector else SingleEnvs
    return kind(builder, env_fns, built, first)
