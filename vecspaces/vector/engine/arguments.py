"""Checks of arguments: of constructors, of options with `reset_mask`, and of `env_ids`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_count, check_seconds
from vecspaces.errors import InvalidActionError
from vecspaces.layout import Mismatch
from vecspaces.spaces import Dict
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.engine.batch_spaces import ObservationMode, check_mode
from vecspaces.vector.engine.restarts import RestartBudget, choose_budget
from vecspaces.vector.engine.seeds import spread_seeds
from vecspaces.vector.exchange.failures import Message
from vecspaces.vector.exchange.info_space import check_info_space
from vecspaces.vector.exchange.messages import RowState


class Settings(NamedTuple):
    """The arguments that backends share, checked, seconds as floats.

    `AsyncVectorEnv` describes the arguments. The `budget` states which workers are restarted, and
    how many; None: no workers.
    """

    observation_mode: ObservationMode
    autoreset_mode: AutoresetMode
    copy: bool
    batch_size: int | None
    buffers: int
    stats: bool
    validate: bool
    info_space: Dict[Any] | None
    # Without processes, a wait has no limit but its own `timeout`.
    variable_capacity: int = 65536
    start_timeout: float = math.inf
    step_timeout: float | None = None
    slow_warning: float | None = None
    budget: RestartBudget | None = None

    @classmethod
    def of(cls, num_factories: int, arguments: Mapping[str, Any]) -> Settings:
        """Check a constructor's arguments, and return those that backends share."""
        options = dict(arguments)
        options["autoreset_mode"] = AutoresetMode.of(options["autoreset_mode"])
        if "on_worker_death" in options:
            options["budget"] = choose_budget(**options)
        options["info_space"] = check_info_space(options["info_space"])
        check_mode(options["observation_mode"])
        if num_factories < 1:
            raise ValueError("env_fns must hold at least one factory, found none")
        check_count("buffers", options["buffers"])
        if "variable_capacity" in options:
            check_count("variable_capacity", options["variable_capacity"], least=0)
        if options["batch_size"] is not None:
            options["batch_size"] = check_count("batch_size", options["batch_size"])
        for name in ("step_timeout", "start_timeout", "slow_warning"):
            # Without a start_timeout, a worker that hangs in a factory would hang the caller.
            if options.get(name) is not None or (name == "start_timeout" and name in options):
                options[name] = check_seconds(name, options[name])
        return cls(**{name: options[name] for name in cls._fields if name in options})


def list_factories(env_fns: Iterable[Callable[[], Any]]) -> list[Callable[[], Any]]:
    """Return the factories of environments, checked before any of them is called."""
    if not isinstance(env_fns, Iterable):
        raise TypeError(
            "env_fns must be a list of functions that make environments, found "
            f"{env_fns!r}: write [env_fn] * n"
        )
    factories = list(env_fns)
    for number, factory in enumerate(factories):
        if not callable(factory):
            raise TypeError(
                f"env_fns[{number}] must be a function that makes an environment, found "
                f"{factory!r} ({type(factory).__name__})"
            )
    return factories


def check_workers(num_workers: Any, num_factories: int) -> int:
    """Return the number of workers, checked: each has an environment."""
    count = check_count("num_workers", num_workers)
    if count > num_factories:
        raise ValueError(
            f"num_workers={count} is more than the {num_factories} environments: "
            "a worker needs at least one"
        )
    return count


Options = Mapping[str, Any]


class Once(list["Options | None"]):
    """Options of one reset, one mapping per environment; autoresets do not get them."""


class ResetPlan(NamedTuple):
    """The rows of one reset; seeds and options are those of all environments."""

    rows: npt.NDArray[np.intp]
    seeds: list[int | None]
    options: list[Options | None]
    keep_options: bool  # for autoresets
    is_masked: bool = False
    # By row, states that are loaded in place of resets.
    states: Mapping[int, RowState] = MappingProxyType({})


