"""Hypothesis strategies: spaces of all ten kinds, nested, and values of a space.

`spaces()` draws spaces, and `values(space)` draws values of a space. `recipes()` draws a space as a
`Recipe`, the class's name and its constructor arguments, from which the same space can be built in
Gymnasium.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Literal

import numpy as np

from vecspaces import spaces as our_spaces
from vecspaces.interop import foreign_values, native_space, require_extra
from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from vecspaces.vector.utils import concatenate

require_extra("hypothesis", "testing")

from hypothesis import strategies as st  # noqa: E402  # after the message that names the extra
from hypothesis.extra import numpy as hnp  # noqa: E402

INTEGERS = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]
FLOATS = [np.dtype(f"f{size}") for size in (2, 4, 8)]
BOX_DTYPES = [*INTEGERS, *FLOATS, np.dtype(bool)]
FUNDAMENTAL = ("Box", "Discrete", "MultiBinary", "MultiDiscrete", "Text")
COMPOSITE = ("Dict", "Tuple", "Sequence", "Graph", "OneOf")
KINDS = FUNDAMENTAL + COMPOSITE
DYNAMIC = ("Sequence", "Graph")
# Beyond it float64 rounds samples; tests/spaces/test_limits.py tests this.
EXACT = 2**52

seeds = st.integers(0, 2**32)


@dataclass(frozen=True)
class Recipe:
    """How to construct one space in either library: the class's name and its arguments."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def build(self, library: ModuleType = our_spaces, seed: Any = None) -> Any:
        """Construct the space, its members too, from copies of the arguments."""
        make = getattr(library, self.name)
        args = [_build(arg, library) for arg in self.args]
        kwargs = {name: _build(arg, library) for name, arg in self.kwargs.items()}
        space = make(*args, **kwargs)
        if seed is not None:
            space.seed(seed)
        return space

    @property
    def kinds(self) -> set[str]:
        """The names of the classes in here."""
        found = {self.name}
        for member in self.members:
            found |= member.kinds
        return found

    @property
    def members(self) -> list[Recipe]:
        """The recipes that are arguments of this one, in the order of the space's members."""
        values = self.args
        if self.name == "Dict":
            spaces, sort_keys = self.args[0], self.kwargs.get("sort_keys", True)
            values = tuple(spaces[key] for key in (sorted(spaces) if sort_keys else spaces))
        elif self.name in ("Tuple", "OneOf"):
            values = self.args[0]
        return [value for value in values if isinstance(value, Recipe)]


def _build(value: Any, library: ModuleType) -> Any:
    if isinstance(value, Recipe):
        return value.build(library)
    if isinstance(value, dict):
        return {key: _build(item, library) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_build(item, library) for item in value)
    return copy.deepcopy(value)


# --- fundamental spaces -----------------------------------------------------------------------


_WIDTHS: dict[int, Literal[16, 32, 64]] = {2: 16, 4: 32, 8: 64}


