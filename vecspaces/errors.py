"""The errors of vecspaces, as a tree; wrong arguments raise ValueError and TypeError too.

::

    VecspacesError (Exception)
    ├── CustomSpaceError (TypeError)
    ├── InvalidActionError (ValueError, TypeError)
    ├── InvalidObservationError (ValueError)
    ├── InvalidRewardError (ValueError)
    ├── InvalidFlagError (TypeError)
    ├── InvalidInfoError (TypeError)
    ├── ResetNeededError (AssertionError)
    ├── ClosedEnvironmentError
    ├── AlreadyPendingCallError
    ├── NoAsyncCallError
    ├── StepTimeoutError (TimeoutError, multiprocessing.TimeoutError)
    ├── FailedCheckError (AssertionError)
    └── WorkerError
        └── WorkerDiedError

docs/troubleshooting.md has causes and remedies of each class.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence

__all__ = [
    "AlreadyPendingCallError",
    "ClosedEnvironmentError",
    "CustomSpaceError",
    "FailedCheckError",
    "InvalidActionError",
    "InvalidFlagError",
    "InvalidInfoError",
    "InvalidObservationError",
    "InvalidRewardError",
    "NoAsyncCallError",
    "ResetNeededError",
    "SlowEnvironmentWarning",
    "StepTimeoutError",
    "VecspacesError",
    "WorkerDiedError",
    "WorkerError",
]


def __dir__() -> list[str]:
    return __all__


class VecspacesError(Exception):
    """Base class of the errors in this module: `except VecspacesError` catches each of them."""


class CustomSpaceError(VecspacesError, TypeError):
    """A space that an operation cannot handle."""


class InvalidActionError(VecspacesError, ValueError, TypeError):
    """Actions of the wrong number, shape, dtype kind or nesting; no environment was stepped.

    With `validate=True`, also actions outside of the action space.
    """


class InvalidObservationError(VecspacesError, ValueError):
    """An environment returned an observation that does not fit its space.

    Nesting, shape, kind of dtype, and the maximum length of a Text are checked; with
    `validate=True` also bounds, NaN, the dtype, characters and minimum length.
    """


class InvalidRewardError(VecspacesError, ValueError):
    """An environment returned a reward that is not a number, or not finite (`validate=True`)."""


class InvalidFlagError(VecspacesError, TypeError):
    """`terminated` or `truncated` of an environment is not a bool (`validate=True`)."""


class InvalidInfoError(VecspacesError, TypeError):
    """An environment returned an invalid info.

    It is not a dict, cannot be pickled, or has a value that does not fit the `info_space`. With
    `validate=True`, also an info with a key that is not a string.
    """


class ResetNeededError(VecspacesError, AssertionError):
    """A finished environment (in DISABLED mode) or a broken one was stepped before a reset."""


class ClosedEnvironmentError(VecspacesError):
    """A vector environment was used after `close()`."""


class AlreadyPendingCallError(VecspacesError):
    """A call was begun while another call is still pending.

    Args:
        message: What happened and what to do next.
        name: The pending call: `"reset"`, `"step"`, `"call"` or `"send"`.
    """

    def __init__(self, message: str, name: str = "") -> None:
        Exception.__init__(self, message)  # Gymnasium's own class, in its interface, takes more
        self.name = name


class NoAsyncCallError(VecspacesError):
    """A wait for a call that is not pending.

    Args:
        message: What happened and what to do next.
        name: The call that was awaited: `"reset"`, `"step"`, `"call"` or `"recv"`.
    """

    def __init__(self, message: str, name: str = "") -> None:
        Exception.__init__(self, message)  # Gymnasium's own class, in its interface, takes more
        self.name = name


class FailedCheckError(VecspacesError, AssertionError):
    """`vecspaces.testing.check_env` found faults of an environment."""


class StepTimeoutError(VecspacesError, TimeoutError, multiprocessing.TimeoutError):
    """A wait took longer than its time limit; the call stays pending.

    Args:
        message: The call, the length of the wait, and what to do next.
        env_ids: The environments that are still busy; if their workers are restarted
            (`on_step_timeout`), all environments of these workers.
        running: The environments in `env_ids` that were running.
        stack: The Python frames of the first running environment, the innermost last; None if they
            are not known.
    """

    def __init__(
        self,
        message: str,
        env_ids: Sequence[int] = (),
        running: Sequence[int] = (),
        stack: str | None = None,
    ) -> None:
        super().__init__(message)
        self.env_ids = tuple(env_ids)
        self.running = tuple(running)
        self.stack = stack


class SlowEnvironmentWarning(RuntimeWarning):
    """An environment has been busy for `slow_warning` seconds; the text shows its Python stack.

    If warnings are errors, the call stays pending, as after a timeout.
    """


class WorkerError(VecspacesError):
    """A worker failed, and the caller cannot raise the environment's own exception.

    Args:
        message: What happened, in which environments, and what to do next.
        env_ids: The environments concerned.
        worker: The index of the worker.
        command: What the worker was doing: `"build"`, `"reset"`, `"step"`, `"call"` or `"close"`.
    """

    def __init__(
        self, message: str, env_ids: Sequence[int] = (), worker: int = -1, command: str = ""
    ) -> None:
        super().__init__(message)
        self.env_ids = tuple(env_ids)
        self.worker = worker
        self.command = command


class WorkerDiedError(WorkerError):
    """A worker process ended, and the caller had not ended it.

    Args:
        message: What happened, in which environments, and what to do next.
        env_ids: The environments of the worker.
        worker: The index of the worker.
        command: What the worker was doing.
        exitcode: The exit code of the process; negative numbers are signals, None is unknown.
        signal: The name of the signal that ended it and its usual cause, if a signal did.
        node: The machine of a cluster on which the worker ran, if it was not the caller's.
        running: The environment that was running; None if none was running, or it is not known.
        stack: The Python frames of that environment at the crash, the innermost last; None if they
            are not known.
    """

    def __init__(
        self,
        message: str,
        env_ids: Sequence[int] = (),
        worker: int = -1,
        command: str = "",
        exitcode: int | None = None,
        signal: str | None = None,
        node: str | None = None,
        running: int | None = None,
        stack: str | None = None,
    ) -> None:
        super().__init__(message, env_ids, worker, command)
        self.exitcode = exitcode
        self.signal = signal
        self.node = node
        self.running = running
        self.stack = stack
