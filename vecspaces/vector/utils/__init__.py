"""Functions with Gymnasium's names: batches of values, shared memory, starting of processes."""

from __future__ import annotations

import vecspaces.spaces  # noqa: F401 (first, for threads that import both)
from vecspaces.spaces.batching import batch_differing_spaces, batch_space
from vecspaces.vector.utils.items import concatenate, create_empty_array, iterate
from vecspaces.vector.utils.processes import CloudpickleWrapper, clear_mpi_env_vars
from vecspaces.vector.utils.shared_memory import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

__all__ = [
    "CloudpickleWrapper",
    "batch_differing_spaces",
    "batch_space",
    "clear_mpi_env_vars",
    "concatenate",
    "create_empty_array",
    "create_shared_memory",
    "iterate",
    "read_from_shared_memory",
    "write_to_shared_memory",
]


def __dir__() -> list[str]:
    return __all__
