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
    written: dict[str, Any] = {"env": env}
    spaces = _spaces_of(options.find_env(env, **options.parse_env_args(env_arg)))
    for name, space in spaces.items():
        layout = Layout.compile(space, num_envs)
        console.print(f"{name}: {space!r}\n{layout!r}\n", markup=False, soft_wrap=True)
        leaves = [
            {"path": list(leaf.path), "dtype": str(leaf.dtype), "shape": list(leaf.shape)}
            | {"offset": leaf.offset, "bytes": leaf.nbytes}
            for leaf in layout.leaves
        ]
        sizes = {"num_envs": num_envs, "bytes_per_env": layout.nbytes, "bytes": layout.size}
        written[name] = {"repr": repr(space), "description": None, **sizes, "leaves": leaves}
        with suppress(CustomSpaceError):  # spaces of other classes have none
            written[name]["description"] = to_description(space)
    write_json(json_file, written)


def _spaces_of(make: Factory) -> dict[str, Space[Any]]:
    """Build one environment in this process, and return its (single) spaces."""
    env = make()
    single = "single_" if hasattr(env, "single_observation_space") else ""
    spaces = {}
    try:
        for name in ("observation_space", "action_space"):
            if not hasattr(env, single + name):
                raise TypeError(
                    f"env: expected a factory of environments with {name}, found one that returned "
                    f"{show_value(env)}"
                )
            spaces[name] = native_space(getattr(env, single + name))
    finally:
        if hasattr(env, "close"):
            env.close()
    return spaces
