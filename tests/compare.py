"""Bit-for-bit comparison of values: what parity with Gymnasium means in every test."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecspaces.testing.compare import assert_identical

__all__ = ["assert_identical", "without_0d_arrays"]


def without_0d_arrays(x: Any) -> Any:
    """Replace arrays of shape () by scalars: a Box draws the one or the other, and holds both."""
    if isinstance(x, dict):
        return {key: without_0d_arrays(item) for key, item in x.items()}
    if isinstance(x, tuple):
        items = [without_0d_arrays(item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else tuple(items)
    if isinstance(x, list):
        return [without_0d_arrays(item) for item in x]
    return x[()] if isinstance(x, np.ndarray) and x.shape == () else x
