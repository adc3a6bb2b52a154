"""The spaces: what a value is. One class a file; nothing in here knows of batches of environments."""

from __future__ import annotations

from vecspaces.spaces.box import Box
from vecspaces.spaces.discrete import Discrete
from vecspaces.spaces.multi_binary import MultiBinary
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.space import Space
from vecspaces.spaces.text import Text

__all__ = ["Box", "Discrete", "MultiBinary", "MultiDiscrete", "Space", "Text"]
