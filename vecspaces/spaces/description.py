"""Descriptions: spaces as plain JSON types, to log a run, to serve a policy, or to compare."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vecspaces.checks import mismatch, show_value
from vecspaces.errors import CustomSpaceError
from vecspaces.spaces.box import Box
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.discrete import Discrete
from vecspaces.spaces.graph import Graph
from vecspaces.spaces.intervals import all_equal, dtype_limits
from vecspaces.spaces.multi_binary import MultiBinary
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.nesting import map_members
from vecspaces.spaces.one_of import OneOf
from vecspaces.spaces.sequence import Sequence
from vecspaces.spaces.space import Space
from vecspaces.spaces.text import Text
from vecspaces.spaces.tuple import Tuple

if TYPE_CHECKING:
    import numpy.typing as npt

#: The version that `to_description` writes, and the newest that `from_description` reads.
VERSION = 1

_DTYPE = r"bool|u?int(8|16|32|64)|float(16|32|64|96|128)|[<>][iuf](2|4|8|12|16)"
_NUMBER = r"-?(inf|\d+(\.\d*)?(e[+-]?\d+)?)"
_INFINITE = {"inf": np.inf, "-inf": -np.inf}
_INFINITY = {"low": -np.inf, "high": np.inf}
"""What is no bound."""
_KEY_TYPES = (str, int, float, bool, type(None))


def to_description(space: Space[Any]) -> dict[str, Any]:
    """Return a description of a space in plain JSON types; `from_description` is the inverse.

    It holds all that makes two spaces equal, bounds as exact values, and a version number; seeds
    and the state of generators are left out.

    Args:
        space: One of the ten spaces, nested to any depth.

    Returns:
        Dicts, lists, strings, numbers, bools and None, which `json.dumps` can write.

    Raises:
        CustomSpaceError: `space`, or one inside it, is of another class; a subclass may have
            changed what a value is, and that would be lost.

    Example:
        >>> to_description(Tuple((Box(0, np.inf, (2,)), Discrete(5))))
        {'version': 1, 'type': 'Tuple', 'spaces': [{'type': 'Box', 'shape': [2], 'dtype': 'float32',
         'low': 0.0, 'high': 'inf'}, {'type': 'Discrete', 'n': 5, 'start': 0, 'dtype': 'int64'}]}
    """
    return {"version": VERSION, **_describe(space, "space")}


def from_description(description: dict[str, Any]) -> Space[Any]:
    """Return the space that a description describes, equal to the one that it was made from.

    Nothing in a description is executed, and nothing is imported for it.

    Args:
        description: What `to_description` returned, or what `json.loads` made of its text.

    Returns:
        A new space, not seeded.

    Raises:
        TypeError: `description` is no dict.
        ValueError: It is of a newer version, or is not what `to_description` writes; the message
            begins with the path to what is wrong.

    Example:
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
        return _build(fields, "description")
    except RecursionError:
        raise ValueError("description: spaces are nested too deeply") from None


def _describe(space: Any, where: str) -> dict[str, Any]:
    """Return a description without a version."""
    kind = type(space)
    if kind not in _FIELDS:
        expected = f"one of {_names()}, and no class derived from them"
        raise CustomSpaceError(mismatch(where, expected, f"{space!r} of type {kind.__name__}"))
    if kind is Dict and not all(map(_is_key, space.spaces)):
        wrong = next(key for key in space.spaces if not _is_key(key))
        expected = "keys that JSON has: str, int, float, bool or None"
        raise CustomSpaceError(mismatch(where, expected, show_value(wrong)))
    arguments = map_members(space._arguments(), where, _describe)
    if kind is MultiDiscrete:  # whose numbers do not show the shape, if one stands for all
        arguments = {"shape": space.shape, **arguments}
    parts = {name: _describe_part(space, name, value) for name, value in arguments.items()}
    return {"type": kind.__name__, **parts}


def _describe_part(space: Any, name: str, value: Any) -> Any:
    """Return one argument of a space as JSON has it."""
    if name in _INFINITY:
        bounded = space.bounded_below if name == "low" else space.bounded_above
        return _describe_numbers(value, bounded, str(_INFINITY[name]))
    if name == "charset":
        return value if _is_kept(value) else list(value)  # JSON would join two of them
    if isinstance(value, np.dtype):
        return str(value.name if value.isnative else value.str)
    if isinstance(value, np.ndarray):
        return _describe_numbers(value)
    if isinstance(value, np.integer):
        return int(value)
    if name in ("sort_keys", "stack"):
        return bool(value)
    return list(value) if isinstance(value, tuple) else value


