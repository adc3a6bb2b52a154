"""Errors of the Gymnasium interface, each a subclass of vecspaces' and of Gymnasium's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium.error

from vecspaces import errors

Result = TypeVar("Result")


class AlreadyPendingCallError(
    errors.AlreadyPendingCallError, gymnasium.error.AlreadyPendingCallError
):
    """A call was begun while another call is still pending."""


class NoAsyncCallError(errors.NoAsyncCallError, gymnasium.error.NoAsyncCallError):
    """A wait for a call that is not pending."""


class ClosedEnvironmentError(errors.ClosedEnvironmentError, gymnasium.error.ClosedEnvironmentError):
    """A vector environment was used after `close()`."""


class CustomSpaceError(errors.CustomSpaceError, gymnasium.error.CustomSpaceError):
    """A space that an operation cannot handle."""


class InvalidActionError(errors.InvalidActionError, gymnasium.error.InvalidAction):
    """Actions of the wrong number, shape, dtype kind or nesting."""


class ResetNeededError(errors.ResetNeededError, gymnasium.error.ResetNeeded):
    """A step before a reset: after an error, or in DISABLED mode after an episode."""


class Error(errors.VecspacesError, gymnasium.error.Error):
    """A wrong argument, as of `reset(seed=...)`."""


# Each class above, by its base class in the core.
_BOTH = {
    kind.__mro__[1]: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, errors.VecspacesError)
}


def call(function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """Call a function of the core, and convert its errors to subclasses of Gymnasium's."""
    try:
        return function(*args, **kwargs)
    except errors.VecspacesError as error:
        kind = _BOTH.get(type(error))
        if kind is None:
            raise
        both = kind(*error.args)
        both.__dict__.update(vars(error))
        raise both.with_traceback(error.__traceback__) from error.__cause__
