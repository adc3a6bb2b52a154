"""The functions of `flattening` and `equivalence`, under Gymnasium's name of the module."""

from __future__ import annotations

from vecspaces.spaces.equivalence import is_space_dtype_shape_equiv
from vecspaces.spaces.flattening import flatdim, flatten, flatten_space, unflatten

__all__ = ["flatdim", "flatten", "flatten_space", "is_space_dtype_shape_equiv", "unflatten"]
