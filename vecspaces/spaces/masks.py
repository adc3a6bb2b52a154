"""Masks and probabilities: the checks of what `sample` is told to prefer."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecspaces.checks import show_value


def check_mask(mask: Any, name: str, shape: tuple[int, ...], largest: int = 1) -> None:
    """Raise AssertionError unless `mask` is an int8 array of the shape, with values 0 to `largest`.

    Example:
        >>> check_mask(np.array([0, 1, 7], np.int8), "mask[0]", (3,))
        Traceback (most recent call last):
        ...
        AssertionError: mask[0]: expected values from 0 to 1, found [0 1 7]
    """
    _check_array(mask, name, np.int8, shape)
    if np.count_nonzero(mask.view(np.uint8) > largest):  # which holds for negative ones too
        raise AssertionError(f"{name}: expected values from 0 to {largest}, found {mask}")


def check_probability(
    probability: Any, name: str, shape: tuple[int, ...], sums_to_one: bool = True
) -> None:
    """Raise AssertionError unless `probability` is a float64 array of the shape, within [0, 1].

    Example:
        >>> check_probability(np.array([0.5, 0.6]), "probability", (2,))
        Traceback (most recent call last):
        ...
        AssertionError: probability: expected the sum 1, found 1.1
    """
    _check_array(probability, name, np.float64, shape)
    within = (probability >= 0) & (probability <= 1)
    if np.count_nonzero(within) != within.size:
        raise AssertionError(f"{name}: expected values from 0 to 1, found {probability}")
    # The tolerance of numpy.isclose(sum, 1); numpy.random.Generator.choice then has a narrower one.
    if sums_to_one and not abs(float(probability.sum()) - 1.0) <= 1e-8 + 1e-5:
        raise AssertionError(f"{name}: expected the sum 1, found {probability.sum()}")


def _check_array(array: Any, name: str, dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        expected = f"an array of shape {shape} and dtype {np.dtype(dtype)}"
        raise AssertionError(f"{name}: expected {expected}, found {show_value(array)}")