def _bounds(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    """Finite bounds of the dtype; integers are in the exact range of float64."""
    if dtype.kind == "f":
        limit = float(np.finfo(dtype).max) / 4
        return st.one_of(
            st.floats(-1e3, 1e3, width=_WIDTHS[dtype.itemsize]),
            st.sampled_from([-limit, 0.0, limit]),
        )
    if dtype.kind == "b":
        return st.integers(0, 1)
    info = np.iinfo(dtype)
    return st.integers(max(info.min, -EXACT), min(info.max, EXACT))


@st.composite
def boxes(draw: st.DrawFn) -> Recipe:
    """Boxes of any dtype: scalar or array bounds, none, one or both of them infinite."""
    dtype = draw(st.sampled_from(BOX_DTYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    size = int(np.prod(shape)) if draw(st.booleans()) else 1
    pairs = draw(st.lists(st.tuples(_bounds(dtype), _bounds(dtype)), min_size=size, max_size=size))
    source: Any = dtype if dtype.kind in "fb" else np.int64
    low = np.array([min(pair) for pair in pairs], source)
    high = np.array([max(pair) for pair in pairs], source)
    if dtype.kind not in "ub":
        open_sides = st.lists(st.booleans(), min_size=size, max_size=size)
        below, above = draw(open_sides), draw(open_sides)
        if dtype == np.int64:  # Gymnasium rounds these to 2**63, which wraps: its report 1699
            above = [False] * size
        # float64 holds the bounds of every integer dtype here, and infinity too
        wide = dtype if dtype.kind == "f" else np.dtype(np.float64)
        low = np.where(below, -np.inf, low).astype(wide) if any(below) else low
        high = np.where(above, np.inf, high).astype(wide) if any(above) else high
    if size == 1 and dtype.kind != "b":
        return Recipe("Box", (low[0].item(), high[0].item()), {"shape": shape, "dtype": dtype})
    if size == 1:
        return Recipe("Box", (int(low[0]), int(high[0]), shape, dtype))
    return Recipe("Box", (low.reshape(shape), high.reshape(shape)), {"dtype": dtype})


@st.composite
def discretes(draw: st.DrawFn) -> Recipe:
    """Discrete spaces with every integer dtype, also at the dtype's ends."""
    dtype = draw(st.sampled_from(INTEGERS))
    info = np.iinfo(dtype)
    n = draw(st.integers(1, 6))
    start = draw(
        st.one_of(
            st.just(0),
            st.integers(max(info.min, -10), 10),
            st.sampled_from([int(info.min), int(info.max) - n + 1]),
        )
    )
    if dtype == np.int64 and draw(st.booleans()):
        return Recipe("Discrete", (n,), {"start": start} if start else {})
    return Recipe("Discrete", (n,), {"start": start, "dtype": dtype})


@st.composite
def multi_binaries(draw: st.DrawFn) -> Recipe:
    """MultiBinary spaces by length and by shape."""
    shape = draw(st.one_of(st.integers(1, 5), st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    return Recipe("MultiBinary", (shape,))


@st.composite
def multi_discretes(draw: st.DrawFn) -> Recipe:
    """MultiDiscrete spaces of one or more axes, with every integer dtype and with starts."""
    dtype = draw(st.sampled_from(INTEGERS))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=2, max_side=3))
    nvec = draw(hnp.arrays(np.int64, shape, elements=st.integers(1, 5)))
    kwargs: dict[str, Any] = {} if dtype == np.int64 else {"dtype": dtype}
    if draw(st.booleans()):
        smallest = st.integers(max(int(np.iinfo(dtype).min), -10), 10)
        kwargs["start"] = draw(hnp.arrays(np.int64, shape, elements=smallest))
    return Recipe("MultiDiscrete", (nvec,), kwargs)


@st.composite
def texts(draw: st.DrawFn) -> Recipe:
    """Text spaces: default, ordered and unordered charsets, beyond ASCII too."""
    smallest = draw(st.integers(0, 3))
    largest = draw(st.integers(max(smallest, 1), 6))
    kwargs: dict[str, Any] = {"min_length": smallest}
    letters = st.text(st.sampled_from("abcXYZ019 é漢😀\n\"'"), min_size=1, max_size=8)
    charset = draw(st.one_of(st.none(), letters, letters.map(frozenset)))
    if charset is not None:
        kwargs["charset"] = charset
    return Recipe("Text", (largest,), kwargs)


def fundamentals(kinds: tuple[str, ...] = FUNDAMENTAL) -> st.SearchStrategy[Recipe]:
    """Spaces without members, of the given kinds."""
    each = (boxes, discretes, multi_binaries, multi_discretes, texts)
    drawn = dict(zip(FUNDAMENTAL, each, strict=True))
    return st.one_of([drawn[kind]() for kind in kinds if kind in drawn])


# --- composite spaces -------------------------------------------------------------------------

names = st.text(st.sampled_from("abcdef_"), min_size=1, max_size=4)


@st.composite
def dicts(draw: st.DrawFn, members: st.SearchStrategy[Recipe]) -> Recipe:
    """Dict spaces whose keys are sorted, or kept in order."""
    spaces = draw(st.dictionaries(names, members, min_size=1, max_size=3))
    return Recipe("Dict", (spaces,), draw(st.sampled_from([{}, {"sort_keys": False}])))


def listed(name: str, members: st.SearchStrategy[Recipe]) -> st.SearchStrategy[Recipe]:
    """Tuple and OneOf spaces."""
    return st.lists(members, min_size=1, max_size=3).map(lambda spaces: Recipe(name, (spaces,)))


@st.composite
def sequences(draw: st.DrawFn, members: st.SearchStrategy[Recipe]) -> Recipe:
    """Sequence spaces, stacked and not."""
    return Recipe("Sequence", (draw(members),), {"stack": draw(st.booleans())})


@st.composite
def graphs(draw: st.DrawFn, members: st.SearchStrategy[Recipe]) -> Recipe:
    """Graph spaces, with edges and without."""
    return Recipe("Graph", (draw(members), draw(st.one_of(st.none(), members))))


_COMPOSITE: dict[str, Callable[..., st.SearchStrategy[Recipe]]] = {
    "Dict": dicts,
    "Tuple": partial(listed, "Tuple"),
    "Sequence": sequences,
    "Graph": graphs,
    "OneOf": partial(listed, "OneOf"),
}


def recipes(kinds: tuple[str, ...] = KINDS, max_leaves: int = 5) -> st.SearchStrategy[Recipe]:
    """Spaces of the given kinds, nested.

    The members of Sequence and Graph are spaces of fixed size, as batches of others are not arrays.
    """
    nested = [kind for kind in kinds if kind in _COMPOSITE and kind not in DYNAMIC]

    def nest(leaves: st.SearchStrategy[Recipe]) -> st.SearchStrategy[Recipe]:
        if not nested:
            return leaves
        return st.recursive(
            leaves,
            lambda members: st.one_of([_COMPOSITE[kind](members) for kind in nested]),
            max_leaves=max_leaves,
        )

    inner = nest(fundamentals(kinds))
    dynamic = [_COMPOSITE[kind](inner) for kind in kinds if kind in DYNAMIC]
    return nest(st.one_of(inner, *dynamic)) if dynamic else inner


def fixed_recipes() -> st.SearchStrategy[Recipe]:
    """Spaces whose values have a fixed size: all kinds but Sequence and Graph."""
    return recipes(tuple(kind for kind in KINDS if kind not in DYNAMIC))


def spaces(kinds: tuple[str, ...] = KINDS, max_leaves: int = 5) -> st.SearchStrategy[Space[Any]]:
    """Draw spaces, nested ones too.

    They shrink to few members, small shapes and bounds around 0.

    Args:
        kinds: The names of the classes that may be drawn.
        max_leaves: The approximate maximum number of spaces without members in one.

    Returns:
        A strategy.

    Example:
        >>> from hypothesis import find
        >>> find(spaces(), lambda space: "Text" in repr(space)).max_length
        1
    """
    return recipes(kinds, max_leaves).map(lambda recipe: recipe.build())


# --- values -----------------------------------------------------------------------------------

# The elements of an array that are drawn one by one; the bounds of larger ones rarely differ.
_ONE_BY_ONE = 256
_LONGEST = 4


def values(space: Any) -> st.SearchStrategy[Any]:
    """Draw values of a space, of vecspaces or of Gymnasium.

    Unlike samples, they are often bounds, extremes and empty values, and shrink to simple ones.

    Args:
        space: The space; for a custom class of spaces, values are its samples.

    Returns:
        A strategy of values that the space contains, without infinite floats.

    Example:
        >>> from hypothesis import find
        >>> from vecspaces.spaces import Box
        >>> find(values(Box(-1, 5, (2,))), lambda value: value.sum() > 3).tolist()
        [0.0, 4.0]
    """
    drawn = _values(native_space(space))
    translate = foreign_values(space)
    return drawn if translate is None else drawn.map(translate)


def _values(space: Space[Any]) -> st.SearchStrategy[Any]:
    drawn: st.SearchStrategy[Any] = _VALUES.get(type(space), _samples)(space)
    return drawn


def _samples(space: Space[Any]) -> st.SearchStrategy[Any]:
    def sample(seed: int) -> Any:
        twin = copy.deepcopy(space)  # whose own generator does not change
        twin.seed(seed)
        return twin.sample()

    return st.integers(0, 2**32 - 1).map(sample)


def _of_box(space: Box) -> st.SearchStrategy[Any]:
    low, high = space.low, space.high
    uniform = low.size > 0 and bool((low == low.flat[0]).all() and (high == high.flat[0]).all())
    if uniform:
        element = _between(space.dtype, low.flat[0], high.flat[0])
        # Large arrays get one value in most places, which is drawn once.
        fill = st.nothing() if low.size <= _ONE_BY_ONE else None
        return hnp.arrays(space.dtype, space.shape, elements=element, fill=fill)
    if low.size > _ONE_BY_ONE:
        return _samples(space)
    each = [_between(space.dtype, *pair) for pair in zip(low.flat, high.flat, strict=True)]
    return _arrays(each, space.dtype, space.shape)


def _between(dtype: np.dtype[Any], low: Any, high: Any) -> st.SearchStrategy[Any]:
    if dtype.kind != "f":
        return st.integers(int(low), int(high))
    return st.floats(
        None if np.isneginf(low) else float(low),
        None if np.isposinf(high) else float(high),
        allow_nan=False,
        allow_infinity=False,
        width=_WIDTHS[dtype.itemsize],
    )


def _arrays(each: list[st.SearchStrategy[Any]], dtype: Any, shape: Any) -> st.SearchStrategy[Any]:
    """Draw arrays whose elements have a strategy each."""
    return st.tuples(*each).map(lambda drawn: np.array(drawn, dtype).reshape(shape))


def _of_multi_discrete(space: MultiDiscrete) -> st.SearchStrategy[Any]:
    pairs = zip(space.start.flat, space.nvec.flat, strict=True)
    each = [st.integers(int(start), int(start) + int(n) - 1) for start, n in pairs]
    return _arrays(each, space.dtype, space.shape)


def _of_text(space: Text) -> st.SearchStrategy[str]:
    if not space.character_list:
        return st.just("")
    letters = st.sampled_from(space.character_list)
    return st.lists(letters, min_size=space.min_length, max_size=space.max_length).map("".join)


def _of_sequence(space: Sequence) -> st.SearchStrategy[Any]:
    items = st.lists(_values(space.feature_space), max_size=_LONGEST)
    if not space.stack:
        return items.map(tuple)
    return items.map(lambda drawn: concatenate(space.feature_space, drawn, None))


@st.composite
def _of_graph(draw: st.DrawFn, space: Graph) -> GraphInstance:
    nodes = draw(st.lists(_values(space.node_space), min_size=1, max_size=_LONGEST))
    batch = concatenate(space.node_space, nodes, None)
    edges = []
    if space.edge_space is not None:
        edges = draw(st.lists(_values(space.edge_space), max_size=_LONGEST))
    if not edges or space.edge_space is None:
        return GraphInstance(batch, None, None)
    node = st.integers(0, len(nodes) - 1)
    links = draw(st.lists(st.tuples(node, node), min_size=len(edges), max_size=len(edges)))
    return GraphInstance(
        batch, concatenate(space.edge_space, edges, None), np.array(links, np.int32)
    )


_VALUES: dict[type[Space[Any]], Any] = {
    Box: _of_box,
    Discrete: lambda space: st.integers(int(space.start), int(space.start) + int(space.n) - 1).map(
        space.dtype.type
    ),
    MultiBinary: lambda space: hnp.arrays(space.dtype, space.shape, elements=st.integers(0, 1)),
    MultiDiscrete: _of_multi_discrete,
    Text: _of_text,
    Dict: lambda space: st.fixed_dictionaries(
        {key: _values(member) for key, member in space.spaces.items()}
    ),
    Tuple: lambda space: st.tuples(*map(_values, space.spaces)),
    Sequence: _of_sequence,
    Graph: _of_graph,
    OneOf: lambda space: st.one_of(
        [
            st.tuples(st.just(np.int64(number)), _values(member))
            for number, member in enumerate(space.spaces)
        ]
    ),
}
