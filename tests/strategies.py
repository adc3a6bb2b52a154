"""Strategies that our own tests alone need, besides those of `vecspaces.testing.strategies`.

`masks` draws what fits a recipe, `junk` what belongs to no space.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vecspaces.testing.strategies import (
    BOX_DTYPES,
    COMPOSITE,
    DYNAMIC,
    FLOATS,
    FUNDAMENTAL,
    INTEGERS,
    Recipe,
    boxes,
    fixed_recipes,
    fundamentals,
    names,
    recipes,
    seeds,
    texts,
)

__all__ = [
    "BOX_DTYPES", "COMPOSITE", "DYNAMIC", "EXTREMES", "FLOATS", "FUNDAMENTAL", "INTEGERS", "Recipe",
    "boxes", "fixed_recipes", "fundamentals", "junk", "masked_recipes", "masks", "names", "recipes",
    "seeds", "texts",
]  # fmt: skip

# --- masks and probabilities ------------------------------------------------------------------


def _binary(n: int) -> st.SearchStrategy[Any]:
    return hnp.arrays(np.int8, n, elements=st.integers(0, 1))


def _weights(n: int) -> st.SearchStrategy[Any]:
    def normalise(counts: Any) -> Any:
        return (counts / counts.sum()).astype(np.float64)

    counts = hnp.arrays(np.int64, n, elements=st.integers(0, 4))
    return counts.filter(lambda drawn: drawn.sum() > 0).map(normalise)


def _each(nvec: Any, draw_one: Any) -> st.SearchStrategy[Any]:
    """One mask for each entry of `nvec`, in tuples nested as deep as it has axes."""
    if nvec.ndim == 0:
        return draw_one(int(nvec))
    return st.tuples(*[_each(row, draw_one) for row in nvec])


def masks(recipe: Recipe, word: str = "mask") -> st.SearchStrategy[Any]:
    """Arguments for `sample(mask=...)`, or for `sample(probability=...)` with that `word`.

    None appears wherever a member takes no mask, and now and then where it does.
    """
    draw_one = _binary if word == "mask" else _weights
    space = recipe.build()
    if recipe.name == "Discrete":
        return draw_one(int(space.n))
    if recipe.name == "MultiDiscrete":
        return _each(space.nvec, draw_one)
    if recipe.name == "MultiBinary":
        if word == "mask":
            return hnp.arrays(np.int8, space.shape, elements=st.integers(0, 2))
        return hnp.arrays(np.float64, space.shape, elements=st.floats(0, 1))
    if recipe.name == "Text":
        lengths = st.one_of(st.none(), st.integers(space.min_length, space.max_length))
        letters = draw_one(len(space.character_list))
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
    arrays = hnp.arrays(
        st.one_of(
            hnp.scalar_dtypes(),
            st.just(np.dtype(object)),
            st.just(np.dtype([("field", "i4")])),
        ),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
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
