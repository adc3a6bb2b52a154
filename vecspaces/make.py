"""make_vec: a vector env from a name or factories; unknown keyword arguments go to the factory."""

from __future__ import annotations

import copy
import importlib
import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

from vecspaces.checks import show_value
from vecspaces.interop import require_extra
from vecspaces.vector import (
    AsyncVectorEnv,
    RayVectorEnv,
    SyncVectorEnv,
    ThreadVectorEnv,
    VectorWrapper,
)
from vecspaces.vector.managed_vector_env import ManagedVectorEnv
from vecspaces.vector.options import AgentLayout

if TYPE_CHECKING:
    from types import ModuleType

    from gymnasium.envs.registration import EnvSpec

    from vecspaces.vector.options import Backend, MakeOptions, RowOptions

Factory: TypeAlias = Callable[..., Any]
Source: TypeAlias = "str | EnvSpec | Factory | Sequence[Factory]"

# Prefixes of ids, and the packages that register them when they are imported.
_REGISTERED_BY = {
    "ALE/": "ale_py",
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "highway-": "highway_env",
}

# Arguments of `gymnasium.make`.
_OF_MAKE = ("max_episode_steps", "disable_env_checker")

_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")
_BACKENDS: dict[str, Callable[..., ManagedVectorEnv[Any, Any]]] = {
    "async": AsyncVectorEnv,
    "sync": SyncVectorEnv,
    "thread": ThreadVectorEnv,
    "ray": RayVectorEnv,
}


def _names(constructor: Any) -> list[str]:
    return list(inspect.signature(constructor).parameters)


#: The arguments that concern processes: with `backend="sync"` they are accepted and ignored.
PROCESS_ARGUMENTS = frozenset(_names(AsyncVectorEnv)) - frozenset(_names(SyncVectorEnv))


