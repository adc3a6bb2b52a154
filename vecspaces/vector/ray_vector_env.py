"""RayVectorEnv: environments in the actors of a Ray cluster, on one machine or many."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic

from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.ray.backend import RayBackend
from vecspaces.vector.backends.ray.cluster import Connection, choose_resources
from vecspaces.vector.backends.worker_setup import plan_workers
from vecspaces.vector.engine.arguments import Settings, check_workers, list_factories
from vecspaces.vector.managed_vector_env import ManagedVectorEnv
from vecspaces.vector.vector_env import ActType, ObsType

if TYPE_CHECKING:
    from vecspaces.vector.autoreset import AnyAutoresetMode
    from vecspaces.vector.engine.batch_spaces import ObservationMode
    from vecspaces.vector.engine.restarts import OnStepTimeout, OnWorkerDeath


class RayVectorEnv(ManagedVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """Steps environments in Ray actors, many per actor, with the results of `AsyncVectorEnv`.

    Needs the extra `ray`. A factory may return a vector env, each of whose environments is then one
    row: a node with many cores needs only one actor, whose factory makes an `AsyncVectorEnv`.

    `AsyncVectorEnv` describes the arguments that are not described here.

    Args:
        env_fns: Factories of environments; each is called once, in its actor.
        num_workers: The number of actors, which Ray distributes over the nodes. None: as many as
            the cluster has room for.
        address: The cluster. None: the cluster that this process is connected to, that RAY_ADDRESS
            names, or that runs on this machine, in this order; otherwise a local one is started,
            which ends with the last vector env that uses it.
        resources_per_worker: The resources that an actor reserves: `num_cpus`, `num_gpus`,
            `memory`, or names of custom resources.
        on_worker_death: `"raise"`, or `"restart"`: a new actor, on another node if its node is
            gone; or a function, as in `AsyncVectorEnv`.
        on_step_timeout: `"raise"`, `"restart"` or a function, as in `AsyncVectorEnv`; with
            `"restart"`, an actor that exceeds `step_timeout` is replaced.
        start_timeout: The longest wait for actors to be placed and environments to be built, in
            seconds. If `step_timeout` is None, it bounds the first reset too.
        slow_warning: After this many seconds a `SlowEnvironmentWarning` names the environments of a
            busy actor. None: never.
        worker_threads: Threads of BLAS, OpenMP and PyTorch in an actor; None does not change them.

    Raises:
        ImportError: Ray is not installed; the message names the extra.
        StepTimeoutError: The cluster had too few free resources within `start_timeout`; the message
            names the requested and the existing ones.
        ValueError: An argument is out of its range.
    """

    _environments_are_in = "the actors of a Ray cluster"

    def __init__(
        self,
        env_fns: Iterable[Callable[[], Any]],
        *,
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: AnyAutoresetMode = AutoresetMode.NEXT_STEP,
        num_workers: int | None = None,
        address: str | None = None,
        resources_per_worker: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        buffers: int = 1,
        variable_capacity: int = 65536,
        on_worker_death: OnWorkerDeath = "raise",
        max_restarts: int = 3,
        restart_window: float = 60.0,
        step_timeout: float | None = None,
        on_step_timeout: OnStepTimeout = "raise",
        start_timeout: float = 300.0,
        slow_warning: float | None = 60.0,
        worker_threads: int | None = 1,
        stats: bool = False,
        validate: bool = False,
        info_space: Any = None,
    ) -> None:
        arguments = locals()  # named as in `Settings`
        self.env_fns = list_factories(env_fns)
        settings = Settings.of(len(self.env_fns), arguments)
        resources = choose_resources(resources_per_worker)
        connection = Connection(address)
        try:
            if num_workers is None:
                num_workers = max(1, min(connection.room_for(resources), len(self.env_fns)))
            self.num_workers = check_workers(num_workers, len(self.env_fns))
            setups = plan_workers(
                self.env_fns,
                self.num_workers,
                settings.autoreset_mode,
                worker_threads,
                by_value=True,
                validate=settings.validate,
            )
            backend = RayBackend(setups, connection, resources, settings.slow_warning)
            self._finalizer = weakref.finalize(self, backend.drop, "a RayVectorEnv")
            super().__init__(backend, settings)
        except BaseException:
            connection.close()
            raise

    def close_extras(
        self, timeout: float | None = None, terminate: bool = False, **kwargs: Any
    ) -> None:
        """Close every environment and end every actor; called by `close`."""
        self._finalizer.detach()
        super().close_extras(timeout, terminate, **kwargs)
