"""make_vec: a vector env from a name, a factory, or a list of factories."""

from __future__ import annotations

import copy
import difflib
import importlib
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from vecspaces.interop import require_extra
from vecspaces.vector import AsyncVectorEnv, RayVectorEnv, SyncVectorEnv, VectorEnv

if TYPE_CHECKING:
    from types import ModuleType

    from gymnasium.envs.registration import EnvSpec

Factory: TypeAlias = Callable[..., Any]

_BACKENDS: dict[str, Callable[..., VectorEnv[Any, Any, Any]]] = {
    "async": AsyncVectorEnv,
    "sync": SyncVectorEnv,
    "ray": RayVectorEnv,
}


def make_vec(
    env: str | EnvSpec | Factory | Sequence[Factory],
    num_envs: int = 1,
    *,
    backend: str = "async",
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    **env_kwargs: Any,
) -> VectorEnv[Any, Any, Any]:
    """Make a vector env; the environments themselves are built where they run.

    A Gymnasium id is looked up in this process, so that a worker need not have it registered. The
    result's `spec` then holds all that it was made with: `make_vec(envs.spec)` makes the same
    again. As in `gymnasium.make_vec`, the `num_envs`, backend, `vector_kwargs` and `wrappers` of
    such a spec take precedence over the arguments.

    Args:
        env: What to run copies of: a Gymnasium id (`"CartPole-v1"`, or `"module:Name-v0"` for a
            module that registers it), a Gymnasium `EnvSpec`, `"module:factory"` for any callable
            of a module (such as a class), a factory, or one factory per environment.
        num_envs: Number of environments; for a list of factories its length, or left at 1.
        backend: `"async"` for worker processes, `"sync"` for this process, `"ray"` for the actors
            of a Ray cluster.
        vector_kwargs: More arguments for `AsyncVectorEnv`, `SyncVectorEnv` or `RayVectorEnv`.
        wrappers: Applied to each environment where it runs, the first one innermost.
        **env_kwargs: Arguments for the factory, or for `gymnasium.make`.

    Returns:
        The vector env.

    Raises:
        ValueError: `num_envs` is less than 1 or does not fit the list, or there is no such backend.
        TypeError: `env` is nothing that an environment can be made from.
        ImportError: The module cannot be imported, or Gymnasium is not installed.
        AttributeError: The module has no such factory.
        gymnasium.error.Error: There is no such id.

    Example:
        >>> with make_vec("CartPole-v1", num_envs=3, backend="sync") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     observations.shape
        (3, 4)
    """
    vector_kwargs = dict(vector_kwargs or {})
    wrappers = tuple(wrappers or ())
    spec: EnvSpec | None = None
    if isinstance(env, Sequence) and not isinstance(env, str):
        factories = [find_factory(factory) for factory in env]
        if num_envs not in (1, len(factories)):
            raise ValueError(
                f"num_envs: expected {len(factories)}, the number of factories, or nothing; "
                f"found {num_envs}"
            )
        num_envs = len(factories)
    else:
        factory = find_factory(env)
        if isinstance(factory, GymnasiumFactory):
            spec = factory.spec
            num_envs = spec.kwargs.pop("num_envs", num_envs)
            backend = spec.kwargs.pop("vectorization_mode", backend)
            vector_kwargs = spec.kwargs.pop("vector_kwargs", vector_kwargs)
            wrappers = tuple(spec.kwargs.pop("wrappers", wrappers))
        factories = [factory] * operator.index(num_envs)
    if not factories:
        raise ValueError(f"num_envs: expected at least 1, found {num_envs}")
    if backend not in _BACKENDS:
        raise ValueError(f"backend: expected one of {', '.join(_BACKENDS)}; found {backend!r}")

    envs = _BACKENDS[backend](
        [_Recipe(factory, env_kwargs, wrappers) for factory in factories], **vector_kwargs
    )
    if spec is not None:
        spec = copy.deepcopy(spec)
        spec.kwargs.update(env_kwargs, num_envs=num_envs, vectorization_mode=backend)
        if vector_kwargs:
            spec.kwargs["vector_kwargs"] = vector_kwargs
        if wrappers:
            spec.kwargs["wrappers"] = wrappers
        envs.unwrapped.spec = spec
    return envs


@dataclass(frozen=True)
class GymnasiumFactory:
    """Makes what a Gymnasium spec describes, in a process that need not have it registered."""

    spec: EnvSpec

    def __call__(self, **kwargs: Any) -> Any:
        """Make the environment, as `gymnasium.make` does."""
        return require_extra("gymnasium", "gymnasium").make(self.spec, **kwargs)


@dataclass(frozen=True)
class _Recipe:
    """An env_fn: a factory, its arguments, and the wrappers around its environment."""

    factory: Factory
    kwargs: dict[str, Any]
    wrappers: tuple[Callable[[Any], Any], ...]

    def __call__(self) -> Any:
        env = self.factory(**self.kwargs)
        for wrapper in self.wrappers:
            env = wrapper(env)
        return env


def find_factory(env: str | EnvSpec | Factory) -> Factory:
    """Return what makes an environment, without making one.

    It takes a Gymnasium id, an `EnvSpec`, `"module:factory"` or a factory, and raises what
    `make_vec` raises for anything else.

    Example:
        >>> find_factory("fractions:Fraction")
        <class 'fractions.Fraction'>
    """
    if isinstance(env, str):
        return _find_in_module(env) if ":" in env else GymnasiumFactory(_find_spec(env))
    registration = sys.modules.get("gymnasium.envs.registration")
    if registration is not None and isinstance(env, registration.EnvSpec):
        return GymnasiumFactory(copy.deepcopy(env))
    if not callable(env):
        raise TypeError(
            "env: expected a Gymnasium id, an EnvSpec, 'module:factory', a factory, or a list of "
            f"factories; found {env!r} of type {type(env).__name__}"
        )
    return env


def _find_in_module(name: str) -> Factory:
    """Find `"module:factory"`, or `"module:Id-v0"` where importing the module registers the id."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:  # the latter: no name, a relative name
        raise ImportError(
            f"env: {name!r}: cannot import the module {module_name!r}: {error}", name=module_name
        ) from error
    try:
        found: Factory = operator.attrgetter(attribute)(module)
    except AttributeError:
        return _find_registered_by(module, attribute, name)
    if not callable(found):
        raise TypeError(
            f"env: {name!r}: expected a factory, found {found!r} of type {type(found).__name__}"
        )
    return found


def _find_registered_by(module: ModuleType, env_id: str, name: str) -> GymnasiumFactory:
    """Find a Gymnasium id once a module that may register it has been imported."""
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is not None:
        try:
            return GymnasiumFactory(_find_spec(env_id))
        except gymnasium.error.Error:
            pass
    close = difflib.get_close_matches(env_id, dir(module), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise AttributeError(
        f"env: {name!r}: the module {module.__name__!r} has no {env_id!r}, and registers no "
        f"Gymnasium id of that name{hint}"
    )


def _find_spec(env_id: str) -> EnvSpec:
    """Look up a Gymnasium id; one without a version means the latest, as in `gymnasium.make`."""
    registration = require_extra("gymnasium.envs.registration", "gymnasium")
    if env_id not in registration.registry:
        namespace, name, version = registration.parse_env_id(env_id)
        latest = registration.find_highest_version(namespace, name)
        if version is None and latest is not None:
            env_id = registration.get_env_id(namespace, name, latest)
    spec: EnvSpec = copy.deepcopy(registration.spec(env_id))
    return spec
