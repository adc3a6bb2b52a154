"""OwnedVectorEnv: a vector env whose workers end with it, in the process that made it."""

from __future__ import annotations

import weakref
from multiprocessing import util
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic

from vecspaces import system
from vecspaces.vector.engine.arguments import Settings
from vecspaces.vector.managed_vector_env import ManagedVectorEnv
from vecspaces.vector.vector_env import ActType, ObsType

if TYPE_CHECKING:
    from vecspaces.vector.backends.process.backend import ProcessBackend
    from vecspaces.vector.backends.threads import ThreadBackend


class OwnedVectorEnv(ManagedVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """The base of AsyncVectorEnv and ThreadVectorEnv; `name` is for the warning of `drop`."""

    _backend: ProcessBackend | ThreadBackend

    def __init__(
        self, backend: ProcessBackend | ThreadBackend, settings: Settings, name: str
    ) -> None:
        # Runs when this object is collected, or before multiprocessing joins its children at exit.
        self._finalizer = util.Finalize(self, backend.drop, (name,), exitpriority=100)
        self._backend = backend  # before it is open, because a fork of another thread disowns it
        self._closing = RLock()
        _made.add(self)
        try:
            super().__init__(backend, settings)
        except BaseException:
            backend.abandon()
            raise

    def close(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Close every environment and end every worker; after an interrupt it can be repeated."""
        # If another thread closes, a call in a `with` block ends with an error, and the end of the
        # block also closes: it waits here until everything is freed.
        with self._closing:
            try:
                super().close(timeout, terminate, **kwargs)
            finally:
                if self.closed:
                    self._backend.abandon()  # what an interrupt may have left
                    self._finalizer.cancel()


# The vector envs of this process that are not collected.
_made: weakref.WeakSet[OwnedVectorEnv[Any, Any]] = weakref.WeakSet()


def _disown_all() -> None:
    """In a forked process: disown all vector envs, which belong to the process that made them."""
    for envs in list(_made):
        envs._closing = RLock()  # a thread of the parent may hold the former lock
        envs._backend.disown()
        if hasattr(envs, "_engine"):
            envs._engine.disown()
    _made.clear()


system.run_in_forks(_disown_all)
