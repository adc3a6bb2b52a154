"""SyncVectorEnv: every environment in the caller's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic

from vecspaces.errors import ClosedEnvironmentError
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.inline import InlineBackend
from vecspaces.vector.engine.arguments import Settings, list_factories
from vecspaces.vector.engine.batch_spaces import ObservationMode
from vecspaces.vector.managed_vector_env import ManagedVectorEnv
from vecspaces.vector.vector_env import ActType, ObsType

if TYPE_CHECKING:
    from vecspaces.vector.autoreset import AnyAutoresetMode


class SyncVectorEnv(ManagedVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """Steps environments in the caller's process, one after the other.

    Use it for debugging and for a few very cheap environments.

    Args:
        env_fns: Factories of environments; each is called once. A factory may return a vector env,
            each of whose environments is then one row.
        copy: Whether observations are copied; otherwise they are views, which later steps
            overwrite.
        observation_mode: `"same"` for equal observation spaces, `"different"` for equal shapes and
            dtypes with other bounds, or the pair `(observation_space, single_observation_space)`.
        autoreset_mode: When a finished environment is reset: a mode or its name.
        batch_size: How many environments `recv` waits for; None: all.
        buffers: The number of observation buffers; see `AsyncVectorEnv`.
        stats: Whether `stats()` measures how long steps take.
        validate: Whether values are checked; see `AsyncVectorEnv`.
        info_space: A Dict with the keys of infos that are checked, and stored like observations;
            see `AsyncVectorEnv`.

    Raises:
        RuntimeError: The environments' spaces differ.

    Example:
        >>> import gymnasium
        >>> from vecspaces.vector import SyncVectorEnv
        >>> with SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2) as envs:
        ...     observations, infos = envs.reset(seed=42)
        >>> observations.shape
        (2, 4)
    """

    _backend: InlineBackend

    def __init__(
        self,
        env_fns: Iterable[Callable[[], Any]],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: AnyAutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        batch_size: int | None = None,
        buffers: int = 1,
        stats: bool = False,
        validate: bool = False,
        info_space: Any = None,
    ) -> None:
        arguments = locals()  # named as in `Settings`
        self.env_fns = list_factories(env_fns)
        settings = Settings.of(len(self.env_fns), arguments)
        backend = InlineBackend(self.env_fns, settings.autoreset_mode, settings.validate)
        super().__init__(backend, settings)

    def __getstate__(self) -> dict[str, Any]:
        if self.closed:
            raise ClosedEnvironmentError(f"{self} is closed: there is nothing to copy or pickle")
        return vars(self)

    @property
    def envs(self) -> list[Any]:
        """The environments; empty after `close`."""
        group = self._backend.group
        return [] if group is None else group.envs
