"""Files that are replaced when complete: after an error or on a full disk, the old file stays."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# How many characters of a name its temporary name keeps: most systems allow 255 bytes per name, and
# a character has up to four.
_STEM = 32


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name; that file replaces `path` if the block ends without an error.

    The target of a symbolic link is replaced, not the link. Devices, pipes, and files in folders
    without write permission are written in place.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "result.json")
        ...     with replacing(path) as file:
        ...         _ = file.write_text("{}")
        ...     path.read_text()
        '{}'
    """
    target = Path(os.path.realpath(path))
    # Not `target.exists()`: if /dev/stdout is a pipe, the target of that link has no name.
    is_special = path.exists() and not path.is_file()
    if is_special or not os.access(target.parent, os.W_OK):
        yield path
        return
    # A random name: in a shared folder, no other user can put a link in its place.
    new = target.with_name(f".{target.stem[:_STEM]}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield new
        if new.exists():
            if target.exists():
                shutil.copymode(target, new)
            os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)
