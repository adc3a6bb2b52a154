"""Descriptions: a space as JSON types, for logs, for servers of policies, and for comparisons."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from vecspaces.checks import mismatch, show_path, show_value
from vecspaces.errors import CustomSpaceError
from vecspaces.spaces.bounds import all_equal, dtype_limits
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.space import Space
from vecspaces.spaces.standard import KINDS, FieldKind, StandardSpace, map_members

#: The version that `to_description` writes, and the newest that `from_description` reads.
VERSION = 1

_INFINITE = {"inf": np.inf, "-inf": -np.inf}
# For bounds: the attribute that says where they are, and what is written elsewhere.
_BOUNDED = {"low": ("bounded_below", "-inf"), "high": ("bounded_above", "inf")}
_PLAIN: dict[str, type] = {"size": int, "limit": int, "length": int, "flag": bool}
_DTYPES = {
    dtype: str(dtype.name if dtype.isnative else dtype.str)
    for code in "?bhilqBHILQefdg"
    for dtype in (np.dtype(code), np.dtype(code).newbyteorder())
}


def to_description(space: Space[Any]) -> dict[str, Any]:
    """Return a description of a space in plain JSON types; `from_description` is the inverse.

    It contains everything on which equality depends, with exact bounds, and a version number. Seeds
    and the state of generators are left out.

    Args:
        space: One of the ten spaces, nested to any depth.

    Returns:
        Dicts, lists, strings, numbers, bools and None, which `json.dumps` can write.

    Raises:
        CustomSpaceError: `space`, or one inside it, is of another class. This includes subclasses,
            because they may have other values.

    Example:
        >>> from vecspaces.spaces import Box, Discrete, Tuple
        >>> to_description(Tuple((Box(0, np.inf, (2,)), Discrete(5))))
        {'version': 1, 'type': 'Tuple', 'spaces': [{'type': 'Box', 'shape': [2], 'dtype': 'float32',
         'low': 0.0, 'high': 'inf'}, {'type': 'Discrete', 'n': 5, 'start': 0, 'dtype': 'int64'}]}
    """
    return {"version": VERSION, **_write_space(space, "space")}


def from_description(description: dict[str, Any]) -> Space[Any]:
    """Return the space of a description, equal to the one from which it was made.

    Nothing in a description is executed or imported.

    Args:
        description: What `to_description` returned, or what `json.loads` made of its text.

    Returns:
        A new space, not seeded.

    Raises:
        TypeError: `description` is not a dict.
        ValueError: It is of a newer version, or is not what `to_description` writes; the message
            begins with the path of the fault.

    Example:
        >>> from vecspaces.spaces import Box, Dict, Discrete
        >>> space = Dict(speed=Box(0, np.inf, (2,)), gear=Discrete(5))
        >>> from_description(to_description(space)) == space
        True
        >>> from_description({"version": 1, "type": "MultiBinary", "n": 0})
        Traceback (most recent call last):
            ...
        ValueError: description: n: expected positive counts, found 0
    """
    if not isinstance(description, dict):
        raise TypeError(mismatch("description", "a dict", show_value(description)))
    version = description.get("version")
    if type(version) is not int or version < 1:
        shown = show_value(version) if "version" in description else "none"
        raise ValueError(mismatch("description['version']", "a version number", shown))
    if version > VERSION:
        raise ValueError(
            f"description['version']: expected at most {VERSION}, found {version}: a newer "
            "vecspaces wrote it; upgrade vecspaces to read it"
        )
    fields = {key: value for key, value in description.items() if key != "version"}
    try:
        return _read_space(fields, "description")
    except RecursionError:
        raise ValueError("description: spaces are nested too deeply") from None


def _fields_of(kind: type[StandardSpace[Any]]) -> dict[str, FieldKind]:
    """Return the fields of a kind; one number may represent an array of any shape."""
    return {"shape": "shape", **kind._fields} if kind is MultiDiscrete else kind._fields


def _write_space(space: Any, where: str) -> dict[str, Any]:
    """Return a description without a version."""
    kind = type(space)
    if KINDS.get(kind.__name__) is not kind:
        expected = f"one of {', '.join(KINDS)}, and no class derived from them"
        raise CustomSpaceError(mismatch(where, expected, f"{space!r} of type {kind.__name__}"))
    for key in space.spaces if kind is Dict else ():
        if not _is_key(key):
            expected = "keys that JSON has: str, int, float, bool or None"
            raise CustomSpaceError(mismatch(where, expected, show_value(key)))
    arguments = {"shape": space.shape, **kind._arguments_of(space)}
    map_members(kind, arguments, where, _write_space)
    fields = _fields_of(kind).items()
    written = {name: _write_field(space, name, field, arguments[name]) for name, field in fields}
    return {"type": kind.__name__, **written}


def _write_field(space: Any, name: str, field: FieldKind, value: Any) -> Any:
    """Return one argument of a space as JSON types; members are written already."""
    if isinstance(value, np.ndarray):
        return _write_numbers(space, name, value)
    if isinstance(value, np.dtype):
        return _DTYPES[value]
    if isinstance(value, tuple) or (field == "characters" and not _is_kept(value)):
        return list(value)
    return _PLAIN[field](value) if field in ("limit", "length", "flag") else value


def _write_numbers(space: Any, name: str, array: Any) -> Any:
    """Return exact numbers, one if all are equal; infinite ones as strings, since JSON has none."""
    numbers = array.astype(object)
    if array.dtype.kind == "f":
        if array.dtype.itemsize > 8:  # no Python number is as exact
            numbers = np.array([str(number) for number in array.flat], object).reshape(array.shape)
        numbers[array == np.inf], numbers[array == -np.inf] = "inf", "-inf"
    elif name in _BOUNDED:
        attribute, infinity = _BOUNDED[name]
        numbers[~getattr(space, attribute)] = infinity
    # Zeros are equal, whatever their signs.
    is_uniform = all_equal(numbers) and (array.dtype.kind != "f" or all_equal(np.signbit(array)))
    return numbers.flat[0] if is_uniform else numbers.tolist()


def _read_space(description: Any, where: str) -> Space[Any]:
    """Return the space of a description without a version."""
    if not isinstance(description, dict):
        raise _wrong(where, "a description of a space", description)
    name = description.get("type")
    if not isinstance(name, str) or name not in KINDS:
        raise _wrong(f"{where}['type']", f"one of {', '.join(KINDS)}", name)
    kind = KINDS[name]
    names = ["type", *_fields_of(kind)]
    if set(description) != set(names):
        raise ValueError(mismatch(where, f"the fields {names}", f"{list(description)}"))
    arguments: dict[str, Any] = {}
    bounded: dict[str, Any] = {}
    for name, field in _fields_of(kind).items():
        value, place = description[name], f"{where}[{name!r}]"
        if field in ("low", "high", "limits"):
            dtype, shape = arguments["dtype"], arguments["shape"]
            arguments[name], bounded[name] = _read_numbers(value, place, dtype, shape, name)
        else:
            arguments[name] = _read_field(field, value, place)
    try:
        if kind is MultiDiscrete:
            shape, dtype = arguments.pop("shape"), arguments["dtype"]
            arguments |= {name: np.full(shape, arguments[name], dtype) for name in bounded}
        space: Any = kind(**arguments)
    except (ArithmeticError, MemoryError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    for name, (attribute, _) in _BOUNDED.items():
        if bounded.get(name) is not None:
            setattr(space, attribute, bounded[name])
    read: Space[Any] = space
    return read


def _read_field(field: FieldKind, value: Any, where: str) -> Any:
    """Return one field of a description as the argument of a space, checked."""
    if field == "dtype":
        if not isinstance(value, str) or value not in _DTYPES.values():
            raise _wrong(where, "the name of an integer, floating or bool dtype", value)
        return np.dtype(value)
    if field == "shape" or (field == "size" and isinstance(value, list)):
        if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
            raise _wrong(where, "a list of integers of at least 0", value)
        return tuple(value)
    if field in ("space", "optional space"):
        is_none = value is None and field == "optional space"
        return None if is_none else _read_space(value, where)
    characters = isinstance(value, list) and all(type(c) is str and len(c) == 1 for c in value)
    if field == "characters" and characters:
        return value
    kind: Any = _PLAIN.get(field, str if field == "characters" else list)
    if type(value) is not kind:  # a bool is not an int
        raise _wrong(where, f"a value of type {kind.__name__}", value)
    if field == "spaces":
        return [_read_space(member, f"{where}[{i}]") for i, member in enumerate(value)]
    return _read_items(value, where) if field == "items" else value


def _read_numbers(
    value: Any, where: str, dtype: np.dtype[Any], shape: tuple[int, ...], name: str
) -> tuple[Any, Any]:
    """Return numbers of the dtype, or one number for all, and which of them are bounds."""
    infinity = _BOUNDED[name][1] if name in _BOUNDED else ""
    smallest, largest = dtype_limits(dtype)
    kinds = {"f": (int, float), "b": (bool,)}.get(dtype.kind, (int,))
    entries, expected_shape = np.array(value, object), shape if isinstance(value, list) else ()
    if entries.shape != expected_shape and (entries.size or 0 not in expected_shape):
        raise _wrong(where, f"lists of shape {shape}", value)
    numbers = np.empty(entries.shape, dtype)
    for index, entry in np.ndenumerate(entries):
        fits = type(entry) in kinds and smallest <= entry <= largest
        if isinstance(entry, str) and dtype.kind == "f":
            fits = entry in _INFINITE or (dtype.itemsize > 8 and _is_finite(entry, dtype))
        elif isinstance(entry, str) and dtype.kind == "i" and entry == infinity:
            entry, fits = (smallest if infinity == "-inf" else largest), True
        if not fits:
            expected = f"a number from {smallest} to {largest} ({dtype})"
            raise _wrong(f"{where}{show_path(index)}", expected, entry)
        numbers[index] = entry
    bounded = np.asarray(entries != infinity, np.bool_)
    if isinstance(value, list):
        return numbers.reshape(shape), bounded.reshape(shape)
    number = int(numbers) if dtype.kind == "b" else numbers[()]
    return (number if bounded else _INFINITE[infinity]), None


def _is_finite(text: str, dtype: np.dtype[Any]) -> bool:
    """Return whether a text is a finite number of a dtype."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of an overflow
            return bool(np.isfinite(dtype.type(text)))
    except ValueError:
        return False


def _read_items(pairs: list[Any], where: str) -> list[tuple[Any, Space[Any]]]:
    """Return the pairs of a key and a space."""
    members: dict[Any, Space[Any]] = {}
    for i, pair in enumerate(pairs):
        place = f"{where}[{i}]"
        if not isinstance(pair, list) or len(pair) != 2 or not _is_key(pair[0]):
            raise _wrong(place, "a pair of a key and a description", pair)
        if pair[0] in members:
            raise _wrong(place, "a key that is not there already", pair[0])
        members[pair[0]] = _read_space(pair[1], f"{place}[1]")
    return list(members.items())


def _wrong(where: str, expected: str, value: Any) -> ValueError:
    return ValueError(mismatch(where, expected, show_value(value)))


def _is_key(key: Any) -> bool:
    """Return whether JSON can represent a key of a Dict; nan would not be found again."""
    is_str = type(key) is str
    plain = is_str or key is None or type(key) in (int, float, bool)
    return plain and key == key and (not is_str or _is_kept(key))


def _is_kept(text: str) -> bool:
    """Return whether JSON keeps a str: it joins a pair of surrogates into one character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text
