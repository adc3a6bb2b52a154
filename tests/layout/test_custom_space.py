"""Spaces of third parties: carried whole, or by what they say that their values are made of."""

from __future__ import annotations

import functools
import importlib.util
import pickle
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from vecspaces.layout import Array, Mismatch, Variable, describe
from vecspaces.layout.packing import dump, load
from vecspaces.pickling import dumps
from vecspaces.spaces import Dict, Space, Tuple
from vecspaces.vector.utils import (
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_space.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, as it is before it registers anything."""
    specification = importlib.util.spec_from_file_location("custom_space", EXAMPLE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "custom_space", module)  # where pickles look for its classes
    monkeypatch.syspath_prepend(EXAMPLE.parent)  # and where workers do
    specification.loader.exec_module(module)
    return module


def nested(example: ModuleType) -> Space[Any]:
    matrix = example.ComplexMatrix(2, 3)
    return Dict(deeper=Tuple((matrix, Dict(x=matrix))), plain=matrix, seed=1)


@pytest.mark.parametrize("registered", [False, True], ids=["whole", "by its bytes"])
def test_custom_space_works_in_everything(example: ModuleType, registered: bool) -> None:
    if registered:
        example.register()
    space = nested(example)
    items = [space.sample() for _ in range(3)]
    batched = batch_space(space, 3)
    batch = concatenate(space, items, create_empty_array(space, 3))
    assert batch in batched
    assert batched.sample() in batched
    assert_identical(list(iterate(batched, batch)), items)
    memory = create_shared_memory(space, 3)
    for row, item in enumerate(items):
        write_to_shared_memory(space, row, item, memory)
    assert_identical(read_from_shared_memory(space, memory, 3), batch)
    assert isinstance(batch["plain"], np.ndarray if registered else tuple)
    sample = batched.sample()
    memory.rows.write_batch(sample)
    assert_identical(list(memory.rows.read()["plain"]), list(sample["plain"]))
    assert memory.layout.fixed is registered


def test_custom_space_rolls_out_the_same_either_way(example: ModuleType) -> None:
    whole = example.roll()
    example.register()
    by_its_bytes = example.roll()
    assert by_its_bytes.shape == (4, 2, 2)
    np.testing.assert_allclose(by_its_bytes, np.stack(whole), atol=1e-6)


class Fraction(Space[Any]):
    """Pairs of integers, as a class of their own has them."""


PAIR = struct.Struct("qq")


class Huge(Space[Any]):
    """Integers of any size."""


@describe.register(Fraction)
def _(space: Fraction) -> Variable:
    def encode(value: Any) -> bytes:
        return PAIR.pack(value.numerator, value.denominator)

    def decode(data: Any) -> Any:
        return complex(*PAIR.unpack(data))

    return Variable(encode, decode, lambda fill: 0j, PAIR.size)


@describe.register(Huge)
def _(space: Huge) -> Variable:
    return Variable(
        lambda value: value.to_bytes(value.bit_length() // 8 + 1, "little"),
        lambda data: int.from_bytes(data, "little"),
        lambda fill: 0,
    )


def test_describe_says_how_a_value_is_written_and_read() -> None:
    memory = create_shared_memory(Tuple((Fraction(), Huge())), 2)
    write_to_shared_memory(memory.layout.space, 1, (7, 10**50), memory)
    assert memory.rows.read() == ((0j, 7 + 1j), (0, 10**50))


def test_variable_refuses_a_value_above_its_bound() -> None:
    space = type("LongSpace", (Space,), {"__eq__": lambda self, other: True})()
    describe.register(type(space), lambda space: Variable(bytes, bytes, most=8))
    memory = create_shared_memory(Dict(x=space), 2)
    assert memory.layout.leaves[0].shape == (16,) and not memory.layout.has_variable
    write_to_shared_memory(memory.layout.space, 0, {"x": b"8 bytes."}, memory)
    with pytest.raises(ValueError, match=r"row 1: \['x'\]: .* 9 bytes, .* 8; pass most=9 or more"):
        write_to_shared_memory(memory.layout.space, 1, {"x": b"9 bytes.."}, memory)
    assert memory.rows.read() == {"x": (b"8 bytes.", None)}


def test_array_keeps_the_fields_of_a_dtype() -> None:
    dtype = np.dtype([("position", ">f4", (2,)), ("hit", "?")])
    record = type("RecordSpace", (Space,), {"__eq__": lambda self, other: True})()
    describe.register(type(record), lambda space: Array(dtype, (3,)))
    value = np.zeros(3, dtype)
    value["position"], value["hit"] = np.arange(6).reshape(3, 2), [True, False, True]
    space = Dict(x=record)
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, {"x": value}, memory)
    batch = read_from_shared_memory(space, memory, 2)["x"]
    assert batch.dtype == dtype
    assert (batch[1] == value).all() and not batch[0]["hit"].any()
    assert (concatenate(space, [{"x": value}] * 2, None)["x"][1] == value).all()


def test_array_entry_of_fields_does_not_change_with_its_row() -> None:
    space = type("EntrySpace", (Space,), {"__eq__": lambda self, other: True})()
    describe.register(type(space), lambda space: Array(np.dtype([("x", "i4")]), ()))
    memory = create_shared_memory(space, 2)
    read = memory.rows.item(0), memory.rows.reader(0, 2)()[0]
    write_to_shared_memory(space, 0, np.array((7,), [("x", "i4")]), memory)
    assert [value["x"] for value in read] == [0, 0] and memory.rows.item(0)["x"] == 7


def test_variable_that_cannot_encode_is_a_mismatch_with_its_cause() -> None:
    memory = create_shared_memory(Dict(f=Fraction()), 2)
    with pytest.raises(Mismatch, match=r"row 1: \['f'\]: .*found 'half' .*AttributeError") as info:
        write_to_shared_memory(memory.layout.space, 1, {"f": "half"}, memory)
    assert isinstance(info.value.__cause__, AttributeError)


def test_variable_sends_by_value_what_has_no_name() -> None:
    class Local:
        value = 42

    memory = create_shared_memory(Space())
    write_to_shared_memory(memory.layout.space, 0, [Local(), lambda: 43], memory)
    ((instance, function),) = memory.rows.read()
    assert (instance.value, function()) == (42, 43)


class Once:
    """Gives away what it holds when it is pickled, as a connection does."""

    def __init__(self) -> None:
        self.held = ["it"]

    def __reduce__(self) -> Any:
        return str, (self.held.pop(),)


def test_dumps_calls_the_methods_of_a_value_once() -> None:
    """Also if another part of the value is pickled by value."""
    for around in (lambda: 43, np.zeros(3), Fraction, None):
        assert load(bytearray(dump([np.zeros(2), Once(), around])))[1] == "it"
        assert pickle.loads(dumps({0: Once(), 1: around}))[0] == "it"


def test_dump_lays_arrays_beside_the_pickle() -> None:
    value = {"a": np.arange(1000), "b": [np.zeros((0, 3)), np.float32(1)], "c": functools.partial}
    data = bytearray(dump(value))
    again = load(data)
    assert_identical(again["a"], value["a"])
    assert_identical(again["b"], value["b"])
    assert np.shares_memory(again["a"], np.frombuffer(data, np.uint8))
    again["a"][0] = 5
