"""Layouts, nodes, `describe` and `fit`: the public names, which other modules define."""

from __future__ import annotations

from vecspaces.layout.casting import Mismatch, fit
from vecspaces.layout.describe import describe
from vecspaces.layout.layout import Layout, Leaf, Rows
from vecspaces.layout.nodes import Array, Choice, Record, Variable

__all__ = [
    "Array",
    "Choice",
    "Layout",
    "Leaf",
    "Mismatch",
    "Record",
    "Rows",
    "Variable",
    "describe",
    "fit",
]


def __dir__() -> list[str]:
    return __all__
