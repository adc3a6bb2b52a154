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
    target = path.resolve()
    is_special = target.exists() and not target.is_file()
    if is_special or not os.access(target.parent, os.W_OK):
        yield path
        return
    # A name that no one else in a shared folder can guess, and lay a link there.
    new = target.with_name(f".{target.stem}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield new
        if new.exists():
            if target.exists():
                shutil.copymode(target, new)
            os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)
