"""Pickling by name or by value, and what to say of values that cannot be pickled."""

from __future__ import annotations

import inspect
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, ClassVar

import cloudpickle


def is_in_main(value: Any) -> bool:
    """Whether the main module has a function or class under its own name."""
    value_in_main: Any = sys.modules["__main__"]
    for name in value.__qualname__.split("."):
        value_in_main = getattr(value_in_main, name, None)
    return value_in_main is value


def dumps_by_name(value: Any, by_name: Callable[[Any], bool] = is_in_main, **options: Any) -> bytes:
    """Pickle functions and classes by reference if they have a name, otherwise by value."""
    # cloudpickle sends those of the main module by value, which a forked worker has too: there, a
    # class that is sent by value would be a second class.
    file = io.BytesIO()
    NamePickler(file, by_name, **{"protocol": 5, **options}).dump(value)
    return file.getvalue()


def dumps(
    value: Any,
    otherwise: Callable[..., bytes] = dumps_by_name,
    buffers: list[pickle.PickleBuffer] | None = None,
) -> bytes:
    """Pickle a value of the types of Python and NumPy, in a third of the time of `otherwise`.

    Any other value is pickled by `otherwise`. Its methods are called once, because `__reduce__` may
    give away what the value holds. The bytes of arrays are added to `buffers`, if it is not None.
    """
    callback = None if buffers is None else buffers.append
    file = io.BytesIO()
    try:
        _PlainPickler(file, 5, buffer_callback=callback).dump(value)
    except _NotPlain:
        if buffers is not None:
            buffers.clear()
    else:
        return file.getvalue()
    return otherwise(value, buffer_callback=callback)


class _NotPlain(Exception):  # noqa: N818 - a state, not a fault
    """A value has another type than those of Python, NumPy and vecspaces."""


class _PlainPickler(pickle.Pickler):
    """Refuses values, functions and classes of other modules, before it calls their methods."""

    def reducer_override(self, value: Any) -> Any:
        """Refuse a value, or let `pickle` choose how it is pickled."""
        module = value.__module__ if isinstance(value, _NAMED) else type(value).__module__
        if type(value) is range or (module or "").partition(".")[0] in ("numpy", "vecspaces"):
            return NotImplemented
        raise _NotPlain


_NAMED = (type, FunctionType, BuiltinFunctionType)


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _make_code, (code.co_filename, make, arguments)


def _make_code(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=file)


class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """cloudpickle's pickler; code keeps the name of its file, which stacks of workers show."""

    dispatch_table: ClassVar[Any] = ChainMap(
        {CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )


class NamePickler(ValuePickler):
    """Pickles by value, except for functions and classes that `by_name` accepts."""

    def __init__(self, file: io.BytesIO, by_name: Callable[[Any], bool], **options: Any) -> None:
        super().__init__(file, **options)
        self._by_name = by_name

    def reducer_override(self, value: Any) -> Any:
        """Choose how a value is pickled."""
        if (
            isinstance(value, (type, FunctionType))
            and value.__module__ == "__main__"
            and self._by_name(value)
        ):
            return NotImplemented  # by reference
        if type(value).__module__ == "multiprocessing.connection":  # only its number would be sent
            raise TypeError(f"cannot pickle {type(value).__name__!r} object")
        if hasattr(type(value), "reduce_by"):  # a layout, which pickles its parts separately
            return value.reduce_by(partial(dumps_by_name, by_name=self._by_name))
        return super().reducer_override(value)


def unpicklable(
    value: Any, name: str, dumps: Callable[[Any], object], error: Exception, advice: str
) -> TypeError:
    """Return the error for a value that `dumps` refuses; it names the innermost such part."""
    name, value = innermost(value, name, dumps)
    return TypeError(
        f"{name} ({type(value).__qualname__}) cannot be sent to a worker: {error}; {advice}"
    )


def innermost(value: Any, name: str, dumps: Callable[[Any], object]) -> tuple[str, Any]:
    """Return the innermost part of a value that `dumps` refuses, after its place."""
    seen, bad = set[int](), [("", value)]
    while bad and id(bad[0][1]) not in seen:
        name, value, bad = f"{name}{bad[0][0]}", bad[0][1], []
        seen.add(id(value))
        with suppress(Exception):  # an attribute may raise anything
            bad = [(where, part) for where, part in _parts_of(value) if _fails(dumps, part)]
    return name, value


def _fails(dumps: Callable[[Any], object], value: Any) -> bool:
    try:
        dumps(value)
    except Exception:
        return True
    return False


def _parts_of(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the parts of a value that are pickled with it, and where they are in it."""
    if isinstance(value, FunctionType):
        variables = inspect.getclosurevars(value)
        variables_by_name = {**variables.globals, **variables.nonlocals}
        parts = [(f", variable {name}", part) for name, part in variables_by_name.items()]
        return [*parts, (".__defaults__", value.__defaults__)]
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)) and not hasattr(value, "_fields"):
        return [(f"[{number}]", part) for number, part in enumerate(value)]
    if type(value).__module__.startswith("multiprocessing."):
        return []  # it refuses to be pickled, whatever it has
    names: Iterable[str] = getattr(value, "_fields" if isinstance(value, tuple) else "__dict__", [])
    names = {MethodType: ["__self__"], partial: ["func", "args", "keywords"]}.get(
        type(value), names
    )
    return [(f".{name}", getattr(value, name)) for name in names]
