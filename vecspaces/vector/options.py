"""The arguments of the vector envs as types, so that `make_vec` need not list them again.

`tests/test_public_api.py` holds them equal to the constructors'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from vecspaces.vector.autoreset import AnyAutoresetMode
    from vecspaces.vector.session.batch_spaces import ObservationMode
    from vecspaces.vector.session.restarts import OnStepTimeout, OnWorkerDeath

Backend: TypeAlias = Literal["async", "sync", "ray"]
StartMethod: TypeAlias = Literal["fork", "spawn", "forkserver"]
Placement: TypeAlias = Literal["spread", "pack"]


class SyncOptions(TypedDict, total=False):
    """The arguments of `SyncVectorEnv`, which every vector env takes."""

    copy: bool
    observation_mode: ObservationMode
    autoreset_mode: AnyAutoresetMode
    batch_size: int | None
    buffers: int
    stats: bool
    validate: bool
    info_space: Any


class _WorkerOptions(SyncOptions, total=False):
    """The arguments of vector envs with workers."""

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


class AsyncOptions(_WorkerOptions, total=False):
    """The arguments of `AsyncVectorEnv`."""

    shared_memory: bool
    context: StartMethod | None
    daemon: bool
    worker: None
    max_concurrency: int | None


class RayOptions(_WorkerOptions, total=False):
    """The arguments of `RayVectorEnv`."""

    envs_per_actor: int | None
    address: str | None
    resources_per_worker: Mapping[str, Any] | None
    placement: Placement
    processes_per_actor: int


#: The arguments that concern processes: with `backend="sync"` they are accepted and ignored.
PROCESS_ARGUMENTS = AsyncOptions.__optional_keys__ - SyncOptions.__optional_keys__
