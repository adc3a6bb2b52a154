"""Checks of the masks and probabilities that `sample` takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecspaces.checks import Path, mismatch, show_value


def choose_limit(mask: Any, probability: Any) -> tuple[str, Any]:
    """Return which of the two was passed, as a name and its value; raise ValueError for both."""
    if mask is not None and probability is not None:
        raise ValueError(
            "mask, probability: expected at most one of them, found both: "
            f"mask={mask!r}, probability={probability!r}"
        )
    return ("probability", probability) if mask is None else ("mask", mask)


def check_limit(
    word: str,
    limit: Any,
    shape: tuple[int, ...],
    path: Path = (),
    *,
    largest: int = 1,
    is_distribution: bool = True,
) -> None:
    """Raise AssertionError unless `limit` has the shape, and the dtype and range of its kind."""
    dtype: Any = np.int8 if word == "mask" else np.float64
    if not isinstance(limit, np.ndarray) or limit.dtype != dtype or limit.shape != shape:
        expected = f"an array of shape {shape} and dtype {np.dtype(dtype)}"
        raise AssertionError(mismatch(word, expected, show_value(limit), path))
    if word == "mask":
        outside = np.count_nonzero(limit.view(np.uint8) > largest)  # negative ones are larger too
    else:
        outside = limit.size - np.count_nonzero((limit >= 0) & (limit <= 1))  # nan is neither
    if outside:
        raise AssertionError(mismatch(word, f"values from 0 to {largest}", str(limit), path))
    # The tolerance of numpy.isclose(sum, 1); that of numpy.random.Generator.choice is narrower.
    if (
        word == "probability"
        and is_distribution
        and not abs(float(limit.sum()) - 1.0) <= 1e-8 + 1e-5
    ):
        raise AssertionError(mismatch(word, "the sum 1", str(limit.sum()), path))


def check_limit_tuple(word: str, limit: Any, n: int, path: Path = ()) -> None:
    """Raise AssertionError unless `limit` is a tuple with an entry for each of `n` members."""
    if not isinstance(limit, tuple) or len(limit) != n:
        shown = len(limit) if isinstance(limit, tuple) else show_value(limit)
        raise AssertionError(mismatch(word, f"a tuple of {n} entries", str(shown), path))
