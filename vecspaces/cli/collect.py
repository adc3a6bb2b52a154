"""`vecspaces collect`: seeded episodes of a policy, each in an .npz file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from vecspaces.cli import options
from vecspaces.cli.console import announce, make_facts, output, progress_bar
from vecspaces.cli.playing import Playing, takes_playing
from vecspaces.evaluation import collect as run_collection
from vecspaces.files import replacing
from vecspaces.spaces import Tuple

_FIELDS = ("observations", "actions", "rewards", "terminations", "truncations", "infos")


def _check_folder(folder: Path) -> Path:
    """Refuse a folder, before the work begins, if it has files or cannot be made."""
    if folder.is_dir():
        if any(folder.iterdir()):
            raise typer.BadParameter(f"expected a new or empty folder, found {folder} with files")
    elif folder.exists() or not folder.parent.is_dir():
        raise typer.BadParameter(f"expected a new folder in one that exists, found {folder}")
    return folder


@takes_playing
def collect(
    playing: Playing,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            callback=_check_folder,
            help="Write each episode to an .npz file in this folder, which is new or empty.",
        ),
    ],
    progress: options.Progress = True,
    traceback: options.Traceback = False,
) -> None:
    """Play seeded episodes with a policy; write each to an .npz file.

    Episodes do not depend on the number of environments and workers.
    """
    playing.check()
    env, episodes = playing.env, playing.episodes
    played = run_collection(playing.load_policy(), **playing.arguments())
    out.mkdir(exist_ok=True)
    returns: list[float] = []
    steps, left_out = 0, set[str]()
    try:
        with contextlib.closing(played), progress_bar(episodes) as show:
            for episode in played:
                spaces = {
                    "observations": episode.observation_space,
                    "actions": episode.action_space,
                }
                arrays: dict[str, Any] = {"seed": episode.seed}
                for name in _FIELDS:
                    value = getattr(episode, name)
                    for part, array in _flatten(name, value, spaces.get(name), left_out):
                        if part in arrays:  # of a key "a/b", and of "b" in a Dict "a"
                            raise ValueError(f"--out: two values have the name {part}: rename one")
                        arrays[part] = array
                name = f"{episode.number:0{len(str(episodes - 1))}}.npz"
                with replacing(out / name) as file:
                    np.savez(file, **arrays)
                returns.append(float(episode.rewards.sum()))
                steps += len(episode.rewards)
                if progress:
                    show(lambda: (len(returns), f"{len(returns):,} of {episodes:,} episodes"))
    except BaseException as error:
        kept = f"{len(returns):,} episodes are in {out}"
        if isinstance(error, KeyboardInterrupt):
            error.args = (kept,)
        else:
            error.add_note(kept)
        raise
    for key in sorted(left_out):
        announce(f"vecspaces: warning: {key} is left out: neither an array nor JSON")
    facts = [("mean return", f"{np.mean(returns):,.2f}"), ("steps", f"{steps:,}")]
    output().print(make_facts(f"{episodes} episodes of {env}", [*facts, ("folder", str(out))]))


def _flatten(
    name: str, value: Any, space: Any, left_out: set[str]
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the arrays of a batch or of infos by name, and other values as JSON.

    Names of values that are neither are added to `left_out`.
    """
    if isinstance(space, Tuple):
        value, space = dict(enumerate(value)), space.spaces
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _flatten(f"{name}/{key}", part, space and space[key], left_out)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield name, value
    else:
        try:
            plain = list(value) if space is None else space.to_jsonable(value)
            text = json.dumps(plain, default=lambda part: part.tolist())
        except (AttributeError, TypeError, ValueError):
            left_out.add(name)
        else:
            yield name, np.array(text)
