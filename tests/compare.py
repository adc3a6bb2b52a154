"""Bit-for-bit comparison of values: what parity with Gymnasium means in every test."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_identical(ours: Any, theirs: Any, path: str = "value") -> None:
    """Assert equal types, dtypes, shapes and bits, in nested values too.

    -0.0 differs from 0.0, nan equals nan. A GraphInstance of either library is compared by fields.

    Args:
        ours: The value of vecspaces.
        theirs: The value to which it must be identical.
        path: The name of the value in the error.

    Raises:
        AssertionError: They differ; the message names the path of the first difference.
    """
    if type(ours).__name__ == "GraphInstance":
        assert type(theirs).__name__ == "GraphInstance", f"{path}: {theirs!r} is no graph"
        ours, theirs = ours._asdict(), theirs._asdict()
    assert type(ours) is type(theirs), f"{path}: {type(ours)} is not {type(theirs)}"
    if isinstance(ours, dict):
        assert list(ours) == list(theirs), f"{path}: keys {list(ours)} are not {list(theirs)}"
        for key in ours:
            assert_identical(ours[key], theirs[key], f"{path}[{key!r}]")
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs), f"{path}: length {len(ours)} is not {len(theirs)}"
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_identical(mine, other, f"{path}[{i}]")
    elif isinstance(ours, (np.ndarray, np.generic)):
        assert ours.dtype == theirs.dtype, f"{path}: {ours.dtype} is not {theirs.dtype}"
        assert ours.shape == theirs.shape, f"{path}: {ours.shape} is not {theirs.shape}"
        if ours.dtype == object:  # its bytes are addresses
            assert_identical(ours.tolist(), theirs.tolist(), path)
        elif ours.dtype.char in "gG":  # whose bytes are padded
            same = np.array_equal(ours, theirs, equal_nan=True)
            assert same, f"{path}: {ours!r} is not {theirs!r}"
        else:
            assert ours.tobytes() == theirs.tobytes(), f"{path}: {ours!r} is not {theirs!r}"
    elif isinstance(ours, float):
        assert np.float64(ours).tobytes() == np.float64(theirs).tobytes(), (
            f"{path}: {ours} {theirs}"
        )
    else:
        assert ours == theirs, f"{path}: {ours!r} is not {theirs!r}"


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
