"""Files that are replaced as a whole: a full disk, or an error, leaves the old one."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# The characters of a file's name that its successor has meanwhile, of up to four bytes each.
_STEM = 32


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new name beside a file, which takes its place where the block ends without an error.

    A symbolic link stays, and what it leads to is replaced. What is no file, such as a pipe, and a
    file in a folder that cannot be written are written in place.

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
    # Asked of the name itself: what /dev/stdout leads to has no name if it is a pipe.
    is_special = path.exists() and not path.is_file()
    if is_special or not os.access(target.parent, os.W_OK):
        yield path
        return
    # A name that no one else in a shared folder can guess, and lay a link there; names of files are
    # bounded, to 255 bytes on most systems.
    new = target.with_name(f".{target.stem[:_STEM]}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield new
        if new.exists():
            if target.exists():
                shutil.copymode(target, new)
            os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)
