"""Arena: zeroed, aligned, shared without a name, and gone with its last user."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from vecspaces import system
from vecspaces.memory import Arena

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="no file descriptors to look at")


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
