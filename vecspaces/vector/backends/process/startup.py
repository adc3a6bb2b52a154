"""Surroundings of a worker process: variables (BLAS threads, no MPI), `sys.path`, folder."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, NamedTuple

from vecspaces.vector.backends.process.channel import pack_frame
from vecspaces.vector.backends.process.tree import MARK
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.utils.processes import MPI_PREFIXES

if TYPE_CHECKING:
    from vecspaces.vector.backends.worker_setup import WorkerSetup

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


class Surroundings(NamedTuple):
    """The environment variables, `sys.path` and working folder (None: deleted) of a process."""

    variables: dict[str, str]
    path: list[str]
    folder: str | None

    @classmethod
    def here(cls, threads: int | None) -> Surroundings:
        """Return the surroundings of this process; `threads` is for native libraries of workers.

        MPI's variables are left out, because a worker that imports mpi4py would act as a rank.
        """
        environ = os.environ.items()
        variables = {name: text for name, text in environ if not name.startswith(MPI_PREFIXES)}
        if threads is not None:
            variables.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
        folder = None
        with suppress(FileNotFoundError):
            folder = os.getcwd()
        return cls(variables, list(sys.path), folder)

    def marked(self, mark: str) -> Surroundings:
        """Return the surroundings of a worker, whose programs are found by a mark."""
        return self._replace(variables={**self.variables, MARK: mark})

    def adopt(self) -> None:
        """Set variables, path and folder of this process; a deleted folder is not set."""
        set_variables(self.variables)
        sys.path[:] = self.path
        if self.folder is not None:
            with suppress(FileNotFoundError):
                os.chdir(self.folder)


def set_variables(variables: dict[str, str]) -> None:
    """Replace the environment variables of this process; those that stay are never missing."""
    for name in os.environ.keys() - variables.keys():
        os.environ.pop(name, None)
    os.environ.update(variables)


class Parcel:
    """The setup of a worker that inherits none: packed while its process is started, then sent.

    Only meanwhile does multiprocessing pickle its locks and queues.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup, self.packed = setup, b""

    def __reduce__(self) -> tuple[Any, ...]:
        self.packed = pack_frame(Op.BUILD, 0, 0, (self._setup.factories, pickle.dumps(self._setup)))
        return type(None), ()


class StartupName(str):
    """The name of a process, which sets its environment variables when it is unpickled there.

    multiprocessing sends the name before the new process imports the main module. This import loads
    NumPy, OpenMP and MPI, which read their variables only once, and a fork server has older
    variables.
    """

    variables: dict[str, str]

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return str, (str(self),)
        return eval, (_SET_VARIABLES, {"name": str(self), "variables": self.variables})
