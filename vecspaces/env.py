"""Env: the members that an environment must have, and a base class for new environments.

Any object with the members of `EnvLike`, such as a `gymnasium.Env`, is an environment; its class is
not checked. The base class `Env` adds seeding and defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, SupportsFloat

from vecspaces import seeding
from vecspaces.typevars import TypeVar

if TYPE_CHECKING:
    from vecspaces.spaces.dict import Dict
    from vecspaces.spaces.space import Space

ObsType = TypeVar("ObsType", default=Any)
ActType = TypeVar("ActType", default=Any)


class EnvLike(Protocol):
    """The members that an environment must have to run in a vector env.

    `close`, `render`, `render_mode`, `metadata`, `spec`, `np_random` and `info_space` are used if
    they exist.

    Attributes:
        observation_space: A `vecspaces.Space`, or a space of a library that
            `vecspaces.interop.native_space` converts.
        action_space: The same for actions.
    """

    observation_space: Any
    action_space: Any

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and return its first observation and info."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take an action and return observation, reward, terminated, truncated and info."""


class Env(seeding.Seeded, Generic[ObsType, ActType]):
    """A single environment, with the members of `gymnasium.Env`.

    A subclass sets `observation_space` and `action_space` and overrides `reset` and `step`; its
    `reset` begins with `super().reset(seed=seed)`. `render` and `close` may be overridden.

    Attributes:
        observation_space: The space of observations.
        action_space: The space of actions.
        info_space: A Dict with the keys of infos that a vector env stores like observations; infos
            may have other keys too.
        metadata: Properties of the class: `"render_modes"`, `"render_fps"`.
        render_mode: How `render` shows the environment; chosen at construction.
        spec: The specification that the environment was made from, if a registry made it.

    Example:
        >>> from vecspaces.spaces import Discrete
        >>> class Dice(Env):
        ...     observation_space = Discrete(6, start=1)
        ...     action_space = Discrete(2)
        ...
        ...     def reset(self, *, seed=None, options=None):
        ...         super().reset(seed=seed)
        ...         return int(self.np_random.integers(1, 7)), {}
        ...
        ...     def step(self, action):
        ...         face = int(self.np_random.integers(1, 7))
        ...         return face, float(face), face == 6, False, {}
        >>> with Dice() as dice:
        ...     dice.reset(seed=3)[0], dice.step(1)[0]
        (5, 1)
    """

    # `Any`: a `Discrete` samples NumPy's integers, and `Env[int, int]` may have a `Discrete`.
    observation_space: Space[Any]
    action_space: Space[Any]
    info_space: Dict[Any] | None = None
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # an instance may set its own
    render_mode: str | None = None
    spec: Any | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Begin an episode; this base method only seeds `np_random` if there is a seed.

        Args:
            seed: A non-negative int seeds `np_random`; None lets it continue.
            options: Options whose meaning the subclass defines.

        Returns:
            The first observation and an info. This base method returns None; a subclass calls it to
            seed `np_random`, and returns its own values.

        Raises:
            VecspacesError: The seed is negative or not a Python integer.
        """
        if seed is not None:
            self._np_random, self._np_random_seed = seeding.np_random(seed)
        return None  # type: ignore[return-value]  # subclasses call it for the seeding alone

    def step(self, action: ActType) -> tuple[ObsType, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one action.

        Args:
            action: A value of `action_space`.

        Returns:
            The next observation, the reward, whether the episode has ended (terminated), whether it
            was cut off (truncated), and an info.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step")

    def render(self) -> Any:
        """Render the environment in its `render_mode`.

        Returns:
            A uint8 array of shape `(height, width, 3)` for `"rgb_array"`, a str for `"ansi"`, None
            for `"human"`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define render")

    def close(self) -> None:
        """Release the resources of the environment; may be called more than once."""

    @property
    def unwrapped(self) -> Env[Any, Any]:
        """The environment without any wrappers, which is this environment."""
        return self

    def has_wrapper_attr(self, name: str) -> bool:
        """Return whether the environment, or one that it wraps, has an attribute."""
        return hasattr(self, name)

    def get_wrapper_attr(self, name: str) -> Any:
        """Return an attribute of the environment, or of one that it wraps.

        Args:
            name: The name of the attribute.

        Returns:
            Its value.

        Raises:
            AttributeError: There is no such attribute.
        """
        return getattr(self, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute of the environment, or of one that it wraps.

        Args:
            name: The name of the attribute.
            value: Its new value.
            force: Whether to create it if it does not exist.

        Returns:
            Whether it was set.
        """
        if not (force or hasattr(self, name)):
            return False
        setattr(self, name, value)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __str__(self) -> str:
        kind = type(self).__name__
        return f"<{kind} instance>" if self.spec is None else f"<{kind}<{self.spec.id}>>"
