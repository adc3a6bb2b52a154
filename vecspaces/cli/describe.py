"""`vecspaces describe`: an environment's spaces, and the layout of a batch of their values."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vecspaces.checks import show_value
from vecspaces.cli import options
from vecspaces.cli.console import output, write_json
from vecspaces.errors import CustomSpaceError
from vecspaces.interop import native_space
from vecspaces.layout import Layout
from vecspaces.spaces import Space, to_description

if TYPE_CHECKING:
    from vecspaces.make import Factory


def describe(
    env: options.Env,
    env_arg: options.EnvArg = None,
    num_envs: options.NumEnvs = options.NUM_ENVS,
    json_file: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Show an environment's spaces, and the layout of batches."""
    console = output(json_file)
    found: dict[str, Any] = {"env": env}
    spaces = _spaces_of(options.find_env(env, **options.parse_env_args(env_arg)))
    for name, space in spaces.items():
        layout = Layout.compile(space, num_envs)
        console.print(f"{name}: {space!r}", markup=False, soft_wrap=True)
        console.print(repr(layout), markup=False, soft_wrap=True, end="\n\n")
        found[name] = {
            "repr": repr(space),
            "description": None,
            "num_envs": num_envs,
            "bytes_per_env": layout.nbytes,
            "bytes": layout.size,
            "leaves": [
                {
                    "path": list(leaf.path),
                    "dtype": str(leaf.dtype),
                    "shape": list(leaf.shape),
                    "offset": leaf.offset,
                    "bytes": leaf.nbytes,
                }
                for leaf in layout.leaves
            ],
        }
        with suppress(CustomSpaceError):  # spaces of other classes have none
            found[name]["description"] = to_description(space)
    write_json(json_file, found)


def _spaces_of(make: Factory) -> dict[str, Space[Any]]:
    """Build one environment in this process, and return its (single) spaces."""
    built = make()
    single = "single_" if hasattr(built, "single_observation_space") else ""
    names = ("observation_space", "action_space")
    try:
        for name in names:
            if not hasattr(built, single + name):
                found = f"one that returned {show_value(built)}"
                raise TypeError(
                    f"env: expected a factory of environments with {name}, found {found}"
                )
        return {name: native_space(getattr(built, single + name)) for name in names}
    finally:
        if hasattr(built, "close"):
            built.close()