@overload
def make_vec(
    env: Source,
    num_envs: int = 1,
    *,
    agents: Literal["rows"],
    backend: Backend = "async",
    **kwargs: Unpack[RowOptions],
) -> VectorWrapper[Any, Any, Any, Any, Any]: ...
@overload
def make_vec(
    env: Source,
    num_envs: int = 1,
    *,
    backend: Literal["async"] = "async",
    **kwargs: Unpack[MakeOptions],
) -> AsyncVectorEnv[Any, Any]: ...
@overload
def make_vec(
    env: Source, num_envs: int = 1, *, backend: Literal["sync"], **kwargs: Unpack[MakeOptions]
) -> SyncVectorEnv[Any, Any]: ...
@overload
def make_vec(
    env: Source, num_envs: int = 1, *, backend: Literal["thread"], **kwargs: Unpack[MakeOptions]
) -> ThreadVectorEnv[Any, Any]: ...
@overload
def make_vec(
    env: Source, num_envs: int = 1, *, backend: Literal["ray"], **kwargs: Unpack[MakeOptions]
) -> RayVectorEnv[Any, Any]: ...
def make_vec(
    env: str | EnvSpec | Factory | Sequence[Factory],
    num_envs: int = 1,
    *,
    backend: str = "async",
    vector_kwargs: Mapping[str, Any] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    agents: str | None = None,
    state: bool = False,
    **kwargs: Any,
) -> ManagedVectorEnv[Any, Any] | VectorWrapper[Any, Any, Any, Any, Any]:
    """Make a vector env; the environments themselves are built where they run.

    A Gymnasium id is looked up in the caller, so it need not be registered in the workers. The
    result's `spec` then contains all arguments: `make_vec(envs.spec)` makes an equal vector env. As
    in `gymnasium.make_vec`, the `num_envs`, backend, `vector_kwargs` and `wrappers` of such a spec
    override the arguments.

    Args:
        env: The environment: a Gymnasium id (`"CartPole-v1"`, or `"module:Name-v0"` for a module
            that registers it), a Gymnasium `EnvSpec`, `"module:factory"` for a function or class of
            a module, a factory, or a list of one factory per environment.
        num_envs: The number of environments. For a list of factories, omit it or pass its length.
        backend: `"async"` for worker processes, by default one per usable core; `"sync"` for this
            process, which is faster for up to eight environments as cheap as CartPole (`vecspaces
            bench ENV` measures it); `"thread"` for threads of this process; `"ray"` for the actors
            of a Ray cluster.
        vector_kwargs: Arguments of the vector env. With `backend="sync"`, those of `AsyncVectorEnv`
            that concern processes have no effect.
        env_kwargs: Arguments of the factory, or of `gymnasium.make`.
        wrappers: Applied to each environment where it runs, the first innermost; with `agents`, to
            the parallel environment.
        agents: For PettingZoo's parallel environments: `env` is then a factory of these, or an id
            (without a colon) of PettingZoo's registry. `"rows"`: each agent has a separate row;
            `"dict"`: observations and actions are Dicts by agent. If the factory has an argument of
            this name, pass it in `env_kwargs`.
        state: With `agents`, whether `infos["state"]` is what the environment's `state()` returns.
        **kwargs: Arguments of the vector env by their names; all others are arguments of the
            factory. `vector_kwargs` and `env_kwargs` override them. Type checkers know only the
            arguments of the vector env and `render_mode`: pass others in `env_kwargs`.

    Returns:
        The vector env; with `agents="rows"`, a wrapper around it.

    Raises:
        ValueError: `num_envs` is less than 1 or does not fit the list, or there is no such backend.
        TypeError: No environment can be made from `env`, or an argument belongs neither to the
            vector env nor to the environment.
        ImportError: The module cannot be imported, or Gymnasium is not installed.
        AttributeError: The module has no such factory.
        gymnasium.error.Error: There is no such id.

    Example:
        >>> with make_vec("CartPole-v1", num_envs=3, backend="sync", buffers=2) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     observations.shape
        (3, 4)
    """
    _check_layout(agents)
    if state and agents is None:
        raise ValueError("state=True needs agents='rows' or agents='dict'")
    vector_arguments = dict(vector_kwargs or {})
    if agents is not None:
        env = find_parallel(env)
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
            vector_arguments = spec.kwargs.pop("vector_kwargs", vector_arguments)
            wrappers = spec.kwargs.pop("wrappers", wrappers)
        factories = [factory] * operator.index(num_envs)
    if not factories:
        raise ValueError(f"num_envs: expected at least 1, found {num_envs}")
    if backend not in _BACKENDS:
        raise ValueError(f"backend: expected one of {', '.join(_BACKENDS)}; found {backend!r}")

    kind = _BACKENDS[backend]
    known = [name for name in _names(kind) if name != "env_fns"]
    ignored = PROCESS_ARGUMENTS if backend == "sync" else frozenset()
    known += sorted(ignored)
    for argument in (PROCESS_ARGUMENTS & kwargs.keys()).difference(known):
        raise TypeError(
            f"make_vec: argument {argument!r} is for the workers of backend='async', which "
            f"{kind.__name__} does not have; an environment's argument belongs in env_kwargs"
        )
    vector_arguments = {
        **{name: kwargs.pop(name) for name in known if name in kwargs},
        **vector_arguments,
    }
    vector_arguments = {
        name: value for name, value in vector_arguments.items() if name not in ignored
    }
    arguments = {**kwargs, **(env_kwargs or {})}
    applied = _check_wrappers(wrappers)
    recipes = [_Recipe(factory, arguments, applied) for factory in factories]
    try:
        if agents is None:
            envs = kind(recipes, **vector_arguments)
        else:
            envs = _adapters().make_agents(agents, kind, recipes, state, vector_arguments)
    except TypeError as error:
        # The arguments of an environment are checked where it is built.
        match = _UNKNOWN.search(str(error))
        name = match[1] if match else None
        takes = f"{kind.__name__} takes no"
        if name in kwargs:
            takes = f"neither {kind.__name__} nor the environment takes an"
        elif name in arguments:
            takes = "the environment takes no"
        elif name not in vector_arguments:
            raise
        hint = "; did you mean 'backend'?" if name == "vectorization_mode" else ""
        raise TypeError(f"make_vec: {takes} argument {name!r}{hint}") from error
    if spec is not None:
        spec = copy.deepcopy(spec)
        spec.kwargs.update(arguments, num_envs=num_envs, vectorization_mode=backend)
        if vector_arguments:
            spec.kwargs["vector_kwargs"] = vector_arguments
        if wrappers:
            spec.kwargs["wrappers"] = wrappers
        envs.spec = spec
    return envs


def _check_wrappers(wrappers: Any) -> tuple[Callable[[Any], Any], ...]:
    """Return wrappers as a tuple; refuse anything but functions of an environment."""
    applied = tuple(wrappers or ()) if isinstance(wrappers, Iterable | None) else (None,)
    if not all(map(callable, applied)):
        raise TypeError(
            "wrappers: expected a list of functions of an environment, such as [Wrapper] or "
            f"[partial(Wrapper, argument=...)], found {show_value(wrappers)}"
        )
    return applied


