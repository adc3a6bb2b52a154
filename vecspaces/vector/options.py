"""The arguments of vector envs and make_vec: the type, default and description of each, once.

`takes` lets a constructor take them, `describe_arguments` writes their descriptions into
the docstring of its class, and `make_vec` passes them on.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, cast

from vecspaces.vector.autoreset import AutoresetMode

if TYPE_CHECKING:
    from vecspaces.vector.agents import AgentLayout
    from vecspaces.vector.autoreset import AnyAutoresetMode
    from vecspaces.vector.session.batch_spaces import ObservationMode
    from vecspaces.vector.session.restarts import OnStepTimeout, OnWorkerDeath

Backend: TypeAlias = Literal["async", "sync", "ray"]
StartMethod: TypeAlias = Literal["fork", "spawn", "forkserver"]
Placement: TypeAlias = Literal["spread", "pack"]
_Constructor = TypeVar("_Constructor", bound=Callable[..., Any])


class EnvOptions(TypedDict, total=False):
    """Arguments that a vector env and a pool take, by name alone.

    Args:
        stats: Whether `stats()` measures how long steps take.
        validate: Whether values are checked: observations and actions must be in their spaces
            (bounds, NaN, characters, lengths), rewards must be finite, flags must be bools, and
            keys of infos must be strings. Shapes, dtypes and nesting are always checked.
        info_space: A Dict with the keys of infos that are checked, and stored like observations.
            None: the environments' own `info_space`, if they have one; an empty Dict: no keys.
        concurrent_envs: How many environments of a process may step at the same time, for
            environments that wait or release Python's global interpreter lock. Environment i of a
            process is built, stepped and closed in thread i modulo `concurrent_envs`. 1: all in the
            main thread.
    """

    stats: bool
    validate: bool
    info_space: Any
    concurrent_envs: int


class BatchOptions(EnvOptions, total=False):
    """Arguments that every vector env takes, by name alone.

    Args:
        batch_size: How many environments `recv` waits for; None: all.
        buffers: The number of observation buffers. With `copy=False`, the observations of a step
            stay valid for the next `buffers - 1` steps, or one step fewer if `rollout_view` is
            called in between; a full `reset` writes the first buffer again. A `reset_mask`,
            `step(env_ids=...)`, `send`, `send_reset` and `step_chunk` overwrite their rows in the
            current buffer, which the last step returned.
    """

    batch_size: int | None
    buffers: int


class ProcessOptions(EnvOptions, total=False):
    """Further arguments of vector envs with workers, and of pools, by name alone.

    Args:
        num_workers: The number of processes; each steps a contiguous slice of the environments.
            None: as many as there are usable cores, no more than the CPU quota of a container.
        variable_capacity: Bytes in shared memory per environment for values of variable size;
            larger ones go over the pipe. A Text with a large `max_length` has memory for its
            longest value in addition.
        max_restarts: How many restarts are allowed within `restart_window`; one more is an error.
        restart_window: The time in which restarts are counted, in seconds.
        step_timeout: The longest wait for a reset, step or call, in seconds; None: no bound, except
            that `start_timeout` bounds the first reset.
        start_timeout: The longest wait for environments to be built, in seconds. If `step_timeout`
            is None, it bounds the first reset too.
        slow_warning: After this many seconds a `SlowEnvironmentWarning` names an environment that
            is busy with one reset, step or call, or is being built, and shows its Python stack (on
            Linux), once per episode. None: never.
        recycle_after: A worker is closed and replaced after this many episodes: in `evaluate`,
            `collect` and `aio.Pool`, at full resets, and with `num_workers=num_envs` at the end of
            an episode; refused elsewhere. None: never.
        recycle_memory: The same when a worker uses this much memory, in bytes of its proportional
            set size (on Linux). The time of the replacement is not reproducible. None: never.
        worker_threads: Threads of BLAS, OpenMP and PyTorch in a worker; None does not change them.
            Libraries other than PyTorch that the caller has loaded keep their number of threads in
            a forked worker, unless threadpoolctl is installed.
    """

    num_workers: int | None
    variable_capacity: int
    max_restarts: int
    restart_window: float
    step_timeout: float | None
    start_timeout: float
    slow_warning: float | None
    recycle_after: int | None
    recycle_memory: int | None
    worker_threads: int | None


class WorkerOptions(BatchOptions, ProcessOptions, total=False):
    """Arguments that vector envs with workers take, by name alone.

    Args:
        on_worker_death: `"raise"`, or `"restart"`: a new worker builds the environments again, and
            the lost episodes are truncated and marked in `infos["worker_restarted"]`. Or a function
            that is called with the `WorkerDiedError` of each death before the restart, and may
            raise to prevent the restart.
        on_step_timeout: `"raise"`, or `"restart"`: a worker that exceeds `step_timeout` is killed
            and replaced like a dead one; workers that are late at the same time count as one
            restart. The `timeout` of a single wait restarts no worker. Or a function that is called
            with the `StepTimeoutError` before the restart, and may raise to prevent the restart.
    """

    on_worker_death: OnWorkerDeath
    on_step_timeout: OnStepTimeout


class _EveryOption(TypedDict, total=False):
    """Arguments that every vector env takes; Gymnasium's constructors take them by position too.

    Args:
        copy: Whether observations are copied; otherwise they are views, which later steps
            overwrite.
        observation_mode: `"same"` for equal observation spaces, `"different"` for equal shapes and
            dtypes with other bounds, or the pair `(observation_space, single_observation_space)`.
        autoreset_mode: When a finished environment is reset: a mode or its name.
    """

    copy: bool
    observation_mode: ObservationMode
    autoreset_mode: AnyAutoresetMode


class _StartOptions(TypedDict, total=False):
    """Arguments of worker processes that `AsyncVectorEnv` takes by position too."""

    shared_memory: bool
    context: StartMethod | None
    daemon: bool
    worker: None
    max_concurrency: int | None


class AsyncOptions(_EveryOption, WorkerOptions, _StartOptions, total=False):
    """The arguments of `AsyncVectorEnv`."""


class PoolOptions(ProcessOptions, _StartOptions, total=False):
    """The arguments of `aio.Pool`: those of `make_vec` that concern no batches."""

    observation_mode: ObservationMode
    vector_kwargs: Mapping[str, Any] | None
    env_kwargs: Mapping[str, Any] | None
    wrappers: Sequence[Callable[[Any], Any]] | None
    agents: AgentLayout | None
    state: bool
    render_mode: str | None


class RayOptions(_EveryOption, WorkerOptions, total=False):
    """The arguments of `RayVectorEnv`."""

    envs_per_actor: int | None
    address: str | None
    resources_per_worker: Mapping[str, Any] | None
    placement: Placement
    processes_per_actor: int


_DEFAULTS: Mapping[str, Any] = {
    "copy": True,
    "observation_mode": "same",
    "autoreset_mode": AutoresetMode.NEXT_STEP,
    "batch_size": None,
    "buffers": 1,
    "stats": False,
    "validate": False,
    "info_space": None,
    "concurrent_envs": 1,
    "num_workers": None,
    "variable_capacity": 65536,
    "on_worker_death": "raise",
    "max_restarts": 3,
    "restart_window": 60.0,
    "step_timeout": None,
    "on_step_timeout": "raise",
    "start_timeout": 300.0,
    "slow_warning": 60.0,
    "recycle_after": None,
    "recycle_memory": None,
    "worker_threads": 1,
    "envs_per_actor": None,
    "address": None,
    "resources_per_worker": None,
    "placement": "spread",
    "processes_per_actor": 1,
}

#: The arguments that concern processes: with `backend="sync"` they are accepted and ignored.
PROCESS_ARGUMENTS = (
    AsyncOptions.__optional_keys__ - _EveryOption.__optional_keys__ - BatchOptions.__optional_keys__
)


def takes(
    options: type, defaults: Mapping[str, Any] = _DEFAULTS
) -> Callable[[_Constructor], _Constructor]:
    """Give the `**options` of a constructor or function the defaults of a TypedDict's keys.

    `help`, `inspect.signature` and Sphinx show the keys as arguments, as editors and type checkers
    do, which read `Unpack[...]`.
    """
    added = {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults[name],
            annotation=reference.__forward_arg__,  # a TypedDict stores a ForwardRef
        )
        for name, reference in options.__annotations__.items()
    }

    def decorate(constructor: _Constructor) -> _Constructor:
        signature = inspect.signature(constructor)
        *first, _ = signature.parameters.values()
        known = {parameter.name for parameter in first} | added.keys()

        @functools.wraps(constructor)
        def complete(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in known:  # as Python words it
                    raise TypeError(
                        f"{constructor.__qualname__}() got an unexpected keyword argument {name!r}"
                    )
            unset = {name: parameter.default for name, parameter in added.items()}
            return constructor(*args, **{**unset, **given})

        vars(complete)["__signature__"] = signature.replace(parameters=[*first, *added.values()])
        return cast("_Constructor", complete)

    return decorate


def describe_arguments(kind: type) -> None:
    """Write the shared descriptions into the docstring of a class, in the order of its arguments.

    A description in the class itself replaces the shared one.
    """
    if kind.__doc__ is None:  # python -OO
        return
    shared: dict[str, str] = {}
    for options in (_EveryOption, EnvOptions, BatchOptions, ProcessOptions, WorkerOptions):
        shared |= _descriptions(options.__doc__ or "")
    doc = inspect.cleandoc(kind.__doc__)  # as Python 3.13 and newer keep it
    own = _descriptions(doc)
    known = {**shared, **own}
    names = [name for name in inspect.signature(kind).parameters if name in known]
    kind.__doc__ = doc.replace("".join(own.values()), "".join(known[name] for name in names))


def _descriptions(docstring: str) -> dict[str, str]:
    """Return the lines about each argument in a docstring of a class."""
    section = inspect.cleandoc(docstring).partition("Args:\n")[2].partition("\n\n")[0] + "\n"
    return {
        found[2]: found[1] for found in re.finditer(r"( {4}(\w+): .*\n(?: {5,}.*\n)*)", section)
    }
