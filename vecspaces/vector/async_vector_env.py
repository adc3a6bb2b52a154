"""AsyncVectorEnv: environments in worker processes, and how many workers there are."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Generic

from vecspaces.checks import check_count
from vecspaces.cores import count_usable_cores
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.process.backend import ProcessBackend
from vecspaces.vector.engine.arguments import Settings, check_workers, list_factories
from vecspaces.vector.engine.batch_spaces import ObservationMode
from vecspaces.vector.owned_vector_env import OwnedVectorEnv
from vecspaces.vector.vector_env import ActType, ObsType

if TYPE_CHECKING:
    from vecspaces.vector.autoreset import AnyAutoresetMode
    from vecspaces.vector.engine.restarts import OnStepTimeout, OnWorkerDeath
    from vecspaces.vector.options import StartMethod


class AsyncVectorEnv(OwnedVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """Steps environments in worker processes, many per process.

    No environment is built in the caller's process. The results of `step` do not depend on
    `num_workers`, for environments without global state.

    Advanced: `shared_memory`, `daemon`, `worker`, `observation_mode` and `max_concurrency` come
    from Gymnasium's signature; few programs need them.

    Args:
        env_fns: Factories of environments; each is called once, in its worker. A factory may return
            a vector env, each of whose environments is then one row.
        shared_memory: Whether observations, actions, rewards and flags are in shared memory;
            otherwise they are sent over pipes, which is slower.
        copy: Whether observations are copied; otherwise they are views, which later steps
            overwrite.
        context: The start method: `"fork"`, `"spawn"` or `"forkserver"`; None: Python's default.
        daemon: Whether workers are daemonic; environments that start processes need False.
        worker: Must be None; it exists only because Gymnasium's signature has it.
        observation_mode: `"same"` for equal observation spaces, `"different"` for equal shapes and
            dtypes with other bounds, or the pair `(observation_space, single_observation_space)`.
        autoreset_mode: When a finished environment is reset: a mode or its name.
        max_concurrency: The maximum of `num_workers`; None: no maximum.
        num_workers: The number of processes; each steps a contiguous slice of the environments.
            None: one per usable core (affinity, and CPU quota rounded up), at most one per
            environment.
        batch_size: How many environments `recv` waits for; None: all.
        buffers: The number of observation buffers. With `copy=False`, the observations of a step
            stay valid for the next `buffers - 1` steps, or one step fewer if `rollout_view` is
            called in between; a full `reset` writes the first buffer again. A `reset_mask`,
            `step(env_ids=...)`, `send` and `send_reset` overwrite their rows in the
            current buffer, which the last step returned.
        variable_capacity: Bytes in shared memory per environment for values of variable size;
            larger ones go over the pipe. A Text with a large `max_length` has memory for its
            longest value in addition.
        on_worker_death: `"raise"`, or `"restart"`: a new worker builds the environments again, and
            the lost episodes are truncated and marked in `infos["worker_restarted"]`. Or a function
            that is called with the `WorkerDiedError` of each death before the restart, and may
            raise to prevent the restart.
        max_restarts: How many restarts are allowed within `restart_window`; one more is an error.
        restart_window: The time in which restarts are counted, in seconds.
        step_timeout: The longest wait for a reset, step or call, in seconds; None: no bound, except
            that `start_timeout` bounds the first reset.
        on_step_timeout: `"raise"`, or `"restart"`: a worker that exceeds `step_timeout` is killed
            and replaced like a dead one; workers that are late at the same time count as one
            restart. The `timeout` of a single wait restarts no worker. Or a function that is called
            with the `StepTimeoutError` before the restart, and may raise to prevent the restart.
        start_timeout: The longest wait for environments to be built, in seconds. If `step_timeout`
            is None, it bounds the first reset too.
        slow_warning: After this many seconds a `SlowEnvironmentWarning` names an environment that
            is busy with one reset, step or call, or is being built, and shows its Python stack (on
            Linux), once per episode. None: never.
        worker_threads: Threads of BLAS, OpenMP and PyTorch in a worker; None does not change them.
            Libraries other than PyTorch that the caller has loaded keep their number of threads in
            a forked worker, unless threadpoolctl is installed.
        stats: Whether `stats()` measures how long steps take.
        validate: Whether values are checked: observations and actions must be in their spaces
            (bounds, NaN, dtypes, characters), rewards must be finite, flags must be bools, and keys
            of infos must be strings. False: nesting, shapes, kinds of dtypes, and the maximum
            length of a Text are checked.
        info_space: A Dict with the keys of infos that are checked, and stored like observations.
            None: the `info_space` of the environments, if they have it; an empty Dict: no keys.
        worker_init_fn: A function that is called with the index of each worker, in this worker,
            before its factories are unpickled; also in a worker that replaces another.

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
        worker_init_fn: Callable[[int], Any] | None = None,
    ) -> None:
        arguments = locals()  # named as in `Settings`
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
        settings = Settings.of(len(self.env_fns), arguments)
        if worker_threads is not None:
            check_count("worker_threads", worker_threads)
        if worker_init_fn is not None and not callable(worker_init_fn):
            raise TypeError(
                f"worker_init_fn must be a function of an int, found {worker_init_fn!r}"
            )
        self.num_workers = _choose_workers(len(self.env_fns), num_workers, max_concurrency)
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
            init_fn=worker_init_fn,
        )
        super().__init__(backend, settings, "an AsyncVectorEnv")

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes; empty after `close`."""
        return self._backend.processes


def _choose_workers(
    num_factories: int, num_workers: int | None, max_concurrency: int | None
) -> int:
    """Choose the number of processes."""
    if max_concurrency is not None:
        check_count("max_concurrency", max_concurrency)
    if num_workers is None:
        num_workers = min(count_usable_cores(), num_factories)
    num_workers = check_workers(num_workers, num_factories)
    return int(min(num_workers, max_concurrency or num_workers))
