"""A vector env of vecspaces as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Self

import gymnasium

from vecspaces import vector
from vecspaces.adapters.gymnasium.errors import call
from vecspaces.adapters.gymnasium.spaces import to_gymnasium, translator
from vecspaces.adapters.wrapping import name_type
from vecspaces.vector.vector_env import StepResult

Translator = Callable[[Any], Any]


def _shared(name: str) -> Any:
    """Return a property that reads `vector_env`; `gymnasium.make_vec` sets some of them."""
    return property(
        lambda self: call(getattr, self.vector_env, name),
        lambda self, value: setattr(self.vector_env.unwrapped, name, value),
        doc=f"`{name}` of `vector_env`.",
    )


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector env of vecspaces with Gymnasium's interface.

    Its spaces and the enum in `metadata["autoreset_mode"]` are Gymnasium's. Attributes that
    Gymnasium does not have (`send`, `rollout_view`, `stats`, `num_workers`, ...) are passed on.
    Errors that Gymnasium has too are subclasses of its class and of that of `vecspaces.errors`.

    Args:
        vector_env: The vector env, wrapped or not; it is stepped, not copied.

    Attributes:
        vector_env: The argument.
        info_space: The declared keys of infos, if there are any.

    Raises:
        TypeError: `vector_env` is no `vecspaces.vector.VectorEnv`.
        CustomSpaceError: Gymnasium has no such space.

    Example:
        >>> import gymnasium
        >>> from vecspaces import make_vec
        >>> with as_gymnasium(make_vec("CartPole-v1", 2, backend="sync")) as envs:
        ...     envs = gymnasium.wrappers.vector.NormalizeReward(envs)
        ...     observations, infos = envs.reset(seed=1)
        ...     isinstance(envs.unwrapped, gymnasium.vector.VectorEnv), observations.shape
        (True, (2, 4))
    """

    def __init__(self, vector_env: vector.VectorEnv[Any, Any, Any]) -> None:
        if not isinstance(vector_env, vector.VectorEnv):
            raise TypeError(
                f"vector_env: expected a vecspaces.vector.VectorEnv, found {name_type(vector_env)}"
            )
        self.vector_env = vector_env
        self.num_envs = vector_env.num_envs
        self.observation_space = to_gymnasium(vector_env.observation_space)
        self.action_space = to_gymnasium(vector_env.action_space)
        self.single_observation_space = to_gymnasium(vector_env.single_observation_space)
        self.single_action_space = to_gymnasium(vector_env.single_action_space)
        self.metadata = dict(vector_env.metadata)
        if "autoreset_mode" in self.metadata:
            mode = vector.AutoresetMode.of(self.metadata["autoreset_mode"])
            self.autoreset_mode = gymnasium.vector.AutoresetMode(mode.value)
            self.metadata["autoreset_mode"] = self.autoreset_mode
        infos = vector_env.info_space
        self.info_space = None if infos is None else to_gymnasium(infos)
        # Graphs, which cannot be declared infos, are the only values that differ.
        translate = translator(vector_env.single_observation_space)
        self._envs = vector_env if translate is None else _Translated(vector_env, translate)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes; `seed` and `options` are those of `vector_env.reset`."""
        return call(self._envs.reset, seed=seed, options=options)

    def step(self, actions: Any, env_ids: Any = None) -> StepResult:
        """Take one action in every environment, or in those of `env_ids`."""
        if env_ids is None:
            return call(self._envs.step, actions)
        return call(self._envs.step, actions, env_ids)

    def render(self, **kwargs: Any) -> Any:
        """Render the environments."""
        return call(self._envs.render, **kwargs)

    def close(self, **kwargs: Any) -> None:
        """Close the environments and free their resources; a second call does nothing."""
        self._envs.close(**kwargs)

    def close_extras(self, **kwargs: Any) -> None:
        """Free the resources of the vector env; called by `close`."""
        self._envs.close_extras(**kwargs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        # Only for names that neither this class nor Gymnasium defines: step_async, call, send,
        # stats, ...
        if name.startswith("_") or name == "vector_env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        value = getattr(self._envs, name)
        if not inspect.ismethod(value):
            return value
        return functools.wraps(value)(lambda *args, **kwargs: call(value, *args, **kwargs))

    spec: Any = _shared("spec")
    render_mode: str | None = _shared("render_mode")
    closed: bool = _shared("closed")
    np_random: Any = _shared("np_random")
    np_random_seed: Any = _shared("np_random_seed")


class _Translated(vector.VectorObservationWrapper[Any, Any, Any, Any]):
    """A vector env whose graphs are Gymnasium's."""

    def __init__(self, env: vector.VectorEnv[Any, Any, Any], translate: Translator) -> None:
        super().__init__(env)
        self._translate = translate

    def observations(self, observations: Any) -> Any:
        return self._translate(observations)


def as_gymnasium(vector_env: vector.VectorEnv[Any, Any, Any]) -> GymnasiumVectorEnv:
    """Return a vector env with Gymnasium's interface, for its wrappers and for existing code.

    Args:
        vector_env: As for `GymnasiumVectorEnv`, whose errors it raises.

    Returns:
        A `gymnasium.vector.VectorEnv` whose spaces are Gymnasium's.
    """
    return GymnasiumVectorEnv(vector_env)
