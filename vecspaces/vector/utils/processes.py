"""CloudpickleWrapper: factories pickled by value; and starting processes without MPI variables."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import cloudpickle

T = TypeVar("T")

# The prefixes of the variables with which an MPI launcher addresses its processes.
MPI_PREFIXES = ("OMPI_", "PMI_")


class CloudpickleWrapper(Generic[T]):
    """A function that can be pickled: lambdas and closures are sent by value.

    Args:
        fn: A function without arguments.

    Example:
        >>> pickle.loads(pickle.dumps(CloudpickleWrapper(lambda: 42)))()
        42
    """

    fn: Callable[[], T]

    def __init__(self, fn: Callable[[], T]) -> None:
        self.fn = fn

    def __getstate__(self) -> bytes:
        pickled: bytes = cloudpickle.dumps(self.fn)
        return pickled

    def __setstate__(self, state: bytes) -> None:
        self.fn = pickle.loads(state)

    def __call__(self) -> T:
        """Call the function."""
        return self.fn()


@contextmanager
def clear_mpi_env_vars() -> Iterator[None]:
    """Hide MPI's environment variables from the processes that are started inside.

    A child that has `OMPI_*` or `PMI_*` and imports mpi4py acts as a rank of its parent's job, and
    hangs.

    Yields:
        Nothing; the variables are restored afterwards.

    Example:
        >>> os.environ["OMPI_EXAMPLE"] = "1"
        >>> with clear_mpi_env_vars():
        ...     "OMPI_EXAMPLE" in os.environ
        False
        >>> os.environ.pop("OMPI_EXAMPLE")
        '1'
    """
    hidden: dict[str, Any] = {
        name: os.environ.pop(name) for name in list(os.environ) if name.startswith(MPI_PREFIXES)
    }
    try:
        yield
    finally:
        os.environ.update(hidden)
