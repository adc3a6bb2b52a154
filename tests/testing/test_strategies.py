"""Strategies: every value lies in its space, and what fails shrinks to something simple."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from vecspaces.spaces import (
    Box,
    Discrete,
    Graph,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from vecspaces.testing import strategies
from vecspaces.testing.strategies import KINDS, Recipe, recipes, spaces, values


@given(st.data(), spaces())
def test_values_lie_in_their_space(data: Any, space: Space[Any]) -> None:
    value = data.draw(values(space))
    assert space.explain(value) is None


@given(st.data(), recipes())
def test_values_of_gymnasiums_spaces_lie_in_these(data: Any, recipe: Recipe) -> None:
    value = data.draw(values(recipe.build()))
    theirs = recipe.build(gymnasium.spaces)
    translated = data.draw(values(theirs))
    assert theirs.contains(translated)
    if "Graph" not in recipe.kinds:
        assert theirs.contains(value)


@given(st.data())
def test_drawing_values_leaves_the_space_alone(data: Any) -> None:
    space = Box(np.zeros(300), np.arange(300.0), seed=3)
    twin = Box(np.zeros(300), np.arange(300.0), seed=3)
    assert data.draw(values(space)) in space
    assert (space.sample() == twin.sample()).all()


def test_every_kind_of_space_is_drawn_and_no_other() -> None:
    drawn: set[str] = set()
    pairs = {kind: recipes((kind, "Discrete"), max_leaves=2) for kind in KINDS}

    @settings(max_examples=40)
    @given(st.fixed_dictionaries(pairs))
    def draw(found: dict[str, Recipe]) -> None:
        for kind, recipe in found.items():
            assert recipe.kinds <= {kind, "Discrete"}
            drawn.update(recipe.kinds & {kind})

    draw()
    assert drawn == set(KINDS)


SHRUNK: dict[str, tuple[Space[Any], Any, Any]] = {
    "Box": (Box(-9, 9, (3,), np.int8), lambda x: x.any(), [0, 0, 1]),
    "float": (Box(-np.inf, np.inf, (2,)), lambda x: (x > 2).any(), [0, 3]),
    "high": (Box(0, 7.5, (1,)), lambda x: x[0] == 7.5, [7.5]),
    "bounds": (Box(np.array([0, 5]), np.array([1, 9]), dtype=np.int64), lambda x: True, [0, 5]),
    "MultiDiscrete": (MultiDiscrete([3, 4]), lambda x: x.sum() > 1, [0, 2]),
    "Text": (Text(9, charset="xyz"), lambda x: len(x) > 1, "xx"),
    "Sequence": (Sequence(Discrete(3)), lambda x: len(x) > 1, (0, 0)),
    "OneOf": (OneOf((Discrete(3), Text(3))), lambda x: x[0] == 1, (1, "0")),
}


@pytest.mark.parametrize("name", SHRUNK)
def test_values_shrink_to_simple_ones(name: str) -> None:
    space, condition, expected = SHRUNK[name]
    found = find(values(space), condition, settings=settings(database=None, max_examples=2000))
    if name == "Text":
        found = found.replace(min(found), "x")
    if isinstance(found, np.ndarray):
        assert sorted(found.tolist()) == sorted(expected)
    else:
        assert found == expected


def test_a_graph_shrinks_to_one_node_and_one_loop() -> None:
    space = Graph(Box(0, 1, (2,)), Discrete(3))
    found = find(values(space), lambda graph: graph.edges is not None)
    assert found.nodes.tolist() == [[0, 0]]
    assert (found.edges.tolist(), found.edge_links.tolist()) == ([0], [[0, 0]])


class Even(Space[int]):
    def sample(self, mask: Any = None, probability: Any = None) -> int:
        return 2 * int(self.np_random.integers(5))

    def contains(self, x: Any) -> bool:
        return isinstance(x, int) and x in range(0, 10, 2)


@given(values(Tuple((Even(), Discrete(2)))))
def test_values_of_a_space_of_ones_own_are_samples(value: Any) -> None:
    assert value[0] % 2 == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    import vecspaces.testing

    with pytest.raises(AttributeError, match="no attribute 'strategie'"):
        vecspaces.testing.strategie  # type: ignore[attr-defined]  # noqa: B018
    assert strategies.spaces is spaces
