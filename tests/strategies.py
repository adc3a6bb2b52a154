"""Hypothesis strategies: spaces of all ten kinds, nested, and values of a space.

`spaces()` draws spaces, and `values(space)` draws values of a space. `recipes()` draws a space as a
`Recipe`, the class's name and its constructor arguments, from which the same space can be built in
Gymnasium. `masks` draws what fits a recipe, `junk` what belongs to no space.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vecspaces import spaces as our_spaces

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
        names = {self.name}
        for member in self.members:
            names |= member.kinds
        return names

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
    strategies = (boxes, discretes, multi_binaries, multi_discretes, texts)
    drawn = dict(zip(FUNDAMENTAL, strategies, strict=True))
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


# --- masks and probabilities ------------------------------------------------------------------


def _binary(n: int) -> st.SearchStrategy[Any]:
    return hnp.arrays(np.int8, n, elements=st.integers(0, 1))


def _weights(n: int) -> st.SearchStrategy[Any]:
    def normalise(counts: Any) -> Any:
        return (counts / counts.sum()).astype(np.float64)

    counts = hnp.arrays(np.int64, n, elements=st.integers(0, 4))
    return counts.filter(lambda drawn: drawn.sum() > 0).map(normalise)


def _nested(nvec: Any, draw_limit: Any) -> st.SearchStrategy[Any]:
    """One mask for each entry of `nvec`, in tuples nested as deep as it has axes."""
    if nvec.ndim == 0:
        return draw_limit(int(nvec))
    return st.tuples(*[_nested(row, draw_limit) for row in nvec])


def masks(recipe: Recipe, word: str = "mask") -> st.SearchStrategy[Any]:
    """Arguments for `sample(mask=...)`, or for `sample(probability=...)` with that `word`.

    None appears wherever a member takes no mask, and now and then where it does.
    """
    draw_limit = _binary if word == "mask" else _weights
    space = recipe.build()
    if recipe.name == "Discrete":
        return draw_limit(int(space.n))
    if recipe.name == "MultiDiscrete":
        return _nested(space.nvec, draw_limit)
    if recipe.name == "MultiBinary":
        if word == "mask":
            return hnp.arrays(np.int8, space.shape, elements=st.integers(0, 2))
        return hnp.arrays(np.float64, space.shape, elements=st.floats(0, 1))
    if recipe.name == "Text":
        lengths = st.one_of(st.none(), st.integers(space.min_length, space.max_length))
        letters = draw_limit(len(space.character_list))
        if word == "mask" and space.min_length > 0:
            letters = letters.filter(lambda mask: mask.any())
        return st.tuples(lengths, st.one_of(st.none(), letters))
    if recipe.name == "Dict":
        members = zip(space, recipe.members, strict=True)
        return st.fixed_dictionaries({key: _maybe(member, word) for key, member in members})
    if recipe.name in ("Tuple", "OneOf"):
        return st.tuples(*[_maybe(member, word) for member in recipe.members])
    if recipe.name == "Sequence":
        lengths = st.one_of(
            st.none(),
            st.integers(0, 4),
            hnp.arrays(np.int64, st.integers(1, 3), elements=st.integers(0, 4)),
        )
        return st.tuples(lengths, _maybe(recipe.members[0], word))
    if recipe.name == "Graph":
        return st.just((None, None))
    return st.none()


def _maybe(recipe: Recipe, word: str) -> st.SearchStrategy[Any]:
    return st.one_of(masks(recipe, word), st.none())


@st.composite
def masked_recipes(
    draw: st.DrawFn, word: str = "mask", recipes_: st.SearchStrategy[Recipe] | None = None
) -> tuple[Recipe, Any]:
    """A recipe together with a mask, or a probability, that fits it."""
    recipe = draw(recipes() if recipes_ is None else recipes_)
    return recipe, draw(masks(recipe, word))


# --- values that belong to no space -----------------------------------------------------------

EXTREMES = [
    *(int(bound) for dtype in INTEGERS for bound in (np.iinfo(dtype).min, np.iinfo(dtype).max)),
    2**53,
    -(2**53) - 1,
    10**30,
    -(10**30),
]


def junk(max_leaves: int = 6) -> st.SearchStrategy[Any]:
    """Any Python objects: scalars of all kinds, arrays of all dtypes, containers of them."""
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from(EXTREMES),
        st.floats(),
        st.complex_numbers(),
        st.text(max_size=3),
        st.binary(max_size=3),
        st.builds(object),
        st.sampled_from([int, np.int8, Ellipsis, NotImplemented, print, slice(1), range(3)]),
    )
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    arrays = st.one_of(
        hnp.arrays(st.one_of(hnp.scalar_dtypes(), st.just(np.dtype([("field", "i4")]))), shapes),
        hnp.arrays(object, shapes, elements=scalars),
    )
    numpy_scalars = hnp.scalar_dtypes().flatmap(
        lambda dtype: hnp.from_dtype(dtype).filter(lambda x: x is not None)
    )
    return st.recursive(
        st.one_of(scalars, arrays, numpy_scalars),
        lambda items: st.one_of(
            st.lists(items, max_size=4),
            st.lists(items, max_size=4).map(tuple),
            st.dictionaries(st.one_of(names, st.integers()), items, max_size=3),
        ),
        max_leaves=max_leaves,
    )
