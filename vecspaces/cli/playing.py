"""What `evaluate` and `collect` share: options, the arguments made from them, the policy."""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from vecspaces.cli import options
from vecspaces.cli.console import announce
from vecspaces.cli.errors import refuse
from vecspaces.cli.sb3 import as_policy, load_model, load_statistics, warnings_before
from vecspaces.evaluation.play import PlayOptions

# Results of a network depend on the batch size, in their last bits.
_SB3_ROWS = 16


@dataclass(kw_only=True)
class Playing:
    """How a command plays episodes: its options, and what `check` and `load_policy` make of it."""

    env: options.Env
    env_arg: options.EnvArg = None
    policy: options.Policy = None
    sb3: options.Sb3 = None
    vecnormalize: options.VecNormalize = None
    episodes: options.Episodes = 100
    seed: options.Seed = None
    num_envs: options.MaxEnvs = None
    num_workers: options.NumWorkers = None
    agents: options.DictAgents = None
    backend: options.Backend = "async"
    step_timeout: options.StepTimeout = None
    context: options.StartMethod = None
    max_episode_steps: options.MaxEpisodeSteps = None
    max_retries: options.MaxRetries = 3
    batch_size: options.BatchSize = None
    env_kwargs: dict[str, Any] = field(init=False)
    vector_kwargs: dict[str, Any] = field(init=False)
    model: Any = field(init=False, default=None)

    def check(self, **rendering: Any) -> None:
        """Refuse wrong options before any work; `rendering` are arguments of the environment."""
        if (self.policy is None) == (self.sb3 is None):
            refuse("expected --policy MODULE:FUNCTION, --policy random, or --sb3 MODEL.ZIP")
        if self.vecnormalize is not None and self.sb3 is None:
            refuse("--vecnormalize: expected --sb3 MODEL.ZIP with it, found none")
        options.prepare(self.policy)
        self.env_kwargs = options.parse_env_args(self.env_arg)
        options.find_env(self.env, self.agents, **{**self.env_kwargs, **rendering})
        self.vector_kwargs = options.vector_options(
            self.backend, context=self.context, step_timeout=self.step_timeout
        )

    def load_policy(self) -> Any:
        """Return the policy; one of a model decides about `batch_size`."""
        if self.sb3 is None:
            return find_policy(self.policy)
        self.model = load_model(self.sb3)
        statistics = None
        if self.vecnormalize is not None:
            statistics = load_statistics(self.vecnormalize, self.model)
        warn(warnings_before(self.sb3, self.env, self.model, statistics))
        rows = _SB3_ROWS if self.batch_size is None else self.batch_size
        found = as_policy(self.model, statistics, rows)
        # A policy with a state takes all rows, and divides them itself.
        self.batch_size = None if hasattr(found, "reset") else rows
        return found

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `vecspaces.evaluate` and `vecspaces.collect` but the policy."""
        names = ("env", "episodes", *PlayOptions.__annotations__.keys() - {"options"})
        return {name: getattr(self, name) for name in names}


def takes_playing(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Playing`, before its own; it is called with a `Playing`."""
    shared = inspect.signature(Playing, eval_str=True).parameters
    _, *own = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def complete(**given: Any) -> None:
        command(Playing(**{name: given.pop(name) for name in shared}), **given)

    parameters = [*shared.values(), *(one.replace(kind=one.KEYWORD_ONLY) for one in own)]
    vars(complete)["__signature__"] = inspect.Signature(parameters)
    return complete


def warn(warnings: Iterable[str]) -> None:
    """Print warnings on standard error."""
    for warning in warnings:
        announce(f"vecspaces: warning: {warning}")


def find_policy(name: str | None) -> Any:
    """Return `"random"`, the function `module:function`, or an instance if it is a class."""
    if name == "random" or name is None:
        return "random"
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"--policy: expected module:function or random, found {name!r}")
    found = operator.attrgetter(attribute)(importlib.import_module(module))
    return found() if isinstance(found, type) else found
