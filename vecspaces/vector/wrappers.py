"""Wrappers that change what a vector env takes or returns."""

from __future__ import annotations

import warnings
from typing import Any, Generic, TypeVar, cast

import numpy as np

from vecspaces.spaces import Space
from vecspaces.vector.vector_env import ActType, ArrayType, AutoresetMode, ObsType, Seed, VectorEnv

WrapperObsType = TypeVar("WrapperObsType")
WrapperActType = TypeVar("WrapperActType")


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
