"""PettingZoo's parallel environments: rows or Dicts of agents, also of those that are gone.

Example:
    >>> from vecspaces import spaces
    >>> class Pair:
    ...     possible_agents = agents = ["red", "green"]
    ...     observation_space = action_space = staticmethod(lambda agent: spaces.Discrete(2))
    ...
    ...     def reset(self, seed=None, options=None):
    ...         return {"red": 0, "green": 1}, {"red": {}, "green": {}}
    ...
    ...     def step(self, actions):
    ...         rewards, flags = dict.fromkeys(actions, 1.0), dict.fromkeys(actions, False)
    ...         return actions, rewards, flags, flags, {agent: {} for agent in actions}
    ...
    ...     def close(self):
    ...         pass
    >>> with as_vector_env(Pair()) as env:
    ...     observations, infos = env.reset(seed=0)
    ...     env.agent_names, observations.tolist(), infos["alive"].tolist()
    (['red', 'green'], [0, 1], [True, True])
    >>> with as_env(Pair()) as env:
    ...     observation, info = env.reset(seed=0)
    ...     list(observation), bool(info["agents"]["alive"]["red"])
    (['red', 'green'], True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from vecspaces.adapters.agents import AgentRows
from vecspaces.adapters.parallel_env import AgentDict, AgentError, AgentStack, group_agents
from vecspaces.vector import AutoresetMode, SyncVectorEnv
from vecspaces.vector.engine.batch_spaces import SpacesDifferError
from vecspaces.vector.exchange.info_space import check_info_space

__all__ = ["AgentDict", "AgentError", "AgentRows", "as_env", "as_vector_env", "make_agents"]


def as_vector_env(
    parallel_env: Any,
    *,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    state: bool = False,
) -> AgentRows:
    """Convert a parallel environment to a vector env with one row per possible agent.

    Args:
        parallel_env: The environment; all agents have equal spaces.
        autoreset_mode: When a new episode begins, after no agent is left.
        state: Whether `infos["state"]` is what `parallel_env.state()` returns.

    Returns:
        A vector env whose rows are the possible agents, in their order.

    Raises:
        TypeError: `parallel_env` is no parallel environment.
        ValueError: The agents' spaces differ, or there is no `state_space`.
    """
    arguments = {"autoreset_mode": autoreset_mode}
    envs: AgentRows = make_agents("rows", SyncVectorEnv, [lambda: parallel_env], state, arguments)
    return envs


def as_env(parallel_env: Any, *, state: bool = False) -> AgentDict:
    """Convert a parallel environment to one environment whose spaces are Dicts by agent.

    Args:
        parallel_env: The environment.
        state: Whether `info["state"]` is what `parallel_env.state()` returns.

    Returns:
        An environment. Its reward is the sum over the agents. When no agent is left, it is
        terminated if each agent's last flag was a termination, and otherwise truncated.

    Raises:
        TypeError: `parallel_env` is no parallel environment.
        ValueError: There is no `state_space`.
    """
    return AgentDict(parallel_env, state)


def make_agents(
    layout: str,
    kind: Callable[..., Any],
    env_fns: Sequence[Callable[[], Any]],
    state: bool,
    arguments: Mapping[str, Any],
) -> Any:
    """Make a vector env of class `kind` of factories of parallel environments."""
    if layout == "dict":
        envs = kind([partial(_adapt, env_fn, AgentDict, state) for env_fn in env_fns], **arguments)
        names = list(envs.single_action_space.spaces)
        vars(envs).update(agent_layout="dict", agent_names=names, groups=group_agents(names))
        return envs
    options = dict(arguments)
    for name, usual in (("batch_size", None), ("observation_mode", "same")):
        if options.pop(name, usual) != usual:
            raise ValueError(
                f"{name}: agents='rows' takes only {usual!r}: all rows have equal spaces, and "
                "recv(count) receives some of them"
            )
    copies = options.pop("copy", True)
    info_space = check_info_space(options.pop("info_space", None))
    stacks = [partial(_adapt, env_fn, AgentStack, state, info_space) for env_fn in env_fns]
    try:
        envs = kind(stacks, copy=False, **options)
    except SpacesDifferError as error:
        raise SpacesDifferError(
            "agents='rows' needs environments with the same number of agents, and equal spaces "
            f"(a vector env of as_vector_env takes different numbers): {error}"
        ) from None
    try:
        return AgentRows(envs, copy=copies, buffers=options.get("buffers", 1))
    except BaseException:
        envs.close(terminate=True)
        raise


def _adapt(env_fn: Callable[[], Any], adapter: Callable[..., Any], *arguments: Any) -> Any:
    return adapter(env_fn(), *arguments)
