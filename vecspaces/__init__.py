"""The public names of vecspaces."""

from __future__ import annotations

from vecspaces import errors, spaces
from vecspaces.env import Env
from vecspaces.spaces import Space

__version__ = "0.1.0"

__all__ = ["Env", "Space", "__version__", "errors", "spaces"]
