"""Arena: zeroed, aligned, shared without a name, and gone with its last user."""

from __future__ import annotations

import gc
import os
import pickle
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vecspaces import system
from vecspaces.memory import ALIGNMENT, Arena

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="no file descriptors to look at")


@pytest.fixture(params=[Arena, Arena.shared], ids=["private", "shared"])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_memory_has_the_size_asked_for_is_zero_aligned_and_writable(make: Any) -> None:
    for nbytes in (0, 1, 63, 64, 65, 100_000):
        arena = make(nbytes)
        assert arena.nbytes == arena.buffer.nbytes == nbytes
        assert not arena.buffer.any()
        assert nbytes == 0 or arena.buffer.ctypes.data % ALIGNMENT == 0
        arena.buffer[:] = 7
        assert (arena.buffer == 7).all()
    with pytest.raises(ValueError, match="nbytes: expected a size of at least 0, found -1"):
        make(-1)


def test_views_share_the_memory_and_lie_inside(make: Any) -> None:
    assert make(0).view("float32", (0, 4)).shape == (0, 4)
    arena = make(128)
    view = arena.view("float32", (2, 3), offset=64)
    view[1, 2] = 5
    assert view.dtype == np.float32
    assert arena.view(np.float32, 6, 64)[5] == 5
    assert arena.buffer[64 + 20 : 64 + 24].any()
    for shape, offset in [((), -1), ((), 121), ((), 1000), (-1, 0), ((2, -1), 0), ((-2, -2), 0)]:
        with pytest.raises(ValueError, match="inside the 128 bytes"):
            arena.view("float64", shape, offset)


def test_views_outlive_the_arena_and_its_closing(make: Any) -> None:
    arena = make(64)
    view = arena.view("int64", 8)
    arena.close()
    arena.close()
    with pytest.raises(ValueError, match="closed"):
        _ = arena.buffer
    del arena
    gc.collect()
    view[:] = 3
    assert view.sum() == 24


@on_posix
def test_the_descriptor_does_not_survive_exec_and_is_closed_with_the_arena() -> None:
    arena = Arena.shared(64)
    fd = arena.handle
    assert isinstance(fd, int)
    assert not os.get_inheritable(fd)
    del arena
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@on_posix
def test_without_memfd_an_unlinked_private_file_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(system, "MEMFD", False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arena = Arena.shared(1000)
    assert arena.handle is not None
    status = os.fstat(arena.handle)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_nlink == 0
    assert not list(tmp_path.iterdir())
    assert not os.get_inheritable(arena.handle)
    other = Arena.attach(os.dup(arena.handle), 1000)
    other.buffer[999] = 9
    assert arena.buffer[999] == 9


@on_posix
def test_attach_owns_the_descriptor_even_when_it_fails() -> None:
    arena = Arena.shared(64)
    assert arena.handle is not None
    duplicate = os.dup(arena.handle)
    with pytest.raises(ValueError, match="mmap"):
        Arena.attach(duplicate, 1 << 20)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(duplicate)
    with pytest.raises(TypeError, match="expected a file descriptor, found 'name'"):
        Arena.attach("name", 64)


@on_posix
def test_a_received_descriptor_maps_the_same_memory_and_is_not_inherited() -> None:
    arena = Arena.shared(256)
    received = os.dup(arena.handle)
    os.set_inheritable(received, True)  # as one that was sent over a socket
    other = Arena.attach(received, 256)
    assert not os.get_inheritable(received)
    other.view("int32", 64)[:] = np.arange(64)
    assert arena.view("int32", 64)[63] == 63


def test_an_arena_cannot_be_pickled_by_mistake(make: Any) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(make(8))