def plan_reset(seed: Any, options: Any, num_envs: int) -> ResetPlan:
    """Return the plan for the arguments of `reset`; the caller's mapping is not changed."""
    seeds = spread_seeds(seed, num_envs)
    rows = np.arange(num_envs, dtype=np.intp)
    if options is None:
        return ResetPlan(rows, seeds, [None] * num_envs, False)
    if isinstance(options, Mapping):
        is_masked = "reset_mask" in options
        if is_masked:
            rows = masked_rows(options["reset_mask"], num_envs)
            # With only a mask, the options would be an empty mapping, which environments may
            # refuse.
            options = {key: value for key, value in options.items() if key != "reset_mask"} or None
        return ResetPlan(rows, seeds, [options] * num_envs, False, is_masked)
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise TypeError(
            f"options must be a mapping, or a sequence of one mapping or None per environment, "
            f"found {type(options).__name__}"
        )
    if len(options) != num_envs:
        raise ValueError(f"expected {num_envs} options, one per environment, found {len(options)}")
    for number, choice in enumerate(options):
        if choice is not None and not isinstance(choice, Mapping):
            raise TypeError(
                f"options[{number}] must be a mapping or None, found {type(choice).__name__}"
            )
        if choice is not None and "reset_mask" in choice:
            raise ValueError(
                f"options[{number}] holds a reset_mask, which belongs to all environments: give "
                "one mapping of options, or reset all environments"
            )
    return ResetPlan(rows, seeds, list(options), not isinstance(options, Once))


def rows_of(counts: Sequence[int]) -> list[range]:
    """Return the rows of each environment with several rows; `counts` are rows per environment."""
    ends = accumulate(counts)
    return [range(end - count, end) for end, count in zip(ends, counts, strict=True) if count > 1]


def check_whole(
    rows: Iterable[int],
    wholes: Iterable[range],
    call: str,
    kind: type[ValueError],
    what: str = "one vector env, which steps and is reset as a whole",
) -> None:
    """Refuse a part of rows that step together."""
    chosen = set(rows) if wholes else set()
    for whole in wholes:
        rest = [row for row in whole if row not in chosen]
        if 0 < len(rest) < len(whole):
            raise kind(Message("{}: {:envs} are {}: name {:envs} too", call, whole, what, rest))


def masked_rows(mask: Any, num_envs: int) -> npt.NDArray[np.intp]:
    """Return the rows that a mask chooses, checked as Gymnasium checks it."""
    what = "options['reset_mask']"
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"{what} must be a numpy array, found {type(mask).__name__}")
    if mask.shape != (num_envs,):
        raise ValueError(f"{what} must have shape ({num_envs},), found {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"{what} must have dtype bool, found {mask.dtype}")
    if not mask.any():
        raise ValueError(f"{what} must choose at least one environment, found none")
    return np.flatnonzero(mask)


def check_env_ids(env_ids: Any, num_envs: int) -> list[int]:
    """Return the numbers of the chosen environments; None chooses all."""
    if env_ids is None:
        return list(range(num_envs))
    if type(env_ids) is np.ndarray and env_ids.ndim == 1 and env_ids.dtype.kind in "iu":
        env_ids = env_ids.tolist()  # Python's own ints need no conversion
    numbers: list[Any] = list(env_ids) if np.iterable(env_ids) else [None]
    types = set(map(type, numbers))
    if {bool, np.bool_} & types:
        raise TypeError(
            f"env_ids must be the numbers of environments, found booleans, {env_ids!r}: "
            "numpy.flatnonzero(mask) gives the numbers of a mask"
        )
    try:
        ids = numbers if types == {int} else [operator.index(number) for number in numbers]
    except TypeError:
        raise TypeError(
            f"env_ids must be the numbers of environments, as integers, found {env_ids!r}"
        ) from None
    if ids and not 0 <= min(ids) <= max(ids) < num_envs:
        bad = next(number for number in ids if not 0 <= number < num_envs)
        raise ValueError(f"env_ids must lie between 0 and {num_envs - 1}, found {bad}")
    if len(set(ids)) < len(ids):
        raise ValueError(f"env_ids must name each environment once, found {ids}")
    return ids


def action_error(error: Mismatch, rows: Sequence[int] | None, space: Any) -> InvalidActionError:
    """Return the error for a batch that does not fit the action space; `rows` are None for all."""
    reason = Mismatch(error.expected, error.actual, error.path, name="actions")
    where: str = ""
    if error.row is not None:
        where = Message(" for {:envs}", [error.row if rows is None else rows[error.row]])
    return InvalidActionError(
        Message("{}{}: a batch must fit action_space {}", reason, where, space)
    )
