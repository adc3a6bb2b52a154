"""Descriptions: a space as JSON types, for logs, for servers of policies, and for comparisons."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import mismatch, show_value
from vecspaces.errors import CustomSpaceError
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.intervals import all_equal, dtype_limits
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.space import Space
from vecspaces.spaces.standard import KINDS, FieldKind, StandardSpace, map_members

#: The version that `to_description` writes, and the newest that `from_description` reads.
VERSION = 1

_DTYPE = r"bool|u?int(8|16|32|64)|float(16|32|64|96|128)|[<>][iuf](2|4|8|12|16)"
_NUMBER = r"-?(inf|\d+(\.\d*)?(e[+-]?\d+)?)"
_INFINITE = {"inf": np.inf, "-inf": -np.inf}
_KEY_TYPES = (str, int, float, bool, type(None))


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
        found = show_value(version) if "version" in description else "none"
        raise ValueError(mismatch("description['version']", "a version number", found))
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
    if kind is Dict and not all(map(_is_key, space.spaces)):
        wrong = next(key for key in space.spaces if not _is_key(key))
        expected = "keys that JSON has: str, int, float, bool or None"
        raise CustomSpaceError(mismatch(where, expected, show_value(wrong)))
    arguments = kind._arguments_of(space)
    map_members(kind, arguments, where, _write_space)
    arguments["shape"] = space.shape
    fields = _fields_of(kind).items()
    return {
        "type": kind.__name__,
        **{name: _write_field(space, field, arguments[name]) for name, field in fields},
    }


def _write_field(space: Any, field: FieldKind, value: Any) -> Any:
    """Return one argument of a space as JSON types."""
    match field:
        case "low":
            return _write_numbers(value, space.bounded_below, "-inf")
        case "high":
            return _write_numbers(value, space.bounded_above, "inf")
        case "limits":
            return _write_numbers(value)
        case "limit" | "length":
            return int(value)
        case "flag":
            return bool(value)
        case "dtype":
            return str(value.name if value.isnative else value.str)
        case "characters":
            return value if _is_kept(value) else list(value)  # JSON would join two of them
        case "shape" | "size":
            return list(value) if isinstance(value, tuple) else value
        case _:  # members, which are already written
            return value


def _read_space(description: Any, where: str) -> Space[Any]:
    """Return the space of a description without a version."""
    if not isinstance(description, dict):
        raise _wrong(where, "a description of a space", description)
    name = description.get("type")
    if not isinstance(name, str) or name not in KINDS:
        raise _wrong(f"{where}['type']", f"one of {', '.join(KINDS)}", name)
    kind = KINDS[name]
    fields = _fields_of(kind)
    names = ["type", *fields]
    if set(description) != set(names):
        raise ValueError(mismatch(where, f"the fields {names}", f"{list(description)}"))
    found = {name: _read_field(description, where, name, field) for name, field in fields.items()}
    try:
        return _make(kind, found)
    except (ArithmeticError, MemoryError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _read_field(description: dict[str, Any], where: str, name: str, field: FieldKind) -> Any:
    """Return one field of a description as the argument of a space, checked."""
    found, place = description[name], f"{where}[{name!r}]"
    match field:
        case "shape":
            return _read_shape(found, place)
        case "size" if isinstance(found, list):
            return _read_shape(found, place)
        case "size" | "limit" | "length":
            return _expect(int, found, place)
        case "flag":
            return _expect(bool, found, place)
        case "dtype":
            return _read_dtype(found, place)
        case "low" | "high" | "limits":
            dtype = _read_field(description, where, "dtype", "dtype")
            shape = _read_field(description, where, "shape", "shape")
            infinity = {"low": -np.inf, "high": np.inf}.get(name, np.nan)
            return _read_numbers(found, place, dtype, shape, infinity)
        case "characters":
            apart = isinstance(found, list)
            apart = apart and all(type(one) is str and len(one) == 1 for one in found)
            return found if apart else _expect(str, found, place)
        case "optional space" if found is None:
            return None
        case "spaces":
            members = enumerate(_expect(list, found, place))
            return [_read_space(one, f"{place}[{i}]") for i, one in members]
        case "items":
            return _read_items(_expect(list, found, place), place)
        case _:
            return _read_space(found, place)


def _make(kind: type[StandardSpace[Any]], found: dict[str, Any]) -> Space[Any]:
    """Return the space for the values that were read."""
    bounded: dict[str, Any] = {}
    for name in ("low", "high"):
        if name in found:
            found[name], bounded[name] = found[name]
    if kind is MultiDiscrete:
        shape = found.pop("shape")
        for name in ("nvec", "start"):
            found[name] = np.full(shape, found[name][0], found["dtype"])
    space = kind(**found)
    for name, attribute in (("low", "bounded_below"), ("high", "bounded_above")):
        if bounded.get(name) is not None:
            setattr(space, attribute, bounded[name])
    return space


def _wrong(where: str, expected: str, found: Any) -> ValueError:
    return ValueError(mismatch(where, expected, show_value(found)))


def _expect(kind: type, found: Any, where: str) -> Any:
    """Return a value if it is of a type; a bool is not an int."""
    if type(found) is not kind:
        raise _wrong(where, f"a value of type {kind.__name__}", found)
    return found


def _read_shape(found: Any, where: str) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(n) is int and n >= 0 for n in found):
        raise _wrong(where, "a list of integers of at least 0", found)
    return tuple(found)


def _read_dtype(found: Any, where: str) -> np.dtype[Any]:
    if isinstance(found, str) and re.fullmatch(_DTYPE, found):
        try:
            return np.dtype(found)
        except TypeError:  # such as float128 where there is none
            pass
    raise _wrong(where, "the name of an integer, floating or bool dtype", found)


def _read_numbers(
    found: Any, where: str, dtype: np.dtype[Any], shape: tuple[int, ...], infinity: float
) -> tuple[Any, Any]:
    """Return numbers of the dtype, or one number for all, and which of them are bounds."""
    read = partial(_read_number, dtype, infinity)
    if not isinstance(found, list):
        number, is_bound = read(found, where)
        return (number if is_bound else infinity), None
    pairs = [read(value, place) for value, place in _entries(found, shape, where)]
    numbers = np.array([number for number, _ in pairs], dtype)
    bounded = np.array([is_bound for _, is_bound in pairs], np.bool_)
    return numbers.reshape(shape), bounded.reshape(shape)


def _read_number(dtype: np.dtype[Any], infinity: float, value: Any, where: str) -> tuple[Any, bool]:
    """Return a number, and whether it is a bound; if not, it is the limit of the dtype."""
    smallest, largest = dtype_limits(dtype)
    text = isinstance(value, str)
    if dtype.kind == "f" and text and (value in _INFINITE or dtype.itemsize > 8):
        with warnings.catch_warnings():  # what overflows is not a number of the dtype
            warnings.simplefilter("ignore", RuntimeWarning)
            number = dtype.type(value if re.fullmatch(_NUMBER, value) else "nan")
        if np.isfinite(number) or value in _INFINITE:
            return number, number != infinity
    if dtype.kind == "i" and text and _INFINITE.get(value) == infinity:
        return (smallest if infinity < 0 else largest), False
    kinds = {"f": (int, float), "b": (bool,)}.get(dtype.kind, (int,))
    if type(value) not in kinds or not smallest <= value <= largest:
        raise _wrong(where, f"a number from {smallest} to {largest} ({dtype})", value)
    return int(value) if dtype.kind == "b" else value, True


def _entries(values: Any, shape: tuple[int, ...], where: str) -> Iterator[tuple[Any, str]]:
    """Yield the entries of nested lists of a shape, and their indices."""
    if not shape:
        yield values, where
        return
    if not isinstance(values, list) or len(values) != shape[0]:
        raise _wrong(where, f"lists of shape {shape}", values)
    for i, value in enumerate(values):
        yield from _entries(value, shape[1:], f"{where}[{i}]")


def _read_items(found: list[Any], where: str) -> list[tuple[Any, Space[Any]]]:
    """Return the pairs of a key and a space."""
    members: dict[Any, Space[Any]] = {}
    for i, pair in enumerate(found):
        place = f"{where}[{i}]"
        if not isinstance(pair, list) or len(pair) != 2 or not _is_key(pair[0]):
            raise _wrong(place, "a pair of a key and a description", pair)
        if pair[0] in members:
            raise _wrong(place, "a key that is not there already", pair[0])
        members[pair[0]] = _read_space(pair[1], f"{place}[1]")
    return list(members.items())


def _is_key(key: Any) -> bool:
    """Return whether JSON can represent a key of a Dict; nan would not be found again."""
    return type(key) in _KEY_TYPES and key == key and (type(key) is not str or _is_kept(key))


def _is_kept(text: str) -> bool:
    """Return whether JSON keeps a str: it joins a pair of surrogates into one character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text


def _write_numbers(array: npt.NDArray[Any], bounded: Any = True, infinity: str = "") -> Any:
    """Return exact numbers, one if all are equal; infinite ones as strings, since JSON has none."""
    numbers: Any = array.astype(object)
    if array.dtype.kind == "f":
        if array.dtype.itemsize > 8:  # no Python number is as exact
            numbers = np.array([str(number) for number in array.flat], object).reshape(array.shape)
        numbers[array == np.inf], numbers[array == -np.inf] = "inf", "-inf"
    else:
        numbers[np.logical_not(bounded)] = infinity
    # Zeros are equal, whatever their signs.
    one = all_equal(numbers) and (array.dtype.kind != "f" or all_equal(np.signbit(array)))
    return numbers.flat[0] if one else numbers.tolist()
