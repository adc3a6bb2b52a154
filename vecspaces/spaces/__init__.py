"""The spaces: sets of values, one class per file; no space knows about environments."""

from __future__ import annotations

from vecspaces.spaces import one_of
from vecspaces.spaces.box import Box
from vecspaces.spaces.description import from_description, to_description
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.discrete import Discrete
from vecspaces.spaces.equivalence import difference
from vecspaces.spaces.graph import Graph, GraphInstance
from vecspaces.spaces.multi_binary import MultiBinary
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.one_of import OneOf
from vecspaces.spaces.sequence import Sequence
from vecspaces.spaces.space import Space
from vecspaces.spaces.text import Text
from vecspaces.spaces.tuple import Tuple
from vecspaces.spaces.utils import flatdim, flatten, flatten_space, unflatten

oneof = one_of  # what Gymnasium calls the module

__all__ = [
    "Box",
    "Dict",
    "Discrete",
    "Graph",
    "GraphInstance",
    "MultiBinary",
    "MultiDiscrete",
    "OneOf",
    "Sequence",
    "Space",
    "Text",
    "Tuple",
    "difference",
    "flatdim",
    "flatten",
    "flatten_space",
    "from_description",
    "to_description",
    "unflatten",
]


def __dir__() -> list[str]:
    return __all__
