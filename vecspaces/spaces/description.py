"""Descriptions: spaces as plain JSON types, to log a run, to serve a policy, or to compare."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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
    name = type(space).__name__
    if name not in _FORMS or type(space) is not _FORMS[name].kind:
        expected = f"one of {', '.join(_FORMS)}, and no class derived from them"
        raise CustomSpaceError(mismatch(where, expected, f"{space!r} of type {name}"))
    return {"type": name, **_FORMS[name].describe(space, where)}


def _build(description: Any, where: str) -> Space[Any]:
    """Return the space of a description without a version."""
    if not isinstance(description, dict):
        raise _wrong(where, "a description of a space", description)
    name = description.get("type")
    if not isinstance(name, str) or name not in _FORMS:
        raise _wrong(f"{where}['type']", f"one of {', '.join(_FORMS)}", name)
    form = _FORMS[name]
    names = ["type", *form.fields]
    if set(description) != set(names):
        raise ValueError(mismatch(where, f"the fields {names}", f"{list(description)}"))
    make = form.read(_Fields(description, where))
    try:
        return make()
    except (ArithmeticError, MemoryError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


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

    def is_list(self, name: str) -> bool:
        """Return whether a field holds a list."""
        return isinstance(self._fields[name], list)

    def shape(self, name: str = "shape") -> tuple[int, ...]:
        """Return a field with the sides of an array."""
        sides = self._fields[name]
        if not isinstance(sides, list) or not all(type(n) is int and n >= 0 for n in sides):
            raise _wrong(self.place(name), "a list of integers of at least 0", sides)
        return tuple(sides)

    def dtype(self) -> np.dtype[Any]:
        """Return the dtype, if this platform has it."""
        name = self._fields["dtype"]
        if isinstance(name, str) and re.fullmatch(_DTYPE, name):
            try:
                return np.dtype(name)
            except TypeError:  # such as float128 where there is none
                pass
        raise _wrong(self.place("dtype"), "the name of an integer, floating or bool dtype", name)

    def array(self, name: str, infinity: float = np.nan) -> tuple[Any, Any]:
        """Return numbers of the dtype, or one number for all, and which of them are bounds.

        Bounds that are `infinity` are none: -inf as a lower one, inf as an upper one.
        """
        dtype = self.dtype()
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

    def spaces(self) -> list[Space[Any]]:
        """Return the spaces of the field `spaces`."""
        place = self.place("spaces")
        return [_build(one, f"{place}[{i}]") for i, one in enumerate(self.take("spaces", list))]

    def items(self) -> list[tuple[Any, Space[Any]]]:
        """Return the pairs of a key and a space of the field `spaces`."""
        members: dict[Any, Space[Any]] = {}
        for i, pair in enumerate(self.take("spaces", list)):
            place = f"{self.place('spaces')}[{i}]"
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


def _describe_characters(characters: tuple[str, ...]) -> str | list[str]:
    """Return characters as one str, or one by one where JSON would join two of them."""
    text = "".join(characters)
    return text if _is_kept(text) else list(characters)


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


def _describe_dtype(dtype: np.dtype[Any]) -> str:
    return str(dtype.name if dtype.isnative else dtype.str)


def _describe_box(space: Box[Any], where: str) -> dict[str, Any]:
    return {
        "shape": list(space.shape),
        "dtype": _describe_dtype(space.dtype),
        "low": _describe_numbers(space.low, space.bounded_below, "-inf"),
        "high": _describe_numbers(space.high, space.bounded_above, "inf"),
    }


def _read_box(fields: _Fields) -> Callable[[], Box[Any]]:
    low, below = fields.array("low", -np.inf)
    high, above = fields.array("high", np.inf)
    shape, dtype = fields.shape(), fields.dtype()

    def make() -> Box[Any]:
        box: Box[Any] = Box(low, high, shape, dtype)
        box.bounded_below = box.bounded_below if below is None else below
        box.bounded_above = box.bounded_above if above is None else above
        return box

    return make


def _read_multi_discrete(fields: _Fields) -> Callable[[], MultiDiscrete[Any]]:
    shape, dtype = fields.shape(), fields.dtype()
    nvec, start = fields.array("nvec")[0], fields.array("start")[0]

    def make() -> MultiDiscrete[Any]:
        return MultiDiscrete(np.full(shape, nvec, dtype), dtype, start=np.full(shape, start, dtype))

    return make


def _describe_dict(space: Dict[Any], where: str) -> dict[str, Any]:
    for key in space.spaces:
        if not _is_key(key):
            expected = "keys that JSON has: str, int, float, bool or None"
            raise CustomSpaceError(mismatch(where, expected, show_value(key)))
    items = space.spaces.items()
    return {
        "sort_keys": bool(space.sort_keys),
        "spaces": [[key, _describe(member, f"{where}[{key!r}]")] for key, member in items],
    }


def _describe_members(space: Tuple[Any] | OneOf, where: str) -> dict[str, Any]:
    return {"spaces": [_describe(one, f"{where}[{i}]") for i, one in enumerate(space.spaces)]}


def _describe_graph(space: Graph, where: str) -> dict[str, Any]:
    members = {
        name: _describe(member, f"{where}.{name}") for name, member in space._members().items()
    }
    return {"edge_space": None, **members}


class _Form(NamedTuple):
    """How one kind of space is described, and read."""

    kind: type[Space[Any]]
    fields: tuple[str, ...]
    describe: Callable[[Any, str], dict[str, Any]]
    read: Callable[[_Fields], Callable[[], Space[Any]]]


_FORMS = {
    form.kind.__name__: form
    for form in (
        _Form(Box, ("shape", "dtype", "low", "high"), _describe_box, _read_box),
        _Form(
            Discrete,
            ("n", "start", "dtype"),
            lambda space, where: {
                "n": int(space.n),
                "start": int(space.start),
                "dtype": _describe_dtype(space.dtype),
            },
            lambda fields: partial(
                Discrete[Any],
                fields.take("n", int),
                start=fields.take("start", int),
                dtype=fields.dtype(),
            ),
        ),
        _Form(
            MultiBinary,
            ("n",),
            lambda space, where: {"n": list(space.n) if isinstance(space.n, tuple) else space.n},
            lambda fields: partial(
                MultiBinary, fields.shape("n") if fields.is_list("n") else fields.take("n", int)
            ),
        ),
        _Form(
            MultiDiscrete,
            ("shape", "dtype", "nvec", "start"),
            lambda space, where: {
                "shape": list(space.shape),
                "dtype": _describe_dtype(space.dtype),
                "nvec": _describe_numbers(space.nvec),
                "start": _describe_numbers(space.start),
            },
            _read_multi_discrete,
        ),
        _Form(
            Text,
            ("min_length", "max_length", "charset"),
            lambda space, where: {
                "min_length": space.min_length,
                "max_length": space.max_length,
                "charset": _describe_characters(space.character_list),
            },
            lambda fields: partial(
                Text,
                fields.take("max_length", int),
                min_length=fields.take("min_length", int),
                charset=fields.characters("charset"),
            ),
        ),
        _Form(
            Dict,
            ("sort_keys", "spaces"),
            _describe_dict,
            lambda fields: partial(Dict, fields.items(), sort_keys=fields.take("sort_keys", bool)),
        ),
        _Form(
            Tuple, ("spaces",), _describe_members, lambda fields: partial(Tuple, fields.spaces())
        ),
        _Form(
            OneOf, ("spaces",), _describe_members, lambda fields: partial(OneOf, fields.spaces())
        ),
        _Form(
            Sequence,
            ("space", "stack"),
            lambda space, where: {
                "space": _describe(space.feature_space, f"{where}.feature_space"),
                "stack": bool(space.stack),
            },
            lambda fields: partial(
                Sequence, fields.space("space"), stack=fields.take("stack", bool)
            ),
        ),
        _Form(
            Graph,
            ("node_space", "edge_space"),
            _describe_graph,
            lambda fields: partial(
                Graph, fields.space("node_space"), fields.space_or_none("edge_space")
            ),
        ),
    )
}
