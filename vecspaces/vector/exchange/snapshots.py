"""Copies of infos, which environments reuse and which results of the caller must not share."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np

IMMUTABLE = frozenset((int, float, bool, str, bytes, type(None)))
are_immutable = IMMUTABLE.issuperset


def snapshot(value: Any, known: dict[int, Any] | None = None) -> Any:
    """Copy an info, or a value in an info, with its containers and arrays.

    Environments reuse the objects that they return, but results of the caller must not change.
    Other objects are not copied, because they may be as large as a simulator.

    Example:
        >>> info = {"path": [np.zeros(2)]}
        >>> kept = snapshot(info)
        >>> info["path"][0] += 1
        >>> kept
        {'path': [array([0., 0.])]}
    """
    if value.__class__ in IMMUTABLE:
        return value
    if known is None and value.__class__ is dict and are_immutable(map(type, value.values())):
        return value.copy()
    # The copies so far, by the id of the original, for objects that contain themselves.
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, tuple):
        make = tuple if type(value) is tuple else getattr(value, "_make", None)
        return value if make is None else make([snapshot(part, known) for part in value])
    if not isinstance(value, (np.ndarray, np.void, dict, list, set, bytearray, deque)):
        return value
    try:
        # `copy.copy` needs a microsecond to choose how.
        copied: Any
        if value.__class__ is dict:
            copied = {}
        else:
            copied = value.copy("K") if value.__class__ is np.ndarray else copy.copy(value)
        known[id(value)] = copied
        if isinstance(value, dict):
            for key, part in value.items():
                copied[key] = part if part.__class__ in IMMUTABLE else snapshot(part, known)
        elif isinstance(value, (list, deque)):
            for position, part in enumerate(value):
                copied[position] = snapshot(part, known)
        elif isinstance(value, np.ndarray) and value.dtype == object:
            for position, part in enumerate(value.flat):
                copied.flat[position] = snapshot(part, known)
    except Exception:  # of a class that does not allow copies, or changes
        return value
    return copied
