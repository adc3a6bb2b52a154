"""The texts of errors that users meet: `golden/messages.txt` has each after what provokes it.

A further message is a line `>>> expression` there; `python -m tests.test_messages` writes the text.
"""

# ruff: noqa: F401  # the expressions name what is imported here

from __future__ import annotations

import asyncio
import copy
import doctest
import importlib.util
import pickle
import re
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import vecspaces
from tests import envs as kept
from tests.vector.engine.states import refusals
from vecspaces import spaces, testing, vector, wrappers
from vecspaces.adapters import gymnasium as adapter
from vecspaces.adapters.gymnasium import from_gymnasium, to_gymnasium
from vecspaces.aio import Pool
from vecspaces.layout import Layout
from vecspaces.spaces import utils as flattening
from vecspaces.vector import SyncVectorEnv, utils
from vecspaces.vector.exchange import failures
from vecspaces.wrappers.record_video import tile

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"
#: The sections that need a library.
OPTIONAL = ("stable_baselines3", "tianshou")
MISSING = {library for library in OPTIONAL if importlib.util.find_spec(library) is None}


# --- what the expressions name ------------------------------------------------------------------

BOX = spaces.Box(-1, 1, (2,))


class Colour(spaces.Space[str]):
    """A space of a third party."""

    is_np_flattenable = True  # type: ignore[assignment]

    def __init__(self, name: str = "red") -> None:
        super().__init__()
        self.name = name

    def contains(self, x: Any) -> bool:
        return bool(x == self.name)


class Stuck:
    """An object that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("stuck")

    def __repr__(self) -> str:
        return "Stuck()"


def changed(space: Any, /, **fields: Any) -> Any:
    """Return the space of a description in which fields were changed."""
    return spaces.from_description({**spaces.to_description(space), **fields})


def nested(depth: int) -> dict[str, Any]:
    """Return a description of Tuples in Tuples."""
    inner: dict[str, Any] = {"type": "Tuple", "spaces": []}
    for _ in range(depth):
        inner = {"type": "Tuple", "spaces": [inner]}
    return {"version": 1, **inner}


def rows(space: Any, **options: Any) -> Any:
    """Return three rows of a layout in private memory."""
    layout = Layout.compile(space, 3, **options)
    return layout.bind(bytearray(layout.size))[0]


def lines(error: BaseException) -> str:
    """Return the text of an error, and the first line of its cause."""
    texts = [f"{type(error).__name__}: {error}"]
    if error.__cause__ is not None:
        texts.append(f"from {str(error.__cause__).lstrip().splitlines()[0]}")
    return "\n".join(texts)


def group(*envs: Any, call: Any = None, **options: Any) -> str:
    """Return what environments raise in a reset and a step, or in `call`, as rows of a vector env.

    Each env is copied; what is callable is an env_fn.
    """
    env_fns = [env if callable(env) else partial(copy.deepcopy, env) for env in envs]
    try:
        with SyncVectorEnv(env_fns, **options) as made:
            made.reset(seed=0)
            if call is None:
                made.step(np.zeros_like(made.action_space.sample()))
            else:
                call(made)
    except Exception as error:
        return lines(error)
    raise AssertionError("nothing was raised")


def within(*envs: Any, call: Any = None, **options: Any) -> str:
    """Return what the same environments raise inside of another vector env, one row further."""
    inner = partial(SyncVectorEnv, [partial(copy.deepcopy, env) for env in envs], **options)
    return group(envs[0], inner, call=call, **options)


def declaring(space: Any, info: Any = None) -> Any:
    """Return an environment with an info_space, and the info of its steps."""
    env = kept.talking(info or {})
    env.info_space = space  # type: ignore[attr-defined]
    return env


class Informed(kept.Drift):
    """A vector env of two rows with these infos; `shape` bounds the numbers that it observes."""

    def __init__(self, shape: int = 2, **infos: Any) -> None:
        super().__init__(2)
        self.infos, self.shape = infos, shape

    def step(self, actions: Any) -> Any:
        observations, *rest, _ = super().step(actions)
        return observations[:, : self.shape], *rest, self.infos


def objects(*values: Any) -> Any:
    """Return an array of objects."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


class EmptyBox(spaces.Box):
    """A subclass that contains nothing: why, only its own test can tell."""

    __module__ = "tests"

    def contains(self, x: Any) -> bool:
        return False


class Old(kept.Ledger):
    """An environment of Gym's first interface."""

    def reset(self) -> Any:  # type: ignore[override]  # as this interface had it
        return super().reset()[0]


def during(use: Any, env_fn: Any = kept.Ledger, **arguments: Any) -> Any:
    """Return what a function of a vector env of two environments returns."""
    with vector.SyncVectorEnv([env_fn] * 2, **arguments) as envs:
        envs.reset(seed=0)
        return use(envs)