@dataclass(frozen=True)
class GymnasiumFactory:
    """Makes the environment of a Gymnasium spec, in a process that need not have it registered."""

    spec: EnvSpec

    def __call__(self, **kwargs: Any) -> Any:
        """Make the environment, as `gymnasium.make` does."""
        # The spec of a vector env also holds arguments of `gymnasium.make`.
        spec = copy.copy(self.spec)
        spec.kwargs = {name: value for name, value in spec.kwargs.items() if name not in _OF_MAKE}
        kwargs = {**self.spec.kwargs, **kwargs}
        return require_extra("gymnasium", "gymnasium").make(spec, **kwargs)


def find_parallel(env: Any) -> Any:
    """Return the factory for an id of PettingZoo's registry; anything else as it is.

    The factory holds the id's spec: another process need not have it registered.
    """
    if not isinstance(env, str) or ":" in env:
        return env
    return partial(_make_parallel, require_extra("pettingzoo", "pettingzoo").spec("parallel", env))


def _make_parallel(spec: Any, **kwargs: Any) -> Any:
    return require_extra("pettingzoo", "pettingzoo").make("parallel", spec, **kwargs)


def _check_layout(agents: str | None) -> None:
    """Refuse an argument `agents` that is not a layout."""
    if agents not in (None, "rows", "dict"):
        raise ValueError(f"agents: expected 'rows', 'dict' or None; found {agents!r}")


def _adapters() -> Any:
    return importlib.import_module("vecspaces.adapters.pettingzoo")


def adapt_factory(make_env: Factory, agents: AgentLayout) -> Factory:
    """Return a factory with Dicts by agent for one of parallel environments.

    With `"rows"`, it refuses agents that cannot be rows.
    """
    _check_layout(agents)

    @wraps(make_env)
    def make(**kwargs: Any) -> Any:
        env = make_env(**kwargs)
        if agents == "rows":
            _adapters().as_vector_env(env)
        return _adapters().as_env(env)

    return make


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
    """Return the factory of an environment, without calling it; raise what `make_vec` raises."""
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
    parts = module_name.split(".")
    if not all(map(str.isidentifier, parts)) or parts[-1] == "py":
        guess = ".".join(re.findall(r"\w+", module_name.removesuffix(".py")))
        guess = guess or "package.module"
        raise ImportError(
            f"env: {name!r}: {module_name!r} is no name of a module: write it as in an import, "
            f"such as '{guess}:{attribute}', and add its folder to PYTHONPATH",
            name=module_name,
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ImportError(
            f"env: {name!r}: cannot import the module {module_name!r}: {error}", name=module_name
        ) from error
    try:
        env_fn: Factory = operator.attrgetter(attribute)(module)
    except AttributeError:
        return _find_registered_by(module, attribute, name)
    if not callable(env_fn):
        raise TypeError(
            f"env: {name!r}: expected a factory, found {env_fn!r} of type {type(env_fn).__name__}"
        )
    return env_fn


def _find_registered_by(module: ModuleType, env_id: str, name: str) -> GymnasiumFactory:
    """Find a Gymnasium id once a module that may register it has been imported."""
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is not None:
        try:
            return GymnasiumFactory(_find_spec(env_id))
        except gymnasium.error.Error:
            pass
    raise AttributeError(
        f"env: {name!r}: the module {module.__name__!r} has no {env_id!r}, and registers no "
        f"Gymnasium id of that name; it is {getattr(module, '__file__', 'built in')}"
    )


def _find_spec(env_id: str) -> EnvSpec:
    """Look up a Gymnasium id; one without a version means the latest, as in `gymnasium.make`."""
    registration = require_extra("gymnasium.envs.registration", "gymnasium")
    if env_id not in registration.registry:
        namespace, name, version = registration.parse_env_id(env_id)
        latest = registration.find_highest_version(namespace, name)
        if version is None and latest is not None:
            env_id = registration.get_env_id(namespace, name, latest)
    try:
        spec: EnvSpec = copy.deepcopy(registration.spec(env_id))
    except (registration.error.NamespaceNotFound, registration.error.NameNotFound) as error:
        known = (module for start, module in _REGISTERED_BY.items() if env_id.startswith(start))
        module = next(known, "module_that_registers_it")
        name = f"{module}:{env_id}"
        raise type(error)(f"{error} If a package registers it, name that too: {name!r}") from None
    return spec
