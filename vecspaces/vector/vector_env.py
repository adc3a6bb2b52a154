"""The face of every vector env, and the wrappers that change what it shows.

The interface is Gymnasium 1.4's `gymnasium.vector.VectorEnv`; `docs/gymnasium.md` lists what
differs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from vecspaces import seeding
from vecspaces.spaces import Space
from vecspaces.vector.autoreset import AutoresetMode

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

ObsType = TypeVar("ObsType")
ActType = TypeVar("ActType")
ArrayType = TypeVar("ArrayType")
WrapperObsType = TypeVar("WrapperObsType")
WrapperActType = TypeVar("WrapperActType")

Seed = int | Sequence[int | None] | np.random.SeedSequence
StepResult = tuple[Any, Any, Any, Any, dict[str, Any]]


class VectorEnv(Generic[ObsType, ActType, ArrayType]):
    """Several environments that are reset and stepped together, as batches.

    Derive from it for a simulator that is vectorised already; `SyncVectorEnv` and `AsyncVectorEnv`
    make one from single environments.

    Attributes:
        num_envs: The number of environments.
        observation_space: The space of a batch of observations.
        action_space: The space of a batch of actions.
        single_observation_space: The space of one environment's observation.
        single_action_space: The space of one environment's action.
        metadata: Facts about the environments; `"autoreset_mode"` holds an `AutoresetMode`.
        render_mode: How the environments render.
        spec: What the vector env was made from, if it was made from an id.
        closed: Whether `close()` was called.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012 - a class-level default, as in Gymnasium
    spec: Any = None
    render_mode: str | None = None
    closed: bool = False

    observation_space: Space[Any]
    action_space: Space[Any]
    single_observation_space: Space[Any]
    single_action_space: Space[Any]
    num_envs: int

    _np_random: np.random.Generator | None = None
    _np_random_seed: int | None = None

    def reset(
        self, *, seed: Seed | None = None, options: Any = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Begin new episodes.

        Derived classes that call `super().reset(seed=seed)` get `np_random` seeded by it.

        Args:
            seed: An int (environment i gets seed + i), one seed or None per environment, or a
                `numpy.random.SeedSequence`; None leaves the generators as they are.
            options: One mapping for all environments, or a sequence of one per environment.

        Returns:
            A batch of observations, and the infos. This base method returns None: a derived class
            calls it for the seeding and returns its own.

        Raises:
            VecspacesError: `seed` is no int; derived classes may take more.
        """
        if seed is not None:
            # One generator takes one seed: a sequence of them is for derived classes to understand.
            one = int(seed) if isinstance(seed, np.integer) else seed
            self._np_random, self._np_random_seed = seeding.np_random(cast("int", one))
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
        """End the environments and free what they hold; a second call does nothing.

        Args:
            **kwargs: Handed to `close_extras`.
        """
        if self.closed:
            return
        # Closed even if it raises: a second try could not do better.
        try:
            self.close_extras(**kwargs)
        finally:
            self.closed = True

    def close_extras(self, **kwargs: Any) -> None:
        """Free what a derived class holds; `close` calls it once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def np_random(self) -> Any:
        """The generator of the vector env itself, seeded at random when first asked for."""
        if self._np_random is None:
            self._np_random, self._np_random_seed = seeding.np_random()
        return self._np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self._np_random = value
        self._np_random_seed = -1

    @property
    def np_random_seed(self) -> Any:
        """The seed of `np_random`; -1 if the generator was set from outside."""
        if self._np_random_seed is None:
            self._np_random, self._np_random_seed = seeding.np_random()
        return self._np_random_seed

    @property
    def unwrapped(self) -> VectorEnv[Any, Any, Any]:
        """The vector env below all wrappers."""
        return self

    def __repr__(self) -> str:
        name = "" if self.spec is None else f"{self.spec.id}, "
        return f"{type(self).__name__}({name}num_envs={self.num_envs})"


class VectorWrapper(
    VectorEnv[WrapperObsType, WrapperActType, ArrayType],
    Generic[WrapperObsType, WrapperActType, ObsType, ActType, ArrayType],
):
    """A vector env that changes what another one takes or gives.

    Everything that is not overridden is passed on, new arguments (`env_ids`, `stats`, ...) too.

    Args:
        env: The vector env to wrap.

    Raises:
        TypeError: `env` is no `VectorEnv`.
    """

    env: VectorEnv[ObsType, ActType, ArrayType]

    def __init__(self, env: VectorEnv[ObsType, ActType, ArrayType]) -> None:
        if not isinstance(env, VectorEnv):
            raise TypeError(f"env must be a vecspaces.vector.VectorEnv, found {type(env).__name__}")
        self.env = env
        self._observation_space: Space[Any] | None = None
        self._action_space: Space[Any] | None = None
        self._single_observation_space: Space[Any] | None = None
        self._single_action_space: Space[Any] | None = None
        self._metadata: dict[str, Any] | None = None

    def reset(
        self, *, seed: Seed | None = None, options: Any = None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        """Reset the wrapped vector env."""
        return cast(
            "tuple[WrapperObsType, dict[str, Any]]", self.env.reset(seed=seed, options=options)
        )

    def step(
        self, actions: WrapperActType
    ) -> tuple[WrapperObsType, ArrayType, ArrayType, ArrayType, dict[str, Any]]:
        """Step the wrapped vector env."""
        result: Any = self.env.step(cast("ActType", actions))
        return cast(
            "tuple[WrapperObsType, ArrayType, ArrayType, ArrayType, dict[str, Any]]", result
        )

    def render(self, **kwargs: Any) -> tuple[Any, ...] | None:
        """Render the wrapped vector env."""
        return self.env.render(**kwargs)

    def close(self, **kwargs: Any) -> None:
        """Close the wrapped vector env."""
        self.env.close(**kwargs)

    def close_extras(self, **kwargs: Any) -> None:
        """Free what the wrapped vector env holds."""
        self.env.close_extras(**kwargs)

    def __getattr__(self, name: str) -> Any:
        # Only for what neither the wrapper nor VectorEnv defines: call, get_attr, set_attr, stats,
        # ...
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.env, name)

    @property
    def unwrapped(self) -> VectorEnv[Any, Any, Any]:
        """The vector env below all wrappers."""
        return self.env.unwrapped

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self.env}>"

    @property
    def observation_space(self) -> Space[Any]:
        """The space of a batch of observations."""
        return (
            self.env.observation_space
            if self._observation_space is None
            else self._observation_space
        )

    @observation_space.setter
    def observation_space(self, space: Space[Any]) -> None:
        self._observation_space = space

    @property
    def action_space(self) -> Space[Any]:
        """The space of a batch of actions."""
        return self.env.action_space if self._action_space is None else self._action_space

    @action_space.setter
    def action_space(self, space: Space[Any]) -> None:
        self._action_space = space

    @property
    def single_observation_space(self) -> Space[Any]:
        """The space of one environment's observation."""
        return (
            self.env.single_observation_space
            if self._single_observation_space is None
            else self._single_observation_space
        )

    @single_observation_space.setter
    def single_observation_space(self, space: Space[Any]) -> None:
        self._single_observation_space = space

    @property
    def single_action_space(self) -> Space[Any]:
        """The space of one environment's action."""
        return (
            self.env.single_action_space
            if self._single_action_space is None
            else self._single_action_space
        )

    @single_action_space.setter
    def single_action_space(self, space: Space[Any]) -> None:
        self._single_action_space = space

    @property
    def num_envs(self) -> int:  # type: ignore[override]  # read from the wrapped one
        """The number of environments."""
        return self.env.num_envs

    @property
    def np_random(self) -> Any:
        """The generator of the wrapped vector env."""
        return self.env.np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self.env.np_random = value

    @property
    def np_random_seed(self) -> Any:
        """The seed of the wrapped vector env's generator."""
        return self.env.np_random_seed

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the wrapped vector env, or the wrapper's own."""
        return self.env.metadata if self._metadata is None else self._metadata

    @metadata.setter
    def metadata(self, value: dict[str, Any]) -> None:
        self._metadata = value

    @property
    def spec(self) -> Any:
        """What the wrapped vector env was made from."""
        return self.env.spec

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]  # read from the wrapped one
        """How the environments render."""
        return self.env.render_mode

    @property
    def closed(self) -> bool:
        """Whether the wrapped vector env is closed."""
        return self.env.closed

    @closed.setter
    def closed(self, value: bool) -> None:
        self.env.closed = value


