"""The public names: pinned, and no fewer than Gymnasium's."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import vecspaces
from tests.programs import run_python
from vecspaces import make_vec
from vecspaces.vector import AsyncVectorEnv, RayVectorEnv, SyncVectorEnv, ThreadVectorEnv
from vecspaces.vector.options import MakeOptions

PUBLIC = {
    "vecspaces": {
        "Env", "Episode", "Evaluation", "Space", "__version__", "collect", "envs",
        "errors", "evaluate", "make_vec", "sample_actions", "spaces", "vector", "wrappers",
    },
    "vecspaces.aio": {"Pool", "PoolEnv", "PoolStats"},
    "vecspaces.spaces": {
        "Box", "Dict", "Discrete", "Graph", "GraphInstance", "MultiBinary", "MultiDiscrete",
        "OneOf", "Sequence", "Space", "Text", "Tuple", "difference", "flatdim", "flatten",
        "flatten_space", "from_description", "to_description", "unflatten",
    },
    "vecspaces.vector": {
        "AsyncVectorEnv", "AutoresetMode", "RayVectorEnv", "Rollout", "Stats",
        "SyncVectorEnv", "ThreadVectorEnv", "Transition", "VectorActionWrapper", "VectorEnv",
        "VectorObservationWrapper", "VectorRewardWrapper", "VectorState", "VectorWrapper",
        "infos_as_list", "merge_infos", "utils",
    },
    "vecspaces.vector.utils": {
        "CloudpickleWrapper", "batch_differing_spaces", "batch_space", "clear_mpi_env_vars",
        "concatenate", "create_empty_array", "create_shared_memory", "iterate",
        "read_from_shared_memory", "write_to_shared_memory",
    },
    "vecspaces.envs": {"ActionChunks", "Tasks", "VectorReward"},
    "vecspaces.testing": {"Finding", "Report", "check_env"},
    "vecspaces.wrappers": {
        "ClipAction", "ClipReward", "DtypeObservation", "FilterObservation", "FlattenObservation",
        "NormalizeObservation", "NormalizeReward",
        "RecordEpisodeStatistics", "RecordVideo", "RescaleAction", "RescaleObservation",
        "RunningMeanStd", "TransformAction", "TransformObservation",
        "TransformReward",
    },
    "vecspaces.adapters.gymnasium": {
        "AsyncVectorEnv", "GymnasiumVectorEnv", "SyncVectorEnv", "as_gymnasium", "from_gymnasium",
        "make_vec", "to_gymnasium",
    },
    "vecspaces.errors": {
        "AlreadyPendingCallError", "ClosedEnvironmentError", "CustomSpaceError",
        "FailedCheckError", "InvalidActionError", "InvalidFlagError", "InvalidInfoError",
        "InvalidObservationError", "InvalidRewardError", "NoAsyncCallError", "ResetNeededError",
        "SlowEnvironmentWarning", "StepTimeoutError", "VecspacesError", "WorkerDiedError",
        "WorkerError",
    },
}  # fmt: skip

GYMNASIUM = {name: name.replace("vecspaces", "gymnasium") for name in list(PUBLIC)[2:5]}
GYMNASIUM["vecspaces.wrappers"] = "gymnasium.wrappers.vector"


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_names_are_these(name: str) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) == set(dir(module)) == PUBLIC[name]
    assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize(("ours", "theirs"), GYMNASIUM.items())
def test_names_and_signatures_of_gymnasium_are_there_or_differences_are_on_the_page(
    ours: str, theirs: str
) -> None:
    modules = [importlib.import_module(name) for name in (ours, theirs)]
    differences = set[str]()
    for name in set(modules[1].__all__) - {"utils", "AutoresetMode", "CloudpickleWrapper"}:
        if not hasattr(modules[0], name):
            differences.add(name)
            continue
        mine, its = (getattr(module, name) for module in modules)
        if not _takes(mine, its):
            differences.add(name)
        for attribute in dir(its) if inspect.isclass(its) else ():
            is_described = re.search(rf"^ *{attribute}: ", mine.__doc__, re.MULTILINE)
            if attribute.startswith("_") or (is_described and not hasattr(mine, attribute)):
                continue
            function = inspect.getattr_static(its, attribute)
            ours_value = getattr(mine, attribute, None)
            if not hasattr(mine, attribute) or (
                inspect.isfunction(function) and not _takes(ours_value, function)
            ):
                differences.add(f"{name}.{attribute}")
    page = Path(__file__).parents[1].joinpath("docs", "gymnasium.md").read_text(encoding="utf-8")
    assert {name for name in differences if f"`{name}`" not in page} == set()


def _takes(ours: Any, theirs: Any) -> bool:
    """Whether all arguments of one function come first in the other, with the same defaults."""
    expected, arguments = _arguments(theirs), _arguments(ours)
    places = zip(expected, arguments[: len(expected)], strict=False)
    return len(arguments) >= len(expected) and all(
        (name, default) == (other, value) and (by_name or not only_by_name)
        for (name, default, by_name), (other, value, only_by_name) in places
    )


def _arguments(function: Any) -> list[tuple[str, Any, bool]]:
    """Names, defaults (an enum's member by its value), and whether passed by name alone.

    `**kwargs` are left out.
    """
    return [
        (
            parameter.name,
            getattr(parameter.default, "value", parameter.default),
            parameter.kind is parameter.KEYWORD_ONLY,
        )
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]


def test_public_modules_are_there_after_a_plain_import() -> None:
    program = (
        "import vecspaces; vecspaces.errors, vecspaces.spaces.Box, vecspaces.vector.utils;"
        "print(vecspaces.wrappers.RecordVideo.__name__, *dir(vecspaces))"
    )
    run = run_python("-c", program)
    assert run.stdout.split() == ["RecordVideo", *sorted(PUBLIC["vecspaces"])]


def test_errors_that_gymnasium_has_too_have_its_names() -> None:
    shared = PUBLIC["vecspaces.errors"] & set(dir(gymnasium.error))
    assert len(shared) == 4
    for name in shared:
        assert issubclass(getattr(vecspaces.errors, name), vecspaces.errors.VecspacesError)


def test_options_of_make_vec_are_its_arguments_and_those_of_the_constructors() -> None:
    # The signature of an overloaded function has the parameters of its implementation.
    arguments = {
        name: str(parameter.annotation)
        for function in (RayVectorEnv, SyncVectorEnv, AsyncVectorEnv, ThreadVectorEnv, make_vec)
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in ("env_fns", "env", "num_envs", "backend", "kwargs")
    }
    arguments |= {"agents": "Literal['dict'] | None", "render_mode": "str | None"}
    # TypedDict wraps what is written into a ForwardRef.
    options = MakeOptions.__annotations__.items()
    assert {name: reference.__forward_arg__ for name, reference in options} == arguments


@pytest.mark.parametrize(
    "vector_env", [SyncVectorEnv, AsyncVectorEnv, RayVectorEnv, ThreadVectorEnv]
)
def test_every_argument_of_a_constructor_is_described_in_order(vector_env: type) -> None:
    described, arguments = _described(vector_env), list(inspect.signature(vector_env).parameters)
    if vector_env in (RayVectorEnv, ThreadVectorEnv):  # the other arguments: as AsyncVectorEnv
        assert set(arguments) - set(described) < set(_described(AsyncVectorEnv))
        arguments = [name for name in arguments if name in described]
    assert described == arguments
    with pytest.raises(TypeError, match=r"VectorEnv.__init__\(\) got an unexpected .* 'bufers'"):
        vector_env([], bufers=2)


def _described(kind: type) -> list[str]:
    section = (inspect.getdoc(kind) or "").partition("Args:\n")[2].partition("\n\n")[0]
    return re.findall(r"^ {4}(\w+): ", section, re.MULTILINE)


def test_defaults_of_the_arguments_that_gymnasium_lacks() -> None:
    parameters = inspect.signature(AsyncVectorEnv).parameters.values()
    assert {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY} == {
        "num_workers": None,
        "batch_size": None,
        "buffers": 1,
        "variable_capacity": 65536,
        "on_worker_death": "raise",
        "max_restarts": 3,
        "restart_window": 60.0,
        "step_timeout": None,
        "on_step_timeout": "raise",
        "start_timeout": 300.0,
        "slow_warning": 60.0,
        "worker_threads": 1,
        "stats": False,
        "validate": False,
        "info_space": None,
        "worker_init_fn": None,
    }
