"""Programs that tests run, in this process or in one that finds this clone's modules too."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import runpy
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from tests.crosses import ordinarily

ROOT = Path(__file__).parents[1]


def environ(*paths: Path, **variables: str) -> dict[str, str]:
    """Return the environment variables of such a process; it finds modules of `paths` too."""
    path = os.pathsep.join(
        filter(None, [str(ROOT), *map(str, paths), os.environ.get("PYTHONPATH")])
    )
    return {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", **variables}


def load_example(name: str) -> ModuleType:
    """Return an example as a module; its main part does not run."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_python(
    *arguments: Any, code: int | None = 0, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments; it must end with this code, or with any (None).

    The other options are those of `subprocess.run`.
    """
    command = [sys.executable, *map(str, arguments)]
    options = {"timeout": 100, "env": environ(), **options}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", **options)
    assert code is None or done.returncode == code, done.stderr
    return done


def here_or_apart(programs: Mapping[str, bool]) -> pytest.MarkDecorator:
    """Parametrize a test with `name` and `apart`, which `run_program` takes.

    The ordinary run runs what it can in this process: an interpreter and its imports take longer
    than what most programs do. The full run has a process for each.

    Args:
        programs: By name, whether the program may run in a process of tests. PyTorch and what
            builds on it may not: they keep threads and descriptors.
    """
    cells = [(name, apart) for name, here in programs.items() for apart in (not here, True)]
    chosen = ordinarily(lambda name, apart: apart != programs[name], dict.fromkeys(cells))
    return pytest.mark.parametrize(("name", "apart"), chosen)


def run_program(path: Path, *arguments: Any, apart: bool, folder: Path, **variables: str) -> str:
    """Run a program in a folder, as `python path` does, and return what it prints.

    Args:
        path: The program.
        arguments: Its arguments.
        apart: Whether in a process of its own.
        folder: The working folder.
        variables: Further environment variables.
    """
    if apart:
        env = environ(**variables)
        return run_python("-W", "ignore", path, *arguments, cwd=folder, env=env).stdout
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, variables),
        mock.patch.object(sys, "argv", [str(path), *map(str, arguments)]),
        contextlib.redirect_stdout(printed),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue()
