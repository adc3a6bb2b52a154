"""AsyncVectorEnv: environments in worker processes, and how many workers there are."""

from __future__ import annotations

import multiprocessing
import os
import weakref
from collections.abc import Callable, Iterable
from multiprocessing import util
from multiprocessing.process import BaseProcess
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, Unpack

from vecspaces.checks import check_count
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.process.backend import ProcessBackend
from vecspaces.vector.backends.process.cores import count_usable_cores
from vecspaces.vector.managed_vector_env import ManagedVectorEnv
from vecspaces.vector.options import WorkerOptions, describe_arguments, takes
from vecspaces.vector.session.arguments import Settings, list_factories
from vecspaces.vector.session.batch_spaces import ObservationMode
from vecspaces.vector.vector_env import ActType, ObsType

if TYPE_CHECKING:
    from vecspaces.vector.autoreset import AnyAutoresetMode
    from vecspaces.vector.options import StartMethod


class AsyncVectorEnv(ManagedVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """Steps environments in worker processes, many in each.

    No environment is built in the caller's process. The results of `step` do not depend on
    `num_workers`, for environments without global state.

    Advanced: `shared_memory`, `daemon`, `worker`, `observation_mode` and `max_concurrency` come
    from Gymnasium's signature; few programs need them.

    Args:
        env_fns: Factories of environments; each is called once, in its worker. A factory may return
            a vector env, each of whose environments is then one row.
        shared_memory: Whether observations, actions, rewards and flags are in shared memory;
            otherwise they are sent over pipes, which is slower.
        context: The start method: `"fork"`, `"spawn"` or `"forkserver"`; None: Python's default.
        daemon: Whether workers are daemonic; environments that start processes of their own need
            False.
        worker: Must be None; it exists only because Gymnasium's signature has it.
        max_concurrency: The maximum of `num_workers`; None: no maximum.

    Raises:
        RuntimeError: The environments' spaces differ.
        ValueError: An argument is out of its range.
        Exception: What an environment's factory raised.

    Example:
        >>> import gymnasium
        >>> from vecspaces.vector import AsyncVectorEnv
        >>> env_fns = [lambda: gymnasium.make("CartPole-v1")] * 4
        >>> with AsyncVectorEnv(env_fns, num_workers=2) as envs:
        ...     observations, infos = envs.reset(seed=42)
        ...     observations, rewards, *_ = envs.step(envs.action_space.sample())
        >>> observations.shape, rewards.tolist()
        ((4, 4), [1.0, 1.0, 1.0, 1.0])
    """

    _backend: ProcessBackend
    _environments_are_in = "worker processes"

    # options.py describes the other arguments, and adds them to the docstring above.
    @takes(WorkerOptions)
    def __init__(
        self,
        env_fns: Iterable[Callable[[], Any]],
        shared_memory: bool = True,
        copy: bool = True,
        context: StartMethod | None = None,
        daemon: bool = True,
        worker: None = None,
        observation_mode: ObservationMode = "same",
        autoreset_mode: AnyAutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        if worker is not None:
            raise ValueError(
                "worker is not supported: use on_worker_death for crashes, and subclass "
                "AsyncVectorEnv or wrap the environment for other behaviour"
            )
        methods = sorted(multiprocessing.get_all_start_methods())
        if context is not None and context not in methods:
            raise ValueError(f"context must be None or one of {methods}, found {context!r}")
        self.env_fns = list_factories(env_fns)
        self.shared_memory = shared_memory
        self.context = context
        self.daemon = daemon
        self.worker = worker
        self.max_concurrency = max_concurrency
        settings = Settings.of(
            len(self.env_fns),
            copy=copy,
            observation_mode=observation_mode,
            autoreset_mode=autoreset_mode,
            **options,
        )
        worker_threads = options.get("worker_threads")
        if worker_threads is not None:
            check_count("worker_threads", worker_threads)
        self.num_workers = _choose_workers(
            len(self.env_fns), options.get("num_workers"), max_concurrency
        )
        backend = ProcessBackend(
            self.env_fns,
            settings.autoreset_mode,
            num_workers=self.num_workers,
            context=context,
            daemon=daemon,
            shared_memory=shared_memory,
            worker_threads=worker_threads,
            validate=settings.validate,
            slow_warning=settings.slow_warning,
            concurrent_envs=settings.concurrent_envs,
        )
        # Runs when this object is collected, or before multiprocessing joins its children at exit.
        self._finalizer = util.Finalize(
            self, backend.drop, ("an AsyncVectorEnv",), exitpriority=100
        )
        self._backend = backend  # before it is open, because a fork of another thread disowns it
        self._closing = RLock()
        _made.add(self)
        try:
            super().__init__(backend, settings)
        except BaseException:
            backend.abandon()
            raise

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes; empty after `close`."""
        return self._backend.processes

    def close(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Close every environment and end every worker; after an interrupt it can be repeated."""
        # If another thread closes, a call in a `with` block ends with an error, and the end of the
        # block also closes: it waits here until everything is freed.
        with self._closing:
            try:
                super().close(timeout, terminate, **kwargs)
            finally:
                if self.closed:
                    self._backend.abandon()  # what an interrupt may have left
                    self._finalizer.cancel()


describe_arguments(AsyncVectorEnv)

# The vector envs of this process that are not collected.
_made: weakref.WeakSet[AsyncVectorEnv[Any, Any]] = weakref.WeakSet()


def _disown_all() -> None:
    """In a forked process: disown all vector envs, which belong to the process that made them."""
    for envs in list(_made):
        envs._closing = RLock()  # a thread that does not exist here may have it
        envs._backend.disown()
        if hasattr(envs, "_session"):
            envs._session.disown()
    _made.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _choose_workers(
    num_factories: int, num_workers: int | None, max_concurrency: int | None
) -> int:
    """Choose the number of processes."""
    for name, value in (("num_workers", num_workers), ("max_concurrency", max_concurrency)):
        if value is not None:
            check_count(name, value)
    if num_workers is None:
        num_workers = min(count_usable_cores(), num_factories)
    elif num_workers > num_factories:
        raise ValueError(
            f"num_workers={num_workers} is more than the {num_factories} environments: "
            "a worker needs at least one"
        )
    return int(min(num_workers, max_concurrency or num_workers))
