"""States of environments: what an environment and its wrappers have, as bytes, and back again.

The objects themselves stay, since groups, wrappers and simulators refer to them: their attributes
are pickled, and set. What belongs to a process, such as a window, is not part of a state: the
environment into which a state is loaded keeps its window.
"""

from __future__ import annotations

import copyreg
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from types import FunctionType
from typing import Any

import numpy as np

from vecspaces.checks import RAISED
from vecspaces.pickling import NamePickler, innermost, is_in_main
from vecspaces.vector.group.form import InvalidResult

# Objects of a process, by the beginnings of their modules.
_OF_A_PROCESS = (
    "mujoco.",
    "ale_py._ale_py",
    "gymnasium.envs.mujoco.mujoco_rendering",
    "gymnasium.envs.registration",
)
# Types of pygame; others, such as a Rect or a Group of sprites, are part of a state.
_OF_A_WINDOW = ("Surface", "Clock", "Font", "Sound", "Channel")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SPACES = ("gymnasium.spaces.", "vecspaces.spaces.")
# The attributes of wrappers, also of PettingZoo's.
_INSIDE = ("env", "parallel_env", "aec_env")
_MAIN = ("__main__", "__mp_main__")
# Types of which cloudpickle makes copies of another type.
_COPIED = (io.TextIOWrapper, memoryview)
_GENERATOR = ("_np_random", "_np_random_seed")
_ADVICE = "give the environment get_state() and set_state(env_state), or its class __getstate__()"

#: The number of a wrapper or environment, the outermost first, and the name of an attribute, or "";
#: -1 and the name of a class.
Place = tuple[int, str]
#: What must be equal where a state is loaded, and the pickled state.
EnvState = tuple[list[str], bytes]


def save_env(env: Any) -> EnvState:
    """Return the state of an environment and its wrappers."""
    levels = _levels(env)
    inner, attributes, state = levels[-1], list(map(_read, levels[:-1])), None
    if _has_get_state(inner):
        state = inner.get_state()
        attributes.append({name: vars(inner)[name] for name in _GENERATOR if name in vars(inner)})
    else:
        attributes.append(_read(inner))
    simulators = {place: save() for place, save, _ in _simulators(levels)}
    kept = _kept(levels)
    try:
        return _kind(levels), _dumps((attributes, state, simulators), levels, kept)
    except RAISED as error:
        raise _explain(levels, [*attributes, {"get_state()": state}], kept, error) from None


def prepare_load(env: Any, state: EnvState) -> Callable[[], None]:
    """Check that a state fits an environment; return the function that sets it."""
    levels, (kind, packed) = _levels(env), state
    expected = _kind(levels)
    if kind != expected:
        kinds = " around ".join(expected), " around ".join(kind)
        text = "expected the state of {}, found that of {}".format(*kinds)
        raise InvalidResult(ValueError, "", text)
    attributes, env_state, saved = _Unpickler(io.BytesIO(packed), levels).load()
    loads = [prepare(saved.get(place)) for place, _, prepare in _simulators(levels)]

    def load() -> None:
        for level, state in zip(levels, attributes, strict=True):
            if level is levels[-1] and _has_get_state(level):
                level.set_state(env_state)
                vars(level).update(state)
            else:
                _write(level, state)
        for load_simulator in loads:
            load_simulator()

    return load


def _levels(env: Any) -> list[Any]:
    """Return the wrappers of an environment, the outermost first, and the environment inside."""
    levels = [env]
    while True:
        attributes = _vars(levels[-1])
        inner = next((attributes[name] for name in _INSIDE if name in attributes), None)
        if not hasattr(inner, "step") or any(inner is level for level in levels):
            return levels
        levels.append(inner)


def _kind(levels: Sequence[Any]) -> list[str]:
    """Return the classes of wrappers and environment, and the id of its registration."""
    spec = getattr(levels[0], "spec", None)
    return [*(type(level).__qualname__ for level in levels), getattr(spec, "id", "no id")]