def conversing(use: Any, later: Any = None, **arguments: Any) -> Any:
    """Return what a coroutine of a pool, and of the environment that it lends, returns.

    `later` makes one that is awaited after the environment was given back, as a task is that the
    first one returns.
    """

    async def main() -> Any:
        async with Pool(kept.Ledger, 1, **arguments) as pool:
            async with pool.acquire() as env:
                result = await use(pool, env)
            if isinstance(result, asyncio.Task):
                return await result
            return result if later is None else await later(pool, env)

    return asyncio.run(main())


def wrap(name: str, observed: Any = BOX, acted: Any = BOX, **arguments: Any) -> Any:
    """Wrap a vector env with these spaces."""
    with vector.SyncVectorEnv([lambda: kept.Sampler(observed, acted)] * 2) as envs:
        return getattr(wrappers, name)(envs, **arguments)


def having(x: Any, **attributes: Any) -> Any:
    """Return an object with other attributes."""
    vars(x).update(attributes)
    return x


class Whole(vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """A wrapper that overrides `step` alone."""

    def step(self, actions: Any) -> Any:  # type: ignore[override]  # as Gymnasium's users do
        return super().step(actions)


def library(name: str) -> Any:
    """Return the adapter of a library."""
    return importlib.import_module(f"vecspaces.adapters.{name}")


NAMES = {
    **{name: getattr(spaces, name) for name in spaces.__all__},
    **{name: getattr(utils, name) for name in utils.__all__},
    **{name: getattr(kept, name) for name in ("Echo", "Failing", "Ledger", "Sampler")},
    **{name: getattr(kept, name) for name in ("Drift", "Tag", "Unlike")},
    **{name: getattr(kept, name) for name in ("observing", "rewarding", "talking")},
    "STUCK": Stuck(),
    "is_space_dtype_shape_equiv": flattening.is_space_dtype_shape_equiv,
    "make_vec": vecspaces.make_vec,
    "sample_actions": vecspaces.sample_actions,
    **globals(),
}


# --- the texts ----------------------------------------------------------------------------------


@cache
def sections() -> dict[str, list[doctest.Example]]:
    """Return the expressions of messages.txt and their texts, by heading."""
    examples: dict[str, list[doctest.Example]] = {}
    heading = ""
    for piece in doctest.DocTestParser().parse(GOLDEN.read_text(encoding="utf-8")):
        if isinstance(piece, doctest.Example):
            examples[heading].append(piece)
        elif "# " in piece:
            heading = piece.split("# ")[-1].strip()
            examples[heading] = []
    return examples


SECTIONS = [heading for heading in sections() if heading not in MISSING]
SETUP = compile("".join(example.source for example in sections()["Names"]), GOLDEN.name, "exec")
DEFINED = {example.source.partition(" = ")[0] for example in sections()["Names"]}


def provoke(example: doctest.Example) -> str:
    """Return what a user reads: warnings, then the text that is raised or returned."""
    namespace: dict[str, Any] = dict(NAMES)
    if not DEFINED.isdisjoint(re.findall(r"\w+", example.source)):  # most need none of them
        exec(SETUP, namespace)
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Other tests of this process may have left threads, such as those of libraries.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        warnings.simplefilter("ignore", ResourceWarning)  # of what they left to be collected
        try:
            result = eval(example.source, namespace)
            if isinstance(result, str):
                texts.append(result)
        except SyntaxError:  # a statement of the section of names
            return ""
        except Exception as error:
            texts.append(f"{type(error).__name__}: {error}")
    warned = [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    return "".join(f"{text}\n" for text in (*warned, *texts))


@pytest.mark.parametrize("heading", SECTIONS)
def test_texts_are_those_of_messages_txt(heading: str) -> None:
    wrong = []
    for example in sections()[heading]:
        text = provoke(example)
        if text != example.want:
            wrong.append(f">>> {example.source}{text}instead of\n{example.want}")
    assert not wrong, "\n".join(wrong)


def test_texts_have_the_right_article() -> None:
    texts = [example.want for examples in sections().values() for example in examples]
    assert not re.findall(r"\ba (?:[aei]|o(?!ne)|u(?!in|ni|se))\w*", "\n".join(texts))


def rewrite() -> None:
    """Write the texts of messages.txt anew."""
    written = heading = ""
    for piece in doctest.DocTestParser().parse(GOLDEN.read_text(encoding="utf-8")):
        if isinstance(piece, str):
            heading = piece.split("# ")[-1].strip() if "# " in piece else heading
            written += piece
        else:
            text = piece.want if heading in MISSING else provoke(piece)
            written += f">>> {'... '.join(piece.source.splitlines(keepends=True))}{text}"
    GOLDEN.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
