"""What a worker in a new interpreter does first: before it imports the main module, or NumPy."""

from __future__ import annotations

import marshal
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any

from vecspaces.vector.utils.processes import MPI_PREFIXES

# How the names of the variables begin that the dynamic linker and the interpreter read as they
# start: what a process has of them is what it was started with.
_READ_AT_START = ("DYLD_", "LD_", "PYTHON")

_CALLS = (
    "[__import__('types').FunctionType(__import__('marshal').loads(code),"
    " {'__builtins__': __builtins__})(*arguments) for code, arguments in calls][-1]"
)


@dataclass(frozen=True)
class Surroundings:
    """What a process finds around itself, as it was when the vector env was made.

    Every worker gets the same, whatever the caller has changed since, and whatever a fork server,
    which started before, has inherited.

    Args:
        variables: The environment, but for what is read at the start.
        path: Where modules are looked for.
        folder: The working folder; None if it was deleted, or cannot be read.
    """

    variables: dict[str, str]
    path: tuple[str, ...]
    folder: str | None

    @classmethod
    def here(cls, variables: dict[str, str]) -> Surroundings:
        """Return those of this process, with some variables of workers and without MPI's."""
        hidden = (*_READ_AT_START, *MPI_PREFIXES)
        mine = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
        folder = None
        with suppress(OSError):
            folder = os.getcwd()
        return cls({**mine, **variables}, tuple(sys.path), folder)

    def adopt(self) -> None:
        """Make them those of this process; a folder that cannot be entered is left out."""
        _replace_variables(self.variables, _READ_AT_START)
        sys.path[:] = self.path
        if self.folder is not None:
            with suppress(OSError):
                os.chdir(self.folder)


class StartupName(str):
    """The name of a process, which prepares that process when it arrives there.

    multiprocessing sends the name ahead of everything else: before the new process imports the main
    module, and with it NumPy, MPI and whatever else reads the environment as it is loaded. So that
    nothing at all has to be imported, what is sent is the code of two functions below.

    Args:
        name: The name.
        variables: The environment.
        *arguments: The other arguments of `_report_to_caller`; those that are bound to a start are
            made by calling them.
    """

    _variables: dict[str, str]
    _arguments: tuple[Any, ...]
    _sent = False

    def __new__(cls, name: str, variables: dict[str, str], *arguments: Any) -> StartupName:
        """Make the name."""
        self = super().__new__(cls, name)
        self._variables, self._arguments = variables, arguments
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._sent or get_spawning_popen() is None:
            return str, (str(self),)
        self._sent = True  # it also is an attribute of the process, which follows
        arguments = [one() if callable(one) else one for one in self._arguments]
        calls = [
            (marshal.dumps(_replace_variables.__code__), (self._variables, _READ_AT_START)),
            (marshal.dumps(_report_to_caller.__code__), (str(self), *arguments)),
        ]
        return eval, (_CALLS, {"calls": calls})


def _replace_variables(variables: dict[str, str], kept: tuple[str, ...]) -> None:
    """Make the environment one of these variables, and of its own whose names begin with `kept`."""
    import os

    for name in list(os.environ):
        if name not in variables and not name.startswith(kept):
            del os.environ[name]
    for name, text in variables.items():
        if os.environ.get(name) != text:
            os.environ[name] = text


def _report_to_caller(name: str, replies: Any, header: str, op: int) -> str:
    """Until `finish`, send what is raised to the caller, and print nothing.

    Args:
        name: The name of the process.
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
