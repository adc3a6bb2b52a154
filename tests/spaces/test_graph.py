"""Graph: seeds, sizes, masks, links, membership."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare import assert_identical
from tests.spaces.contract import LIBRARIES, SpaceContract
from tests.strategies import FUNDAMENTAL, Recipe, recipes, seeds
from vecspaces.spaces import Dict, Discrete, Graph, GraphInstance, Text, Tuple

MEMBERS = recipes((*FUNDAMENTAL, "Dict", "Tuple", "OneOf"), max_leaves=3)


def links(*pairs: tuple[int, int], dtype: Any = np.int32) -> Any:
    return np.array(pairs, dtype).reshape(-1, 2)


ROWS = np.zeros((3, 2), np.float32)
EDGES = np.array([0, 1])


class TestGraph(SpaceContract):
    seeds = (7, (1, 2, 3), [1, 2, 3])
    wrong_seeds = ((1, 2), "abc", (1, 2, [3]))
    wrong_limits = {"mask": (3, (None,), ((1,), None)), "probability": ("abc", ((1,), None))}
    refused = (
        lambda lib: lib.Graph(3, None),
        lambda lib: lib.Graph(lib.Discrete(2), 3),
        lambda lib: lib.Graph(None, None),
        *(
            lambda lib, sizes=sizes: lib.Graph(lib.Discrete(3), lib.Discrete(3)).sample(**sizes)
            for sizes in ({"num_nodes": 0}, {"num_nodes": -1}, {"num_edges": -1})
        ),
    )
    inside = tuple(
        GraphInstance(*parts)
        for parts in (
            (ROWS, None, None),
            (ROWS, EDGES, links((0, 2), (1, 1))),
            (ROWS, EDGES, links((0, 2), (1, 1), dtype=np.int64)),
            (ROWS, EDGES, links((0, 2), (1, 1), dtype=np.uint8)),
            (ROWS, np.array([], np.int64), links()),
            (ROWS, [0, np.int64(1)], links((0, 2), (1, 1))),
            (ROWS.astype(np.float16), None, None),
            (ROWS[:0], None, None),
            (list(ROWS), None, None),
            (tuple(ROWS), None, None),
            ([], None, None),
        )
    )
    outside = tuple(
        GraphInstance(*parts)
        for parts in (
            (ROWS, EDGES, links((0, 3), (1, 1))),
            (ROWS, EDGES, links((0, -1), (1, 1))),
            (ROWS, EDGES, links((0, 1))),
            (ROWS, EDGES, links((0, 1), (1, 1), dtype=np.float32)),
            (ROWS, EDGES, [[0, 1], [1, 1]]),
            (ROWS, np.array([0, 5]), links((0, 1), (1, 1))),
            (ROWS, EDGES, None),
            (ROWS, None, links((0, 1))),
            (ROWS[:, :1], None, None),
            (ROWS.astype(np.float64), None, None),
            (ROWS + 2, None, None),
            (ROWS[:0], np.array([0]), links((0, 0))),
            (None, None, None),
        )
    )
    outside_here = (
        None,
        (ROWS, None, None),
        GraphInstance(3, None, None),
        GraphInstance(ROWS, 3, links((0, 0))),
        GraphInstance(ROWS, np.array(1), links((0, 0))),
        GraphInstance(ROWS, np.array([0]), links((0, 0), dtype=object)),
        GraphInstance(ROWS, np.array([0]), np.array(3)),
        GraphInstance(ROWS, np.array([0]), np.zeros((1, 3), int)),
        GraphInstance(object(), object(), object()),
    )

    def make(self, lib: Any) -> Any:
        return lib.Graph(lib.Box(0, 1, (2,)), lib.Discrete(2))


class TestGraphWithoutEdges(SpaceContract):
    seeds = (7, (1, 2), [1, 2])
    wrong_seeds = ((1, 2, 3), "abc", (1, [2, 3]))
    outside = (GraphInstance(([1],), np.array([0]), links((0, 0))),)

    def make(self, lib: Any) -> Any:
        return lib.Graph(lib.Tuple([lib.Discrete(9)]), None)


@given(
    nodes=MEMBERS,
    edges=st.none() | MEMBERS,
    seed=seeds,
    num_nodes=st.integers(1, 4),
    num_edges=st.none() | st.integers(0, 4),
)
def test_graph_samples_of_any_size_are_gymnasiums(
    nodes: Recipe, edges: Recipe | None, seed: int, num_nodes: int, num_edges: int | None
) -> None:
    recipe = Recipe("Graph", (nodes, edges))
    ours, theirs = (recipe.build(library, seed) for library in LIBRARIES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # num_edges for a space without edges
        for _ in range(2):
            value = ours.sample(num_nodes=num_nodes, num_edges=num_edges)
            assert_identical(value, theirs.sample(num_nodes=num_nodes, num_edges=num_edges))
            assert ours.contains(value), ours.explain(value)


def test_graph_mask_of_one_nested_edge_holds_for_all() -> None:
    mask = np.array([0, 1], np.int8)
    for edge_space, limit in (
        (Dict(a=Discrete(2), b=Text(3)), {"a": mask, "b": None}),
        (Tuple([Discrete(2), Text(3)]), (mask, None)),
    ):
        space = Graph(Discrete(3), edge_space, seed=1)
        for _ in range(5):
            edges = space.sample(mask=(None, limit)).edges
            if edges is not None:
                assert (edges["a"] if isinstance(edges, dict) else edges[0]).all()


@pytest.mark.parametrize(
    ("edge_space", "limit"),
    [
        (Dict(a=Discrete(2)), {"b": None}),
        (Dict(a=Discrete(2)), (None,)),
        (Tuple([Discrete(2)]), (None, None)),
        (Tuple([Discrete(2)]), {"a": None}),
        (Discrete(2), np.array([1, 0, 1], np.int8)),
    ],
)
def test_graph_refuses_a_wrong_mask_of_one_edge_with_its_path(edge_space: Any, limit: Any) -> None:
    space = Graph(Discrete(3), edge_space, seed=1)
    with pytest.raises(AssertionError, match=r"^mask\[1\]"):
        space.sample(mask=(None, limit), num_nodes=9)
