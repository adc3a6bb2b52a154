"""The environment variables of workers: the caller's as the vector env was made, without MPI's."""

from __future__ import annotations

import os
from multiprocessing.context import get_spawning_popen
from typing import Any

from vecspaces.vector.utils.processes import MPI_PREFIXES

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

_SET_VARIABLES = (
    "(environ := __import__('os').environ).clear() or environ.update(variables) or name"
)


def worker_variables(threads: int | None) -> dict[str, str]:
    """Return this process's variables for workers, with the number of threads of native libraries.

    MPI's are left out: a worker that imports mpi4py would take itself for a rank of the job.
    """
    mine = {name: text for name, text in os.environ.items() if not name.startswith(MPI_PREFIXES)}
    return mine if threads is None else {**mine, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}


def adopt_variables(variables: dict[str, str]) -> None:
    """Make the environment of this process one of these variables."""
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    for name, text in variables.items():
        if os.environ.get(name) != text:
            os.environ[name] = text


class StartupName(str):
    """The name of a process, which sets the process's environment variables when it arrives there.

    multiprocessing sends the name before the new process imports the main module. That import loads
    NumPy, OpenMP and MPI, which read their variables once, and a fork server has older ones.
    """

    variables: dict[str, str]

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return str, (str(self),)
        return eval, (_SET_VARIABLES, {"name": str(self), "variables": self.variables})
