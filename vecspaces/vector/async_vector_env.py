"""AsyncVectorEnv: environments in worker processes, batches through shared memory."""

from __future__ import annotations

import multiprocessing
import os
import warnings
import weakref
from collections.abc import Callable, Iterable
from multiprocessing import util
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from vecspaces.checks import check_count
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.process.backend import ProcessBackend
from vecspaces.vector.backends.process.cores import count_usable_cores
from vecspaces.vector.exchange.info_space import check_info_space
from vecspaces.vector.managed_vector_env import ManagedVectorEnv
from vecspaces.vector.session.arguments import Settings, list_factories
from vecspaces.vector.session.batch_spaces import ObservationMode
from vecspaces.vector.session.restarts import OnStepTimeout, OnWorkerDeath, choose_budget
from vecspaces.vector.vector_env import ActType, ObsType

if TYPE_CHECKING:
    from vecspaces.vector.autoreset import AnyAutoresetMode
    from vecspaces.vector.options import StartMethod


class AsyncVectorEnv(ManagedVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """Steps environments in worker processes, many in each.

    No environment is built in the caller's process. The results of `step` do not depend on
    `num_workers`, for environments without global state.

    Args:
        env_fns: Factories of environments; each is called once, in its worker. One may return a
            vector env, which then counts as its `num_envs` environments.
        shared_memory: Whether observations, actions, rewards and flags are in shared memory;
            otherwise they go over pipes, which is slower.
        copy: Whether observations are copied; otherwise they are views that a later step writes
            over.
        context: The start method: `"fork"`, `"spawn"`, `"forkserver"`; None: Python's default.
        daemon: Whether workers are daemonic; environments that start processes of their own need
            False.
        worker: Not taken over from Gymnasium; must be None.
        observation_mode: `"same"` for equal observation spaces, `"different"` for equal shapes and
            dtypes with other bounds, or the pair `(observation_space, single_observation_space)`.
        autoreset_mode: What follows the end of an episode.
        max_concurrency: The most workers, as a cap on `num_workers`; None: no cap.
        num_workers: The number of processes; each steps a contiguous slice of the environments.
            None: as many as there are usable cores, no more than the CPU quota of a container.
        batch_size: How many environments `recv` waits for; None: all.
        buffers: The number of observation slots. With `copy=False`, what a step returned stays
            valid for the next `buffers - 1` steps, one less where `rollout_view` comes between; a
            full `reset` begins anew. A `reset_mask`, `step(env_ids=...)`, `send` and `send_reset`
            write over the rows that they choose in the current slot, which the last step returned.
        variable_capacity: Bytes in shared memory per environment for values of variable size;
            larger ones go over the pipe.
        on_worker_death: `"raise"`, or `"restart"`: a new worker builds the environments again, and
            the lost episodes are truncated and marked in `infos["worker_restarted"]`. Or a function
            that is called with the `WorkerDiedError` of each death: the worker is restarted, unless
            the function raises, which ends the call with what it raised.
        max_restarts: How many restarts are allowed within `restart_window`; one more is an error.
        restart_window: In seconds.
        step_timeout: The longest wait for a reset, step or call, in seconds; None: no bound but
            for the first reset.
        on_step_timeout: `"raise"`, or `"restart"`: a worker that overruns `step_timeout` is killed
            and restarted as a dead one is; all workers that were late together count as one
            restart. It does not concern the `timeout` of a single wait. Or a function that is
            called with the `StepTimeoutError` first, and may raise instead.
        start_timeout: The longest wait for environments to be built, and, where `step_timeout` is
            None, for the first reset, in seconds.
        slow_warning: After how many seconds a `SlowEnvironmentWarning` names an environment that
            is busy with one reset, step or call, or is being built, and shows its Python stack (on
            Linux); once per episode. None: never.
        worker_threads: Threads of BLAS, OpenMP and PyTorch in a worker; None leaves them alone.
            Libraries that a forked worker has from its caller keep theirs, unless threadpoolctl
            is installed (PyTorch excepted).
        stats: Whether `stats()` measures how long steps take.
        validate: Whether observations and actions must lie in their spaces (bounds, NaN,
            characters, lengths), rewards be finite, flags be bools, and infos be dicts with
            strings as keys; without it, only shapes, dtypes and nesting are checked.
        info_space: What infos hold, a Dict: its keys travel beside the observations, as arrays of
            its dtypes, and are checked against it. None: the `info_space` of the environments, if
            they have one; an empty Dict: nothing.

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
        *,
        num_workers: int | None = None,
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
        if worker is not None:
            raise ValueError(
                "worker is not supported: use on_worker_death for crashes, and subclass "
                "AsyncVectorEnv or wrap the environment for other behaviour"
            )
        methods = multiprocessing.get_all_start_methods()
        if context is not None and context not in methods:
            raise ValueError(f"context must be None or one of {methods}, found {context!r}")
        self.env_fns = list_factories(env_fns)
        self.shared_memory = shared_memory
        self.context = context
        self.daemon = daemon
        self.worker = worker
        self.max_concurrency = max_concurrency
        settings = Settings(
            observation_mode,
            AutoresetMode.of(autoreset_mode),
            copy=copy,
            buffers=buffers,
            variable_capacity=variable_capacity,
            stats=stats,
            validate=validate,
            start_timeout=start_timeout,
            step_timeout=step_timeout,
            slow_warning=slow_warning,
            budget=choose_budget(
                on_worker_death, on_step_timeout, step_timeout, max_restarts, restart_window
            ),
            info_space=check_info_space(info_space),
        ).check(len(self.env_fns))
        if worker_threads is not None:
            check_count("worker_threads", worker_threads)
        self.num_workers = _choose_workers(len(self.env_fns), num_workers, max_concurrency)
        backend = ProcessBackend(
            self.env_fns,
            settings.autoreset_mode,
            num_workers=self.num_workers,
            context=context,
            daemon=daemon,
            shared_memory=shared_memory,
            worker_threads=worker_threads,
            validate=validate,
            slow_warning=settings.slow_warning,
        )
        # Before multiprocessing joins its children at exit, and when this object is collected.
        self._finalizer = util.Finalize(self, _clean_up, (backend,), exitpriority=100)
        self._processes = backend
        _made.add(self)
        try:
            super().__init__(backend, settings, batch_size)
        except BaseException:
            backend.abandon()
            raise

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes; empty after `close`."""
        return self._processes.processes

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "AsyncVectorEnv cannot be copied or pickled, since its environments live in "
            "worker processes: make another one from its env_fns, or use SyncVectorEnv"
        )

    def close(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Close every environment and end every worker; after an interrupt it can be repeated."""
        try:
            super().close(timeout, terminate, **kwargs)
        finally:
            if self.closed:
                self._processes.abandon()  # what an interrupt may have left
                self._finalizer.cancel()


# Those of this process that are not collected.
_made: weakref.WeakSet[AsyncVectorEnv[Any, Any]] = weakref.WeakSet()


def _disown_all() -> None:
    """In a forked process: the vector envs are those of the process that made them."""
    for envs in list(_made):
        envs._processes.disown()
        if hasattr(envs, "_session"):
            envs._session.disown()
    _made.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _clean_up(backend: ProcessBackend) -> None:
    """End the workers of a vector env that was not closed, and free the memory."""
    if backend.processes:
        # First: a warning may be turned into an error, whose traceback keeps the backend.
        backend.close(1.0)
        backend.abandon()
        warnings.warn(
            "an AsyncVectorEnv was dropped without close(): use `with` or call close()",
            ResourceWarning,
            stacklevel=2,
        )


def _choose_workers(
    num_factories: int, num_workers: int | None, max_concurrency: int | None
) -> int:
    """Decide on the number of processes."""
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