def _vars(value: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = getattr(value, "__dict__", {})
    return attributes


# ---------------------------------------------------------------------- one wrapper or environment


def _has_get_state(env: Any) -> bool:
    """Whether an environment has `get_state()` and `set_state(env_state)`, by their signatures."""
    try:
        getter, setter = map(inspect.signature, (env.get_state, env.set_state))
    except (AttributeError, TypeError, ValueError):
        return False
    kinds = [parameter.kind for parameter in setter.parameters.values()]
    return not getter.parameters and len(kinds) == 1 and kinds[0] in _POSITIONAL


def _read(level: Any) -> Any:
    """Return the state of an object as pickle would save it."""
    if _is_built_again(level):
        return dict(vars(level))
    kind: Any = type(level)
    if kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__:
        return level.__reduce_ex__(4)[2]  # which refuses objects with a state in C
    return level.__getstate__()


def _write(level: Any, state: Any) -> None:
    """Set the state of an object as pickle would load it."""
    kind: Any = type(level)
    is_plain = _is_built_again(level) or kind.__getstate__ is object.__getstate__
    if not is_plain and hasattr(level, "__setstate__"):
        level.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) else (state, {})
    for name in _vars(level).keys() - (attributes or {}).keys() if is_plain else ():
        del vars(level)[name]
    _vars(level).update(attributes or {})
    for name, value in slots.items():
        setattr(level, name, value)


def _is_built_again(value: Any) -> bool:
    """Whether pickling saves only the arguments of the constructor (Gymnasium's `EzPickle`)."""
    return "_ezpickle_args" in _vars(value) and not isinstance(value, type)


# ---------------------------------------------------------------------- pickling


def _kept(levels: Sequence[Any]) -> dict[int, Place]:
    """Return the places of the objects that stay, by their identity."""
    kept = {id(level): (number, "") for number, level in enumerate(levels)}
    for number, level in enumerate(levels):
        for name, value in _vars(level).items():
            if _stays(name, value):
                kept.setdefault(id(value), (number, name))
    return kept


def _stays(name: str, value: Any) -> bool:
    """Whether an attribute is not part of a state: code, or an object of the process."""
    if isinstance(value, FunctionType):  # named functions are pickled by name, closures by value
        is_anonymous = value.__module__ in _MAIN or "<" in value.__qualname__
        return value.__closure__ is None and is_anonymous
    module = type(value).__module__
    if module.startswith(_SPACES):  # under another name, it may be a region that steps change
        return name.endswith(("_space", "_spaces")) and _is_unused(value)
    is_window = module.startswith("pygame") and type(value).__name__ in _OF_A_WINDOW
    return is_window or module.startswith(_OF_A_PROCESS)


def _is_unused(value: Any) -> bool:
    """Whether spaces have no generators yet; they stay, since their bounds may be large."""
    if isinstance(value, (dict, tuple)):
        return all(map(_is_unused, value.values() if isinstance(value, dict) else value))
    if not type(value).__module__.startswith(_SPACES):
        return not hasattr(value, "contains")  # else a space of another library
    attributes = vars(value)
    generator = attributes.get("_np_random")
    return generator is None and all(map(_is_unused, attributes.values()))


def _find_class(levels: Sequence[Any], name: str) -> Any:
    """Return a class of the main module to which an environment's code refers, or None.

    The main module of a worker, or of the next run, may lack the class, or have another of its
    name.
    """
    kinds = {kind for level in levels for kind in type(level).__mro__}
    codes = [value for kind in kinds for value in vars(kind).values()]
    for variables in [getattr(code, "__globals__", {}) for code in codes]:
        first, *others = name.split(".")
        value = reduce(lambda outer, part: getattr(outer, part, None), others, variables.get(first))
        if isinstance(value, type):
            return value
    return None


