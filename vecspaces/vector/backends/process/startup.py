"""What a worker in a new interpreter does first: before it imports the main module, or NumPy."""

from __future__ import annotations

import marshal
from multiprocessing.context import get_spawning_popen
from typing import Any

_CALL = (
    "__import__('types').FunctionType(__import__('marshal').loads(code),"
    " {'__builtins__': __builtins__})(*arguments)"
)


class StartupName(str):
    """The name of a process, which prepares that process when it arrives there.

    multiprocessing sends the name ahead of everything else: before the new process imports the main
    module, and with it NumPy, MPI and whatever else reads the environment as it is loaded. So that
    nothing at all has to be imported, what is sent is the code of `_prepare`.

    Args:
        name: The name.
        *arguments: The other arguments of `_prepare`; those that are bound to a start are made by
            calling them.
    """

    _arguments: tuple[Any, ...]
    _sent = False

    def __new__(cls, name: str, *arguments: Any) -> StartupName:
        """Make the name."""
        self = super().__new__(cls, name)
        self._arguments = arguments
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._sent or get_spawning_popen() is None:
            return str, (str(self),)
        self._sent = True  # it also is an attribute of the process, which follows
        arguments = [one() if callable(one) else one for one in self._arguments]
        return eval, (
            _CALL,
            {"code": marshal.dumps(_prepare.__code__), "arguments": (str(self), *arguments)},
        )


def _prepare(
    name: str,
    hidden: tuple[str, ...],
    variables: dict[str, str],
    replies: Any,
    header: str,
    op: int,
) -> str:
    """Set the environment; until `finish`, send what is raised to the caller, and print nothing.

    Args:
        name: The name of the process.
        hidden: How the names of variables begin that the worker must not see.
        variables: Variables of the environment.
        replies: Detaches to the descriptor of the stream to the caller; None: raise as usual.
        header: The format of a message's header.
        op: The number of the message.

    Returns:
        The name.
    """
    import os
    import pickle
    import struct
    import sys
    import traceback

    for variable in list(os.environ):
        if variable.startswith(hidden):
            del os.environ[variable]
    os.environ.update(variables)
    if replies is None:
        return name
    descriptor = replies.detach()
    os.set_inheritable(descriptor, False)
    print_exception = sys.excepthook

    def report(kind: Any, error: Any, trace: Any) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        line = "".join(traceback.format_exception_only(kind, error)).strip()
        data = pickle.dumps((line[-1000:], text[-30000:]))
        try:
            os.write(descriptor, struct.pack(header, op, 0, 0, 0, len(data)) + data)
        except OSError:
            print_exception(kind, error, trace)

    def finish() -> None:
        sys.excepthook = print_exception
        os.close(descriptor)

    report.finish = finish  # type: ignore[attr-defined]
    sys.excepthook = report
    return name
