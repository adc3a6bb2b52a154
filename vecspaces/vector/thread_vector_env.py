"""ThreadVectorEnv: environments in threads of the caller's process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic

from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.threads import ThreadBackend
from vecspaces.vector.backends.worker_setup import plan_workers
from vecspaces.vector.engine.arguments import Settings, check_workers, list_factories
from vecspaces.vector.owned_vector_env import OwnedVectorEnv
from vecspaces.vector.vector_env import ActType, ObsType

if TYPE_CHECKING:
    from vecspaces.vector.autoreset import AnyAutoresetMode
    from vecspaces.vector.engine.batch_spaces import ObservationMode
    from vecspaces.vector.engine.restarts import OnStepTimeout


class ThreadVectorEnv(OwnedVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """Steps environments in threads of the caller's process, one or more per thread.

    For environments that wait (for a server, a robot or a language model), or whose native code
    releases Python's global interpreter lock. An environment is built, reset, stepped, called,
    rendered and closed in one thread. Nothing is pickled: calls and infos pass objects themselves.

    `AsyncVectorEnv` describes the arguments that are not described here.

    Args:
        env_fns: Factories of environments; each is called once, in its thread.
        num_workers: The number of threads; each steps a contiguous slice of the environments.
            None: one thread per environment.
        on_step_timeout: `"raise"`, `"restart"` or a function. A thread that exceeds `step_timeout`
            cannot be ended: another thread builds its environments again, and it is abandoned.
        slow_warning: After this many seconds a `SlowEnvironmentWarning` names an environment that
            is not ready, with the stack of its thread. None: never.

    Raises:
        StepTimeoutError: Environments were not built within `start_timeout`.
        ValueError: An argument is out of its range.

    Example:
        >>> import gymnasium
        >>> from vecspaces.vector import ThreadVectorEnv
        >>> with ThreadVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2) as envs:
        ...     observations, infos = envs.reset(seed=42)
        >>> observations.shape, envs.num_workers
        ((2, 4), 2)
    """

    _backend: ThreadBackend
    _environments_are_in = "threads of the caller's process"
    _left_open = ": threads cannot be ended, and go on until the call in them returns"

    def __init__(
        self,
        env_fns: Iterable[Callable[[], Any]],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: AnyAutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        num_workers: int | None = None,
        batch_size: int | None = None,
        buffers: int = 1,
        step_timeout: float | None = None,
        on_step_timeout: OnStepTimeout = "raise",
        max_restarts: int = 3,
        restart_window: float = 60.0,
        start_timeout: float = 300.0,
        slow_warning: float | None = 60.0,
        stats: bool = False,
        validate: bool = False,
        info_space: Any = None,
    ) -> None:
        # Named as in `Settings`; a thread does not die alone.
        arguments = {**locals(), "on_worker_death": "raise"}
        self.env_fns = list_factories(env_fns)
        settings = Settings.of(len(self.env_fns), arguments)
        chosen = len(self.env_fns) if num_workers is None else num_workers
        self.num_workers = check_workers(chosen, len(self.env_fns))
        setups = plan_workers(
            self.env_fns,
            self.num_workers,
            settings.autoreset_mode,
            threads=None,
            by_value=False,
            validate=settings.validate,
        )
        backend = ThreadBackend(setups, settings.slow_warning)
        super().__init__(backend, settings, "a ThreadVectorEnv")
