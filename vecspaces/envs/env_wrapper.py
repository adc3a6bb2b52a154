"""EnvWrapper: an environment around another environment, like `gymnasium.Wrapper`."""

from __future__ import annotations

from typing import Any

import numpy as np

import vecspaces.vector  # noqa: F401 (first, for threads that import both)
from vecspaces.env import Env
from vecspaces.interop import foreign_class, native_space
from vecspaces.spaces import Dict
from vecspaces.vector.exchange.info_space import check_info_space
from vecspaces.vector.group.attributes import get_attribute, set_attribute
from vecspaces.vector.group.building import is_vector_env

_SPACES = ("observation_space", "action_space")


class EnvWrapper(Env[Any, Any]):
    """Calls an environment; a subclass overrides `reset` and `step`.

    Around a `gymnasium.Env`, the object is a `gymnasium.Env` too, so that Gymnasium's wrappers
    accept it.

    Attributes:
        env: The environment inside.
    """

    env: Any

    def __init__(self, env: Any) -> None:
        if is_vector_env(env) or callable(env.observation_space):
            raise TypeError(
                f"{type(self).__name__}: expected a single environment, found {env}; "
                "vecspaces.adapters.pettingzoo.as_env makes one of a parallel environment"
            )
        self.env = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.spec = getattr(env, "spec", None)
        self.metadata = getattr(env, "metadata", None) or {}
        self.render_mode = getattr(env, "render_mode", None)
        self._spaces = spaces_of(env)
        self.info_space = self._spaces["info_space"] or None
        self.__class__ = foreign_class(type(self), env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment inside."""
        # Some environments have no parameter `options`.
        return self.env.reset(seed=seed, **({} if options is None else {"options": options}))

    def step(self, action: Any) -> Any:
        """Step the environment inside."""
        return self.env.step(action)

    def render(self) -> Any:
        """Render the environment inside."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment inside."""
        if hasattr(self.env, "close"):
            self.env.close()

    @property
    def unwrapped(self) -> Any:
        """The environment inside, without its wrappers."""
        return getattr(self.env, "unwrapped", self.env)

    @property
    def np_random(self) -> np.random.Generator:
        """The generator of the environment inside."""
        generator: np.random.Generator = self.env.np_random
        return generator

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self.env.np_random = value

    @property
    def np_random_seed(self) -> Any:
        """The seed of `np_random`."""
        return self.env.np_random_seed

    def has_wrapper_attr(self, name: str) -> bool:
        """Return whether this environment, or one inside, has an attribute."""
        try:
            self.get_wrapper_attr(name)
        except AttributeError:
            return False
        return True

    def get_wrapper_attr(self, name: str) -> Any:
        """Return an attribute of this environment, or of one inside."""
        return getattr(self, name) if hasattr(self, name) else get_attribute(self.env, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute where it exists, or with `force` on the innermost environment."""
        if hasattr(self, name):
            setattr(self, name, value)
        elif force or self.has_wrapper_attr(name):
            set_attribute(self.env, name, value)
        else:
            return False
        return True

    def __str__(self) -> str:
        return f"<{type(self).__name__}{self.env}>"


def spaces_of(env: Any) -> dict[str, Any]:
    """Return the spaces of an environment, by their attributes, as spaces of vecspaces.

    An environment without an `info_space` declares no keys.
    """
    try:
        declared = check_info_space(get_attribute(env, "info_space"))
    except AttributeError:
        declared = None
    spaces = {name: native_space(getattr(env, name)) for name in _SPACES}
    return {**spaces, "info_space": Dict() if declared is None else declared}