def _build(description: Any, where: str) -> Space[Any]:
    """Return the space of a description without a version."""
    if not isinstance(description, dict):
        raise _wrong(where, "a description of a space", description)
    name = description.get("type")
    kind = next((kind for kind in _FIELDS if kind.__name__ == name), None)
    if kind is None:
        raise _wrong(f"{where}['type']", f"one of {_names()}", name)
    names = ["type", *_FIELDS[kind]]
    if set(description) != set(names):
        raise ValueError(mismatch(where, f"the fields {names}", f"{list(description)}"))
    fields = _Fields(description, where)
    found = {name: read(fields, name) for name, read in _FIELDS[kind].items()}
    try:
        return _make(kind, found)
    except (ArithmeticError, MemoryError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _make(kind: type[Space[Any]], found: dict[str, Any]) -> Space[Any]:
    """Return a space of what was read."""
    bounded = {}
    for name, value in found.items():
        if name in _INFINITY:
            found[name], bounded[name] = value
    if kind is MultiDiscrete:
        shape = found.pop("shape")
        for name in ("nvec", "start"):
            found[name] = np.full(shape, found[name][0], found["dtype"])
    space: Space[Any] = kind(**found)
    for name, attribute in (("low", "bounded_below"), ("high", "bounded_above")):
        if bounded.get(name) is not None:
            setattr(space, attribute, bounded[name])
    return space


def _names() -> str:
    return ", ".join(kind.__name__ for kind in _FIELDS)


def _wrong(where: str, expected: str, found: Any) -> ValueError:
    return ValueError(mismatch(where, expected, show_value(found)))


class _Fields:
    """The fields of a description, each checked as it is read."""

    def __init__(self, fields: dict[str, Any], where: str) -> None:
        self._fields, self._where = fields, where

    def take(self, name: str, kind: type) -> Any:
        """Return a field of a type; a bool is no int."""
        value = self._fields[name]
        if type(value) is not kind:
            raise _wrong(self.place(name), f"a value of type {kind.__name__}", value)
        return value

    def place(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self._where}[{name!r}]"

    def size(self, name: str) -> Any:
        """Return a field with a length or a shape."""
        return self.shape(name) if isinstance(self._fields[name], list) else self.take(name, int)

    def shape(self, name: str = "shape") -> tuple[int, ...]:
        """Return a field with the sides of an array."""
        sides = self._fields[name]
        if not isinstance(sides, list) or not all(type(n) is int and n >= 0 for n in sides):
            raise _wrong(self.place(name), "a list of integers of at least 0", sides)
        return tuple(sides)

    def dtype(self, name: str = "dtype") -> np.dtype[Any]:
        """Return the dtype, if this platform has it."""
        found = self._fields[name]
        if isinstance(found, str) and re.fullmatch(_DTYPE, found):
            try:
                return np.dtype(found)
            except TypeError:  # such as float128 where there is none
                pass
        raise _wrong(self.place(name), "the name of an integer, floating or bool dtype", found)

    def numbers(self, name: str) -> tuple[Any, Any]:
        """Return numbers of the dtype, or one number for all, and which of them are bounds."""
        dtype, infinity = self.dtype(), _INFINITY.get(name, np.nan)
        values, shape = self._fields[name], self.shape()
        read = partial(_read_number, dtype, infinity)
        if not isinstance(values, list):
            number, is_bound = read(values, self.place(name))
            return (number if is_bound else infinity), None
        pairs = [read(value, place) for value, place in _entries(values, shape, self.place(name))]
        numbers = np.array([number for number, _ in pairs], dtype)
        bounded = np.array([is_bound for _, is_bound in pairs], np.bool_)
        return numbers.reshape(shape), bounded.reshape(shape)

    def characters(self, name: str) -> Any:
        """Return a field with characters, as one str or as a list of them."""
        found = self._fields[name]
        if isinstance(found, list) and all(type(one) is str and len(one) == 1 for one in found):
            return found
        return self.take(name, str)

    def space(self, name: str) -> Space[Any]:
        """Return the space of a field."""
        return _build(self._fields[name], self.place(name))

    def space_or_none(self, name: str) -> Space[Any] | None:
        """Return the space of a field, or None."""
        return None if self._fields[name] is None else self.space(name)

    def spaces(self, name: str) -> list[Space[Any]]:
        """Return the spaces of a field."""
        place = self.place(name)
        return [_build(one, f"{place}[{i}]") for i, one in enumerate(self.take(name, list))]

    def items(self, name: str) -> list[tuple[Any, Space[Any]]]:
        """Return the pairs of a key and a space of a field."""
        members: dict[Any, Space[Any]] = {}
        for i, pair in enumerate(self.take(name, list)):
            place = f"{self.place(name)}[{i}]"
            if not isinstance(pair, list) or len(pair) != 2 or not _is_key(pair[0]):
                raise _wrong(place, "a pair of a key and a description", pair)
            if pair[0] in members:
                raise _wrong(place, "a key that is not there already", pair[0])
            members[pair[0]] = _build(pair[1], f"{place}[1]")
        return list(members.items())


def _is_key(key: Any) -> bool:
    """Return whether JSON can hold a key of a Dict; nan would not be found again."""
    return type(key) in _KEY_TYPES and key == key and (type(key) is not str or _is_kept(key))


def _is_kept(text: str) -> bool:
    """Return whether JSON keeps a str: it makes one character of two surrogates that are a pair."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text


def _read_number(dtype: np.dtype[Any], infinity: float, value: Any, where: str) -> tuple[Any, bool]:
    """Return a number, and whether it bounds anything; what does not is the limit of integers."""
    smallest, largest = dtype_limits(dtype)
    text = isinstance(value, str)
    if dtype.kind == "f" and text and (value in _INFINITE or dtype.itemsize > 8):
        with warnings.catch_warnings():  # what overflows is no number of the dtype
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
    """Yield the entries of nested lists of a shape, and where they sit."""
    if not shape:
        yield values, where
        return
    if not isinstance(values, list) or len(values) != shape[0]:
        raise _wrong(where, f"lists of shape {shape}", values)
    for i, value in enumerate(values):
        yield from _entries(value, shape[1:], f"{where}[{i}]")


def _describe_numbers(array: npt.NDArray[Any], bounded: Any = True, infinity: str = "") -> Any:
    """Return exact numbers, one if all are the same; infinite ones as strings, as JSON has none."""
    numbers: Any = array.astype(object)
    if array.dtype.kind == "f":
        if array.dtype.itemsize > 8:  # no number of Python's is as exact
            numbers = np.array([str(number) for number in array.flat], object).reshape(array.shape)
        numbers[array == np.inf], numbers[array == -np.inf] = "inf", "-inf"
    else:
        numbers[np.logical_not(bounded)] = infinity
    # Zeros are equal, whatever their signs.
    one = all_equal(numbers) and (array.dtype.kind != "f" or all_equal(np.signbit(array)))
    return numbers.flat[0] if one else numbers.tolist()


_integer, _flag = partial(_Fields.take, kind=int), partial(_Fields.take, kind=bool)
# The fields of each kind, which are its arguments, in their order, and how they are read.
_FIELDS: dict[type[Space[Any]], dict[str, Callable[[_Fields, str], Any]]] = {
    Box: {
        "shape": _Fields.shape,
        "dtype": _Fields.dtype,
        "low": _Fields.numbers,
        "high": _Fields.numbers,
    },
    Discrete: {"n": _integer, "start": _integer, "dtype": _Fields.dtype},
    MultiBinary: {"n": _Fields.size},
    MultiDiscrete: {
        "shape": _Fields.shape,
        "dtype": _Fields.dtype,
        "nvec": _Fields.numbers,
        "start": _Fields.numbers,
    },
    Text: {
        "min_length": _integer,
        "max_length": _integer,
        "charset": _Fields.characters,
    },
    Dict: {"sort_keys": _flag, "spaces": _Fields.items},
    Tuple: {"spaces": _Fields.spaces},
    OneOf: {"spaces": _Fields.spaces},
    Sequence: {"space": _Fields.space, "stack": _flag},
    Graph: {"node_space": _Fields.space, "edge_space": _Fields.space_or_none},
}