class VectorObservationWrapper(VectorWrapper[WrapperObsType, ActType, ObsType, ActType, ArrayType]):
    """A wrapper that changes observations; override `observations`.

    Args:
        env: The vector env to wrap.

    Raises:
        ValueError: `env` resets in the same step: `infos["final_obs"]` would stay unchanged.
    """

    def __init__(self, env: VectorEnv[ObsType, ActType, ArrayType]) -> None:
        super().__init__(env)
        mode = env.metadata.get("autoreset_mode")
        if mode is None:
            warnings.warn(f"{env} does not say its autoreset_mode in its metadata", stacklevel=2)
        elif AutoresetMode.of(mode) is AutoresetMode.SAME_STEP:
            raise ValueError(
                "an observation wrapper needs autoreset_mode NEXT_STEP or DISABLED, found "
                "SAME_STEP: it would not change infos['final_obs']"
            )

    def reset(
        self, *, seed: Seed | None = None, options: Any = None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        """Reset the wrapped vector env and change the observations."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self.observations(observations), infos

    def step(
        self, actions: ActType
    ) -> tuple[WrapperObsType, ArrayType, ArrayType, ArrayType, dict[str, Any]]:
        """Step the wrapped vector env and change the observations."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        return self.observations(observations), rewards, terminations, truncations, infos

    def observations(self, observations: ObsType) -> WrapperObsType:
        """Change a batch of observations.

        Args:
            observations: What the wrapped vector env gave.

        Returns:
            What the wrapper gives.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement observations")


class VectorActionWrapper(VectorWrapper[ObsType, WrapperActType, ObsType, ActType, ArrayType]):
    """A wrapper that changes actions; override `actions`."""

    def step(
        self, actions: WrapperActType
    ) -> tuple[ObsType, ArrayType, ArrayType, ArrayType, dict[str, Any]]:
        """Change the actions and step the wrapped vector env."""
        return self.env.step(self.actions(actions))

    def actions(self, actions: WrapperActType) -> ActType:
        """Change a batch of actions.

        Args:
            actions: What the wrapper was given.

        Returns:
            What the wrapped vector env takes.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement actions")


class VectorRewardWrapper(VectorWrapper[ObsType, ActType, ObsType, ActType, ArrayType]):
    """A wrapper that changes rewards; override `rewards`."""

    def step(
        self, actions: ActType
    ) -> tuple[ObsType, ArrayType, ArrayType, ArrayType, dict[str, Any]]:
        """Step the wrapped vector env and change the rewards."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        return observations, self.rewards(rewards), terminations, truncations, infos

    def rewards(self, rewards: ArrayType) -> ArrayType:
        """Change a batch of rewards.

        Args:
            rewards: Shape `(num_envs,)`, what the wrapped vector env gave.

        Returns:
            What the wrapper gives, of the same shape.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement rewards")
