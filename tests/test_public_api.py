"""The public names: pinned, and no fewer than Gymnasium's."""

from __future__ import annotations

import importlib
import inspect
import re
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
        "FrameStackObservation", "NormalizeObservation", "NormalizeReward",
        "RecordEpisodeStatistics", "RecordVideo", "RescaleAction", "RescaleObservation",
        "RunningMeanStd", "TimeAwareObservation", "TransformAction", "TransformObservation",
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


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_names_are_these(name: str) -> None:
    module = importlib.import_module(name)
    assert set(module.__all__) == set(dir(module)) == PUBLIC[name]
    assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize(("ours", "theirs"), GYMNASIUM.items())
def test_names_attributes_and_arguments_of_gymnasium_are_there(ours: str, theirs: str) -> None:
    modules = [importlib.import_module(name) for name in (ours, theirs)]
    names = set(modules[1].__all__)
    assert names - PUBLIC[ours] == set()
    for name in sorted(names - {"utils"}):
        mine, its = (getattr(module, name) for module in modules)
        if inspect.isclass(its):
            attributes = {attribute for attribute in dir(its) if not attribute.startswith("_")}
            assert attributes - set(dir(mine)) == set(), name
        if name not in ("AutoresetMode", "CloudpickleWrapper"):
            # They come first, in the same order.
            expected = _arguments(its)
            assert _arguments(mine)[: len(expected)] == expected, name


def _arguments(function: Any) -> list[tuple[str, Any]]:
    """Names and defaults, `**kwargs` left out; an enum's member by its value."""
    return [
        (parameter.name, getattr(parameter.default, "value", parameter.default))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
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
    arguments |= {"agents": "AgentLayout | None", "render_mode": "str | None"}
    # TypedDict wraps what is written into a ForwardRef.
    options = MakeOptions.__annotations__.items()
    assert {name: reference.__forward_arg__ for name, reference in options} == arguments


@pytest.mark.parametrize(
    "vector_env", [SyncVectorEnv, AsyncVectorEnv, RayVectorEnv, ThreadVectorEnv]
)
def test_every_argument_of_a_constructor_is_described_in_order(vector_env: type) -> None:
    described, arguments = _described(vector_env), list(inspect.signature(vector_env).parameters)
    if vector_env is RayVectorEnv:
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
    assert {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY} == {
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
