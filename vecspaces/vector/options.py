"""Types of the arguments of vector envs, and their names for type checkers and editors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from vecspaces.vector.autoreset import AnyAutoresetMode
    from vecspaces.vector.engine.batch_spaces import ObservationMode
    from vecspaces.vector.engine.restarts import OnStepTimeout, OnWorkerDeath

#: "rows": each agent has a separate row; "dict": each agent is a key of Dicts.
AgentLayout: TypeAlias = Literal["rows", "dict"]
Backend: TypeAlias = Literal["async", "sync", "thread", "ray"]
StartMethod: TypeAlias = Literal["fork", "spawn", "forkserver"]


class RowOptions(TypedDict, total=False):
    """The keyword arguments of `make_vec` alone, then those of the vector envs."""

    vector_kwargs: Mapping[str, Any] | None
    env_kwargs: Mapping[str, Any] | None
    wrappers: Sequence[Callable[[Any], Any]] | None
    state: bool
    render_mode: str | None

    copy: bool
    observation_mode: ObservationMode
    autoreset_mode: AnyAutoresetMode
    batch_size: int | None
    buffers: int
    stats: bool
    validate: bool
    info_space: Any

    # AsyncVectorEnv, ThreadVectorEnv and RayVectorEnv
    num_workers: int | None
    variable_capacity: int
    on_worker_death: OnWorkerDeath
    max_restarts: int
    restart_window: float
    step_timeout: float | None
    on_step_timeout: OnStepTimeout
    start_timeout: float
    slow_warning: float | None
    worker_threads: int | None

    # AsyncVectorEnv
    shared_memory: bool
    context: StartMethod | None
    daemon: bool
    worker: None
    max_concurrency: int | None
    worker_init_fn: Callable[[int], Any] | None

    # RayVectorEnv
    address: str | None
    resources_per_worker: Mapping[str, Any] | None


class MakeOptions(RowOptions, total=False):
    """The keyword arguments of `make_vec` whose result is a vector env of the backend."""

    agents: Literal["dict"] | None
