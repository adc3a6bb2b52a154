"""`vecspaces describe`: an environment's spaces, and the layout of a batch of their values."""

from __future__ import annotations

from typing import Any

from vecspaces.cli.console import (
    EnvArgument,
    NumEnvsOption,
    TracebackOption,
    import_from_here,
    output,
    refusing,
)
from vecspaces.interop import native_space
from vecspaces.layout import Layout
from vecspaces.make import find_factory
from vecspaces.spaces import Space


def describe(
    env: EnvArgument, num_envs: NumEnvsOption = 1, traceback: TracebackOption = False
) -> None:
    """Show an environment's spaces, and the layout of a batch of their values in shared memory."""
    import_from_here()
    with refusing(traceback=traceback):
        spaces = _spaces_of(env)
        layouts = {name: Layout.compile(space, num_envs) for name, space in spaces.items()}
    console = output()
    for name, layout in layouts.items():
        console.print(f"{name}: {layout.space!r}", markup=False, soft_wrap=True)
        console.print(repr(layout), markup=False, soft_wrap=True, end="\n\n")


def _spaces_of(env: str) -> dict[str, Space[Any]]:
    """Build one environment, here, for its spaces; of a vector env, those of a single one."""
    built = find_factory(env)()
    single = "single_" if hasattr(built, "single_observation_space") else ""
    try:
        return {
            name: native_space(getattr(built, single + name))
            for name in ("observation_space", "action_space")
        }
    finally:
        built.close()
