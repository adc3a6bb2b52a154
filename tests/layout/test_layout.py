"""Layout: blocks that never overlap, an immutable value; Rows: what is written is read."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare import assert_identical, without_0d_arrays
from tests.strategies import Recipe, recipes, seeds
from vecspaces.layout import Layout, Mismatch, Rows
from vecspaces.memory import Arena
from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from vecspaces.vector.utils import concatenate, create_empty_array

ROBOT = Dict(
    camera=Box(0, 255, (4, 4, 3), np.uint8),
    arm=Dict(position=Box(-1, 1, (7,)), velocity=Box(-1, 1, (7,))),
    mode=Discrete(5),
    word=Text(5),
    buttons=Tuple((MultiBinary(8), Discrete(2))),
)


def bound(space: Space[Any], n: int = 3, *, spill: bool = False, **options: Any) -> Rows:
    layout = Layout.compile(space, n, **options)
    (rows,) = layout.bind(Arena(layout.size), spill=spill)
    return rows


@st.composite
def written(draw: st.DrawFn) -> tuple[Rows, list[Any]]:
    """Rows of a random space with a random value in each."""
    recipe: Recipe = draw(recipes())
    space = recipe.build(seed=draw(seeds))
    n = draw(st.integers(1, 4))
    values = [space.sample() for _ in range(n)]
    capacity = draw(st.sampled_from([0, 256, 65536]))  # everything, something, nothing spills
    rows = bound(space, n, spill=True, variable_capacity=capacity)
    for row, value in enumerate(values):
        rows.write(row, value)
    return rows, values


def assert_same(ours: Any, theirs: Any) -> None:
    """Assert equality to the last bit, of rows of batches: where 0-d arrays are scalars."""
    assert_identical(*map(without_0d_arrays, (ours, theirs)))


def like(rows: Rows) -> Rows:
    """Rows of the same layout in memory of their own."""
    (others,) = rows.layout.bind(Arena(rows.layout.size), spill=True)
    return others


def batch_of(rows: Rows, values: list[Any]) -> Any:
    space = rows.layout.space
    return concatenate(space, values, create_empty_array(space, len(values)))


# --- the layout -------------------------------------------------------------------------------


@given(recipes(), st.integers(0, 5), st.integers(1, 3), st.sampled_from([0, 64, 640]))
def test_layout_blocks_are_aligned_and_never_overlap(
    recipe: Recipe, n: int, slots: int, offset: int
) -> None:
    layout = Layout.compile(recipe.build(), n, slots=slots, offset=offset)
    ends = [leaf.offset + slots * n * leaf.nbytes for leaf in layout.leaves]
    for leaf, end in zip(layout.leaves, ends, strict=True):
        assert leaf.offset % 64 == 0
        assert offset <= leaf.offset <= end <= offset + layout.size
    for end, leaf in zip(ends, layout.leaves[1:], strict=False):
        assert end <= leaf.offset
    assert layout.size % 64 == 0
    assert layout.nbytes == sum(leaf.nbytes for leaf in layout.leaves)


@given(recipes(), st.integers(1, 3), st.integers(1, 3))
def test_layout_is_a_value(recipe: Recipe, n: int, slots: int) -> None:
    options = {"slots": slots, "variable_capacity": 1000, "offset": 64}
    layout = Layout.compile(recipe.build(), n, **options)
    same = Layout.compile(recipe.build(), n, **options)
    assert layout == same
    assert hash(layout) == hash(same)
    assert len({layout, same, pickle.loads(pickle.dumps(layout))}) == 1
    assert layout != Layout.compile(recipe.build(), n + 1, **options)
    assert layout != Layout.compile(Box(0, 7, (1, 2, 3, 4)), n, **options)
    with pytest.raises(AttributeError, match=r"cannot (assign|delete)"):
        del layout.leaves  # type: ignore[misc]
    with pytest.raises(AttributeError):
        layout.leaves[0].offset = 3  # type: ignore[misc]


def test_layout_ring_shows_all_slots() -> None:
    layout = Layout.compile(Dict(a=Box(0, 1, (2,)), b=Tuple((Discrete(3),))), 4, slots=3)
    arena = Arena(layout.size)
    slots = layout.bind(arena)
    for slot, rows in enumerate(slots):
        rows.write_batch({"a": np.full((4, 2), slot, np.float32), "b": ([slot] * 4,)})
    ring = layout.ring(arena)
    assert ring["a"].shape == (3, 4, 2)
    assert ring["b"][0].tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert np.shares_memory(ring["a"], slots[0].read()["a"])
    assert layout.ring(arena, 2)["a"].shape == (2, 4, 2)


# --- the rows: every space ----------------------------------------------------------------------


@given(written(), st.data())
def test_rows_give_the_values_by_every_way(
    case: tuple[Rows, list[Any]], data: st.DataObject
) -> None:
    rows, values = case
    n = len(values)
    low, half = data.draw(st.integers(0, n)), n // 2
    batch = batch_of(rows, values)
    assert_same(rows.read(), batch)
    assert_same(rows.read(copy=True), batch)
    assert_same([rows.item(row) for row in range(n)], values)
    assert_same([*rows.reader(low, n)()], values[low:])
    # all rows at once, as a list or as a batch
    as_list, as_batch, travelled = like(rows), like(rows), like(rows)
    empty = as_list.reader(0, low)()
    assert_identical(like(rows).read(), create_empty_array(rows.layout.space, n))
    as_list.writer(low, n)(values[low:])
    assert_same([*as_list.reader(0, n)()], [*empty, *values[low:]])
    as_batch.write_batch(batch)
    assert_same(as_batch.read(), batch)
    # by way of another process: in parts, and what spilled
    second_half = slice(half, n)
    travelled.load(second_half, pickle.loads(pickle.dumps(rows.export(second_half))))
    assert_same([*travelled.reader(half, n)()], values[half:])
    arena = Arena(rows.layout.size)
    (worker,), (caller,) = (rows.layout.bind(arena, spill=True) for _ in range(2))
    worker.writer(0, n)(values)
    for part in (range(half), range(half, n)):
        spilled = worker.take_spilled(part.start, part.stop)
        assert all(row in part for _, row, _ in spilled)
        caller.put_spilled(pickle.loads(pickle.dumps(spilled)))
    assert worker.take_spilled(0, n) == []
    assert_same([*caller.reader(0, n)()], values)


@given(written(), st.data())
def test_rows_read_write_and_copy_chosen_ones(
    case: tuple[Rows, list[Any]], data: st.DataObject
) -> None:
    rows, values = case
    n = len(values)
    chosen = data.draw(st.lists(st.integers(0, n - 1), unique=True))
    index = np.array(chosen, int)
    batch = batch_of(rows, [values[row] for row in chosen])
    assert_same(rows.read(index=index), batch)
    written_, copied = like(rows), like(rows)
    empty = like(rows).reader(0, n)()
    written_.write_batch(batch, index)
    copied.copy_rows(rows, index)
    for row in range(n):
        expected = values[row] if row in chosen else empty[row]
        assert_same(written_.item(row), expected)
        assert_same(copied.item(row), expected)


@given(recipes(), seeds, st.integers(0, 255))
def test_rows_that_are_torn_are_read(recipe: Recipe, seed: int, byte: int) -> None:
    """A worker that dies while it writes leaves anything in blocks of a fixed size."""
    space = recipe.build()
    layout = Layout.compile(space, 2)
    arena = Arena(layout.size)
    (rows,) = layout.bind(arena)
    torn = np.random.default_rng(seed).integers(0, 256, layout.size, dtype=np.uint8)
    if layout.has_variable:  # whose size is written last
        return
    arena.buffer[:] = torn if byte else 255
    rows.read()
    rows.reader(0, 2)()


# --- the rows: copies, casts, errors -------------------------------------------------------------


def test_rows_give_values_to_keep() -> None:
    rows = bound(ROBOT, 2)
    rows.write(0, ROBOT.sample())
    item, (first, _) = rows.item(0), rows.reader(0, 2)()
    assert not np.shares_memory(rows.read(index=slice(0, 2))["mode"], rows.read()["mode"])
    expected = rows.reader(0, 1)()[0]
    rows.write(0, ROBOT.sample())
    assert_identical(item, expected)
    assert_identical(first, expected)
    first["arm"]["position"][:] = 0


def test_rows_decode_arrays_that_are_writable_and_alive() -> None:
    space = Graph(Box(0, 1, (2,)), Discrete(3), seed=1)
    rows = bound(space)
    rows.write(0, space.sample(num_nodes=3, num_edges=2))
    graph = rows.item(0)
    rows.write(0, space.sample())
    for array in graph:
        assert array.flags.writeable
        assert array.flags.aligned
        array[:] = 0


def test_rows_let_a_value_grow_out_of_its_place_and_back() -> None:
    rows = bound(Sequence(Box(0, 1, (100,))), 1, spill=True, variable_capacity=1000)
    small = (np.ones(100, np.float32),)
    for value in (small, small * 5, small, small * 3, ()):
        rows.write(0, value)
        assert_identical(rows.item(0), value)
    assert rows.take_spilled(0, 1) == []
    rows.write(0, small * 5)
    rows.clear([0])
    assert rows.item(0) == () and rows.take_spilled(0, 1) == []


def test_rows_whose_spill_was_lost_read_as_empty() -> None:
    rows = bound(Sequence(Box(0, 1, (100,))), 1, spill=True, variable_capacity=0)
    rows.write(0, (np.ones(100, np.float32),))
    ((leaf, row, data),) = rows.take_spilled(0, 1)
    assert (leaf, row) == (0, 0)
    assert len(data) >= 400
    assert rows.item(0) == ()


def test_rows_without_spill_name_the_size_needed() -> None:
    space = Dict(a=Sequence(Box(0, 1, (100,))), b=Sequence(Discrete(2)))
    value = {"a": (np.ones(100, np.float32),), "b": ()}
    with pytest.raises(ValueError, match=r"row 1: \['a'\].*variable_capacity=\d+ or more") as info:
        bound(space, variable_capacity=128).write(1, value)
    needed = int(str(info.value).split("variable_capacity=")[1].split()[0])
    bound(space, variable_capacity=needed).write(1, value)
    with pytest.raises(ValueError, match="variable_capacity"):
        bound(space, variable_capacity=needed - 64).write(1, value)


def test_rows_cast_other_dtypes_and_containers() -> None:
    rows, right = bound(ROBOT), ROBOT.sample()
    others = {
        "mode": 3,
        "buttons": [[1] * 8, True],
        "arm": {"position": [0] * 7, "velocity": np.zeros(7)},
    }
    rows.write(1, {**right, **others})
    expected = rows.item(1)
    assert expected["mode"] == 3 and expected["buttons"][0].tolist() == [1] * 8
    rows.writer(0, 3)([right, {**right, **others}, right])
    assert_identical(rows.reader(0, 3)(), [right, expected, right])


class Foreign:
    """A graph of another library."""

    nodes, edges, edge_links = np.zeros((2, 2)), [2], [[0, 1]]


def test_rows_cast_parts_of_values_of_variable_size() -> None:
    graph = GraphInstance(np.zeros((2, 2), np.float32), np.array([2]), np.array([[0, 1]]))
    empty = (
        GraphInstance(
            np.zeros((3, 0, 2), np.float32), np.zeros(0, int), np.zeros((0, 2), np.int32)
        ),
        (np.zeros(0, np.float32),) * 4,
    )
    cases: list[tuple[Space[Any], Any, Any]] = [
        (Sequence(Dict(x=Box(0, 1))), [{"x": [0.5]}], ({"x": np.array([0.5], np.float32)},)),
        (Graph(Box(0, 1, (2,)), Discrete(3)), Foreign(), graph),
        (Tuple((Graph(Box(0, 1, (0, 2)), Discrete(3)), Sequence(Box(0, 1, (0,))))), empty, empty),
    ]
    for space, value, expected in cases:
        rows = bound(space)
        rows.write(0, value)
        assert_identical(rows.item(0), expected)


def test_rows_whose_branch_does_not_fit_read_as_empty() -> None:
    rows = bound(OneOf([Discrete(2), Box(0, 1, (2,))]))
    rows.write(2, (0, 1))
    with pytest.raises(Mismatch):
        rows.write(2, (1, np.zeros(3)))
    assert rows.item(2) == ()


def test_rows_give_a_graph_without_edges_back() -> None:
    layout = Layout.compile(Graph(Discrete(3), Discrete(3)), 1)
    (rows,) = layout.bind(bytearray(layout.size))
    rows.write(0, GraphInstance(np.array([1, 2]), None, None))
    assert rows.item(0).edges is None and rows.item(0).edge_links is None
