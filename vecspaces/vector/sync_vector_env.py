"""SyncVectorEnv: every environment in the caller's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic

from vecspaces.errors import ClosedEnvironmentError
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.inline import InlineBackend
from vecspaces.vector.exchange.info_space import check_info_space
from vecspaces.vector.managed_vector_env import ManagedVectorEnv
from vecspaces.vector.session.arguments import Settings, list_factories
from vecspaces.vector.session.batch_spaces import ObservationMode
from vecspaces.vector.vector_env import ActType, ObsType

if TYPE_CHECKING:
    from vecspaces.vector.autoreset import AnyAutoresetMode


class SyncVectorEnv(ManagedVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """Steps environments one after the other, in the caller's process.

    The best choice for very cheap environments in small numbers, and for debugging.

    Args:
        env_fns: Factories of environments; each is called once. One may return a vector env, which
            then counts as its `num_envs` environments.
        copy: Whether observations are copied; otherwise they are views that a later step writes
            over.
        observation_mode: `"same"` for equal observation spaces, `"different"` for equal shapes and
            dtypes with other bounds, or the pair `(observation_space, single_observation_space)`.
        autoreset_mode: What follows the end of an episode.
        batch_size: How many environments `recv` waits for; None: all.
        buffers: The number of observation slots. With `copy=False`, what a step returned stays
            valid for the next `buffers - 1` steps, one less where `rollout_view` comes between; a
            full `reset` begins anew. A `reset_mask`, `step(env_ids=...)`, `send` and `send_reset`
            write over the rows that they choose in the current slot, which the last step returned.
        stats: Whether `stats()` measures how long steps take.
        validate: Whether observations and actions must lie in their spaces (bounds, NaN,
            characters, lengths), rewards be finite, flags be bools, and infos be dicts with
            strings as keys; without it, only shapes, dtypes and nesting are checked.
        info_space: What infos hold, a Dict: its keys travel beside the observations, as arrays of
            its dtypes, and are checked against it. None: the `info_space` of the environments, if
            they have one; an empty Dict: nothing.

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
        self.env_fns = list_factories(env_fns)
        settings = Settings(
            observation_mode,
            AutoresetMode.of(autoreset_mode),
            copy=copy,
            buffers=buffers,
            stats=stats,
            validate=validate,
            info_space=check_info_space(info_space),
        ).check(len(self.env_fns))
        self._inline = InlineBackend(self.env_fns, settings.autoreset_mode, validate)
        super().__init__(self._inline, settings, batch_size)

    def __getstate__(self) -> dict[str, Any]:
        if self.closed:
            raise ClosedEnvironmentError(f"{self} is closed: there is nothing to copy or pickle")
        return vars(self)

    @property
    def envs(self) -> list[Any]:
        """The environments; empty after `close`."""
        group = self._inline.group
        return [] if group is None else group.envs