class _Pickler(NamePickler):
    """Writes the places of objects that stay, and the names of classes of the main module."""

    def __init__(self, file: io.BytesIO, levels: Sequence[Any], kept: Mapping[int, Place]) -> None:
        super().__init__(file, is_in_main, protocol=5)
        self._levels, self._kept = levels, kept

    def persistent_id(self, value: Any) -> Place | None:
        if isinstance(value, type) and value.__module__ in _MAIN:
            name = value.__qualname__
            return (-1, name) if _find_class(self._levels, name) is value else None
        return self._kept.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        if type(value) in _COPIED and value not in (sys.stdout, sys.stderr):
            raise TypeError(f"cannot pickle {type(value).__name__!r} object")
        if _is_built_again(value):
            new = copyreg.__newobj__, (type(value),)  # type: ignore[attr-defined]
            return *new, dict(vars(value)), None, None, _update
        return super().reducer_override(value)


class _Unpickler(pickle.Unpickler):
    """Finds the objects that stay."""

    def __init__(self, file: io.BytesIO, levels: Sequence[Any]) -> None:
        super().__init__(file)
        self._levels = levels

    def persistent_load(self, place: Place) -> Any:
        number, name = place
        if number < 0:
            return _find_class(self._levels, name)
        level = self._levels[number]
        if name and name not in vars(level):
            text = f"{type(level).__name__}.{name} of the state stays that of the environment, "
            text += f"which has none yet: set it in the constructor, or {_ADVICE}"
            raise InvalidResult(ValueError, "", text)
        return vars(level)[name] if name else level


def _dumps(value: Any, levels: Sequence[Any], kept: Mapping[int, Place]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, levels, kept).dump(value)
    return file.getvalue()


def _update(value: Any, attributes: Mapping[str, Any]) -> None:
    vars(value).update(attributes)


def _explain(
    levels: Sequence[Any], states: Sequence[Any], kept: Mapping[int, Place], error: BaseException
) -> InvalidResult:
    """Return the error that names the attribute which cannot be pickled."""
    name = "the state"
    for level, state in zip([*levels, levels[-1]], states, strict=True):
        for attribute, value in state.items() if isinstance(state, dict) else ():
            try:
                _dumps(value, levels, kept)
            except RAISED as reason:
                place, error = f"{type(level).__name__}.{attribute}", reason
                name, _ = innermost(value, place, partial(_dumps, levels=levels, kept=kept))
    text = f"{name} cannot be saved: {type(error).__name__}: {error}: {_ADVICE}"
    return InvalidResult(TypeError, "", text)


# ---------------------------------------------------------------------- simulators


def _simulators(levels: Sequence[Any]) -> Iterator[tuple[Place, Callable[[], Any], Any]]:
    """Find simulators; return for each its place, and the functions that save and load it."""
    for number, level in enumerate(levels):
        for name, value in _vars(level).items():
            kind = type(value)
            library = kind.__module__.partition(".")[0]
            if (library, kind.__name__) == ("ale_py", "ALEInterface"):
                save = partial(value.cloneState, include_rng=True)
                yield (number, name), save, partial(partial, value.restoreState)
            elif (library, kind.__name__) == ("mujoco", "MjData"):
                yield (number, name), partial(_save_mujoco, value), partial(_load_mujoco, value)


def _save_mujoco(data: Any) -> tuple[float, dict[str, Any]]:
    """Return the whole data: steps read some of it before they compute it anew."""
    return data.time, {name: array.copy() for name, array in _arrays(data)}


def _load_mujoco(data: Any, saved: Any) -> Callable[[], None]:
    """Check that a state is of the same model; return the function that sets it."""
    time, arrays = saved
    for name in ("qpos", "qvel"):
        expected, actual = getattr(data, name).shape, arrays[name].shape
        if expected != actual:
            text = f"expected {name} of shape {expected} of a MuJoCo model, found {actual}"
            raise InvalidResult(ValueError, "", text)

    def load() -> None:
        data.time = time
        for name, array in _arrays(data):
            if name in arrays and arrays[name].shape == array.shape:  # else of other contacts
                array[...] = arrays[name]

    return load


def _arrays(data: Any) -> Iterator[tuple[str, Any]]:
    """Return the arrays of numbers, without pointers, which are of dtype uint64."""
    for name in dir(data):
        value = None if name.startswith("_") else getattr(data, name)
        if isinstance(value, np.ndarray) and value.flags.writeable and value.dtype != np.uint64:
            yield name, value
