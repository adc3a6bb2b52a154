"""VectorEnv: Gymnasium's interface, which every vector env has.

`ManagedVectorEnv` adds `env_ids`, `send`, `call` and `stats`.

The interface is Gymnasium 1.4's `gymnasium.vector.VectorEnv`; `docs/gymnasium.md` lists the
differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Self, cast

import numpy as np
import numpy.typing as npt

from vecspaces import seeding
from vecspaces.spaces import Dict, Space
from vecspaces.typevars import TypeVar

# With defaults, `AsyncVectorEnv([Walk] * 4)` needs no annotation.
ObsType = TypeVar("ObsType", default=Any)
ActType = TypeVar("ActType", default=Any)
ArrayType = TypeVar("ArrayType", default=npt.NDArray[Any])

Seed = int | Sequence[int | None] | np.random.SeedSequence
StepResult = tuple[Any, Any, Any, Any, dict[str, Any]]


class VectorEnv(seeding.Seeded, Generic[ObsType, ActType, ArrayType]):
    """Several environments that are reset and stepped together, as batches.

    Derive from it for a simulator that is vectorised already; `SyncVectorEnv` and `AsyncVectorEnv`
    make one from single environments.

    Attributes:
        num_envs: The number of environments.
        observation_space: The space of a batch of observations.
        action_space: The space of a batch of actions.
        single_observation_space: The space of one environment's observation.
        single_action_space: The space of one environment's action.
        metadata: Properties of the environments; `"autoreset_mode"` is an `AutoresetMode`.
        render_mode: How the environments render.
        spec: The specification that the vector env was made from, if it was made from an id.
        closed: Whether `close()` was called.
        info_space: A Dict of the declared keys of infos; None if no key is declared.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012 - a class-level default, as in Gymnasium
    spec: Any = None
    render_mode: str | None = None
    closed: bool = False
    info_space: Dict[Any] | None = None

    observation_space: Space[Any]
    action_space: Space[Any]
    single_observation_space: Space[Any]
    single_action_space: Space[Any]
    num_envs: int

    def reset(
        self, *, seed: Seed | None = None, options: Any = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Begin new episodes.

        A derived class calls `super().reset(seed=seed)`, which seeds `np_random`.

        Args:
            seed: An int (environment i gets seed + i), one seed or None per environment, or a
                `numpy.random.SeedSequence`; None leaves the generators as they are.
            options: One mapping for all environments, or a sequence of one per environment.

        Returns:
            A batch of observations, and the infos. This base method returns None; a derived class
            calls it to seed `np_random`, and returns its own values.

        Raises:
            VecspacesError: `seed` is not an int; derived classes may accept other seeds.
        """
        if seed is not None:
            # One generator takes one seed; derived classes may accept a sequence.
            value = int(seed) if isinstance(seed, np.integer) else seed
            self._np_random, self._np_random_seed = seeding.np_random(cast("int", value))
        return cast("tuple[ObsType, dict[str, Any]]", None)

    def step(
        self, actions: ActType
    ) -> tuple[ObsType, ArrayType, ArrayType, ArrayType, dict[str, Any]]:
        """Take one action in every environment.

        Args:
            actions: A batch, as `action_space` describes it.

        Returns:
            Batches of observations, rewards (float64), terminations and truncations (bool), and the
            infos.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement step")

    def render(self) -> tuple[Any, ...] | None:
        """Render the environments.

        Returns:
            One frame per environment, or None.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement render")

    def close(self, **kwargs: Any) -> None:
        """Close the environments and free their resources; a second call does nothing.

        Args:
            **kwargs: Passed to `close_extras`.
        """
        if self.closed:
            return
        # Closed even if it raises: a second call could not free more.
        try:
            self.close_extras(**kwargs)
        finally:
            self.closed = True

    def close_extras(self, **kwargs: Any) -> None:
        """Free the resources of a derived class; `close` calls it once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def unwrapped(self) -> VectorEnv[Any, Any, Any]:
        """The vector env below all wrappers."""
        return self

    def __repr__(self) -> str:
        name = "" if self.spec is None else f"{self.spec.id}, "
        return f"{type(self).__name__}({name}num_envs={self.num_envs})"
