"""PettingZoo's parallel environments: rows or Dicts of agents, also of those that are gone.

The interface is that of `pettingzoo.ParallelEnv`, which is not imported: any object with its
members is a parallel environment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces import spaces
from vecspaces.checks import show_value
from vecspaces.env import Env
from vecspaces.errors import InvalidObservationError, ResetNeededError
from vecspaces.interop import foreign_values, native_space, native_values
from vecspaces.layout import Mismatch
from vecspaces.spaces.equivalence import difference
from vecspaces.vector import AutoresetMode, VectorEnv
from vecspaces.vector.agents import AgentLayout, HasAgents, group_agents
from vecspaces.vector.engine.arguments import plan_reset
from vecspaces.vector.exchange.info_space import KEY_SPACES
from vecspaces.vector.exchange.infos import gather, merge, snapshot
from vecspaces.vector.group.form import InvalidResult, as_reward
from vecspaces.vector.utils import batch_space, concatenate, create_empty_array, iterate

__all__ = ["AgentDict", "AgentError", "AgentRows", "as_env", "as_vector_env"]

_MASK = "action_mask"
_FLAG = spaces.Box(0, 1, (), np.bool_)
_REQUIRED = ("possible_agents", "observation_space", "action_space", "reset", "step")


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
    """
    return AgentRows(parallel_env, autoreset_mode, state)


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
        >>> with as_env(Pair()) as env:
        ...     observation, info = env.reset(seed=0)
        ...     list(observation), bool(info["agents"]["alive"]["red"])
        (['red', 'green'], True)
    """
    return AgentDict(parallel_env, state)


class AgentError(ValueError):
    """A parallel environment violates PettingZoo's rules.

    Attributes:
        finding: The name of the finding in `vecspaces.testing.check_env`.
    """

    def __init__(self, finding: str, message: str) -> None:
        super().__init__(message)
        self.finding = finding


class _Adapter:
    """Passes on other attributes and methods, to the parallel environment."""

    parallel_env: Any

    @property
    def unwrapped(self) -> Any:
        """The parallel environment below all wrappers."""
        return getattr(self.parallel_env, "unwrapped", self.parallel_env)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "parallel_env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.parallel_env, name)


class AgentDict(_Adapter, Env[dict[str, Any], dict[str, Any]]):
    """A parallel environment as one environment, with Dicts by agent (`as_env`).

    `info["agents"]` has `rewards`, `terminations`, `truncations`, `alive`, `action_mask` and
    `infos` by agent; the info of the last step has each agent's return as `info["return/NAME"]`.
    Everything that the parallel environment returns is checked here.
    """

    agent_layout: AgentLayout = "dict"
    observation_space: spaces.Dict[Any]
    action_space: spaces.Dict[Any]

    def __init__(self, parallel_env: Any, state: bool) -> None:
        _check_parallel(parallel_env)
        self.parallel_env = parallel_env
        self.metadata = dict(getattr(parallel_env, "metadata", None) or {})
        self.render_mode = getattr(parallel_env, "render_mode", None)
        self._title = self.metadata.get("name", type(parallel_env).__name__)  # for messages
        self._ids = {str(agent): agent for agent in parallel_env.possible_agents}
        names = self.agent_names = list(self._ids)
        if len(names) < len(parallel_env.possible_agents) or not names:
            raise ValueError(
                f"possible_agents of {self._title} must be different names, at least one; found "
                f"{parallel_env.possible_agents}"
            )
        self.groups = group_agents(names)
        own = {name: self._space(name, "observation") for name in names}
        actions = {name: self._space(name, "action") for name in names}
        self._to_native = _translators(own, native_values)
        self._to_foreign = _translators(actions, foreign_values)
        self.observation_space = _by_agent({name: native_space(own[name]) for name in names})
        self.action_space = _by_agent({name: native_space(actions[name]) for name in names})
        # For agents with Discrete actions; masks of other actions stay in the infos.
        self.mask_spaces = {
            name: spaces.MultiBinary(int(space.n))
            for name, space in self.action_space.spaces.items()
            if isinstance(space, spaces.Discrete)
        }
        # The values for an agent without an observation: zeros, and a mask of ones.
        self.dead = {name: _absent(space) for name, space in self.observation_space.spaces.items()}
        # With the state, if it is wanted.
        self.shared_infos: dict[str, Any] = {}
        if state:
            space = getattr(parallel_env, "state_space", None)
            if space is None:
                raise ValueError(
                    f"state=True needs a state_space, which {self._title} does not have"
                )
            self.shared_infos["state"] = native_space(space)
        kept = {key: own for key, own in self.shared_infos.items() if isinstance(own, KEY_SPACES)}
        self.info_space = spaces.Dict(kept) if kept else None
        #: The agents whose next action will be used.
        self.alive: frozenset[str] = frozenset()
        self._everyone = frozenset(names)
        self._was_reset = self._gives_masks = False
        self._checks_spaces = 2  # resets
        # The agents whose last flag in this episode was a truncation, and the sums of rewards.
        self._truncated: set[str] = set()
        self._returns: dict[str, float] = {}
        # The function that reads the values of all agents at once.
        order = self._order = list(self._ids.values())
        self._take: Any = itemgetter(*order) if len(order) > 1 else lambda each: (each[order[0]],)
        # Observations with masks, and states, change declared infos in each step.
        has_masks = any(isinstance(dead, dict) and _MASK in dead for dead in self.dead.values())
        self._may_be_plain = not (self._to_native or self._to_foreign or has_masks or state)
        self._is_plain = False
        self._result: Any = None  # of the last step

    def _space(self, name: str, kind: str) -> Any:
        return getattr(self.parallel_env, f"{kind}_space")(self._ids[name])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode of all agents."""
        self.alive, self._is_plain = frozenset(), False
        result = self.parallel_env.reset(seed=seed, options=options)
        if self._checks_spaces:
            self._check_spaces()
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                f"{self._title} must return observations and infos from reset; it returned "
                f"{type(result).__name__}"
            )
        self._was_reset = True
        if not self.parallel_env.agents:
            text = f"{self._title} has no agents after reset: an episode needs one"
            raise AgentError("agent-missing", text)
        self._truncated, self._returns = set(), dict.fromkeys(self.agent_names, 0.0)
        return self._check(result[0], {}, {}, {}, result[1])

    def step(
        self, action: Mapping[str, Any]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take the actions of the agents that are alive; those of others are ignored."""
        if self._was_reset and not self.alive:
            raise ResetNeededError("step was called after the end of the episode: call reset()")
        self.act([action[name] if name in self.alive else None for name in self.agent_names])
        observation, info = self.read()
        by_agent, is_over = info["agents"], not self.alive
        for name, reward in by_agent["rewards"].items():
            self._returns[name] += reward
            if by_agent["terminations"][name]:
                self._truncated.discard(name)
            elif by_agent["truncations"][name]:
                self._truncated.add(name)
        if is_over:
            info.update((f"return/{name}", value) for name, value in self._returns.items())
        truncated = is_over and bool(self._truncated)
        reward = float(sum(by_agent["rewards"].values()))
        return observation, reward, is_over and not truncated, truncated, info

    def act(self, actions: Sequence[Any]) -> tuple[Any, Any] | None:
        """Take an action for each agent that is alive; `read` returns the results.

        A step is plain if only observations and rewards change: all agents were alive and still
        are, no flag is set, and no agent has an info. The observations and rewards of all agents
        are then returned. No step is taken once the episode is over.
        """
        order, take, env = self._order, self._take, self.parallel_env
        if not self._was_reset:
            raise ResetNeededError("step was called before the first reset: call reset() first")
        if not self._is_plain or env.agents != order:
            if self.alive:
                given = dict(zip(self.agent_names, actions, strict=True))
                for name, translate in self._to_foreign.items():
                    if name in self.alive:
                        given[name] = translate(given[name])
                self._result = env.step({agent: given[str(agent)] for agent in env.agents})
            return None
        self._result = env.step(dict(zip(order, actions)))  # noqa: B905  # its rows are the agents
        try:
            observations, rewards, terminations, truncations, infos = self._result
            count = len(order)
            if (
                len(observations) == len(rewards) == len(terminations) == len(truncations) == count
                and True not in take(terminations)
                and True not in take(truncations)
                and (len(infos) == 0 or (len(infos) == count and not any(take(infos))))
                and env.agents == order
            ):
                return take(observations), take(rewards)
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # `read` raises the error
        return None

    def read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the observation and the info of the last step."""
        result = self._result
        if not isinstance(result, tuple) or len(result) != 5:
            raise TypeError(
                f"{self._title} must return observations, rewards, terminations, truncations and "
                f"infos from step; it returned {type(result).__name__}"
            )
        return self._check(*result)

    def _check(
        self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Check what the environment returned; return the observation and the info."""
        acted, alive = self.alive, frozenset(map(str, self.parallel_env.agents))
        for name in sorted(alive - self._everyone):
            raise self._breach("agent-unknown", name, "is among agents, and not possible_agents")
        seen = self._by_name("observations", observations, acted | alive)
        for name in self._to_native.keys() & seen.keys():
            seen[name] = self._to_native[name](seen[name])
        own = self._by_name("infos", infos, acted | alive, optional=True)
        for name, given in own.items():
            try:
                own[name] = dict(given)
            except (TypeError, ValueError):
                raise self._misfit(name, "info", given, "a dict") from None
        masks = self._masks(seen, own, alive)
        numbers = self._by_name("rewards", rewards, acted)
        ends = [
            self._by_name("terminations", terminations, acted),
            self._by_name("truncations", truncations, acted),
        ]
        for name in [each for each in self.agent_names if each in acted]:
            is_over = any(each[name] for each in ends)
            if is_over == (name in alive):
                text = "has a flag, and is among agents still" if is_over else "left without a flag"
                text += ": an agent leaves agents in the step that terminates or truncates it"
                raise self._breach("agent-flag", name, text)
        self.alive = alive
        self._is_plain = self._may_be_plain and not self._gives_masks and alive == self._everyone
        names = self.agent_names
        by_agent: dict[str, Any] = {
            "rewards": {name: self._reward(name, numbers.get(name, 0.0)) for name in names},
            "terminations": {name: bool(ends[0].get(name)) for name in names},
            "truncations": {name: bool(ends[1].get(name)) for name in names},
            "alive": {name: name in alive for name in names},
        }
        if masks:
            by_agent[_MASK] = masks
        if any(own.values()):
            by_agent["infos"] = own
        info = {"agents": by_agent, **{key: self.parallel_env.state() for key in self.shared_infos}}
        # Copied, since the caller may keep or change an environment's observations.
        dead = self.dead
        return {n: seen[n] if n in seen else snapshot(dead[n]) for n in names}, info

    def _masks(
        self, seen: dict[str, Any], infos: dict[str, Any], alive: frozenset[str]
    ) -> dict[str, Any]:
        """Take the masks out of infos or observations; agents that are gone have ones."""
        masks = {}
        for name in self.mask_spaces:
            if _MASK in infos.get(name, ()):
                masks[name] = infos[name].pop(_MASK)
            if isinstance(seen.get(name), dict) and _MASK in seen[name]:
                masks[name] = seen[name][_MASK]
        self._gives_masks |= bool(masks)
        if not self._gives_masks:
            return {}
        return {
            name: self._mask(name, masks[name])
            if name in masks and name in alive
            else np.ones(space.shape, np.int8)
            for name, space in self.mask_spaces.items()
        }

    def _by_name(
        self, what: str, values: Any, needed: frozenset[str], optional: bool = False
    ) -> dict[str, Any]:
        """Return the values of the agents that need one, by their names, and ignore others."""
        if not isinstance(values, Mapping):
            raise TypeError(
                f"{self._title} must return {what} as a dict by agent; it returned "
                f"{type(values).__name__}"
            )
        named = {str(agent): value for agent, value in values.items()}
        for name in sorted(named.keys() - self._ids.keys()):
            text = f"has {what}, and is not among possible_agents: {', '.join(self._ids)}"
            raise self._breach("agent-unknown", name, text)
        for name in () if optional else self._ids:
            if name in needed and name not in named:
                text = f"has no {what}: every agent that acted needs them, and an agent that will"
                raise self._breach("agent-missing", name, f"{text} act next needs an observation")
        return {name: value for name, value in named.items() if name in needed}

    def _mask(self, name: str, value: Any) -> npt.NDArray[np.int8]:
        """Return an agent's mask as an array of zeros and ones."""
        shape, expected = self.mask_spaces[name].shape, "zeros and ones"
        with suppress(TypeError, ValueError):
            mask = np.asarray(value)
            if mask.shape != shape:
                expected = f"int8 array of shape {shape}"
            elif np.all(mask == mask.astype(np.bool_)):
                return mask.astype(np.int8)
        raise self._misfit(name, _MASK, value, expected)

    def _reward(self, name: str, value: Any) -> float:
        """Return an agent's reward as a float, from the types that plain steps take."""
        try:
            return as_reward(value)
        except InvalidResult:
            raise self._misfit(name, "reward", value, "a number") from None

    def _misfit(self, name: str, what: str, value: Any, expected: str) -> AgentError:
        return self._breach(what, name, f"has the {what} {show_value(value)}: expected {expected}")

    def _breach(self, finding: str, name: str, text: str) -> AgentError:
        return AgentError(finding, f"agent {name!r} of {self._title} {text}")

    def _check_spaces(self) -> None:
        """Refuse spaces that differ from those at the start; two resets are checked."""
        self._checks_spaces -= 1
        for kind, known in (
            ("observation", self.observation_space),
            ("action", self.action_space),
        ):
            for name, space in known.spaces.items():
                found = difference(space, native_space(self._space(name, kind)))
                if found is not None:
                    text = f"has another {kind} space than before: {found}"
                    raise self._breach("agent-space", name, text)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute of the parallel environment."""
        is_set = force or hasattr(self, name)
        if is_set:
            setattr(self.unwrapped, name, value)
        return is_set

    def render(self) -> Any:
        """Render the environment in its `render_mode`."""
        return self.parallel_env.render()

    def close(self) -> None:
        """Close the parallel environment."""
        self.parallel_env.close()


class AgentRows(_Adapter, HasAgents, VectorEnv[Any, Any, Any]):
    """A parallel environment as a vector env with one row per possible agent (`as_vector_env`)."""

    agent_layout = "rows"

    def __init__(self, parallel_env: Any, autoreset_mode: Any, state: bool) -> None:
        env = self._env = AgentDict(parallel_env, state)
        self.parallel_env, self.render_mode = parallel_env, env.render_mode
        self._agent_names, self.num_envs = env.agent_names, len(env.agent_names)
        self.rows_per_env = (self.num_envs,)
        self._mode = AutoresetMode.of(autoreset_mode)
        self.metadata = {**env.metadata, "autoreset_mode": self._mode}
        self.single_observation_space = _one_space(env.observation_space, "observation")
        self.single_action_space = _one_space(env.action_space, "action")
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        declared: dict[str, Any] = {"alive": _FLAG, "episode_over": _FLAG}
        if env.info_space is not None:
            declared.update(env.info_space.spaces)
        if env.mask_spaces:
            declared[_MASK] = env.mask_spaces[env.agent_names[0]]
        self.info_space = spaces.Dict(declared)
        self.has_acted = False

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of all agents; a `"reset_mask"` among the options must name all rows."""
        plan = plan_reset(seed, options, self.rows_per_env)
        given: Any = plan.options[0]
        observations, info = self._env.reset(seed=plan.seeds[0], options=given)
        self.has_acted = False
        return self._batch(observations), self._merge(self._infos(info))

    @property
    def act_ahead(self) -> Callable[[Sequence[Any]], tuple[Any, Any] | None]:
        """A function that takes actions; `step` is then called with `has_acted`, and takes none.

        It returns observations and rewards if the step is plain; `step` need not be called then.
        """
        return self._env.act

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take one action of every agent that is alive; the actions of other rows are ignored."""
        env = self._env
        if not self.has_acted:
            env.act(list(iterate(self.action_space, actions)))
        self.has_acted = False
        if not env.alive:
            if self._mode is AutoresetMode.DISABLED:
                raise ResetNeededError("the episode is over, and autoreset is DISABLED: call reset")
            observations, merged = self.reset()
            nothing = np.zeros(self.num_envs, np.bool_)
            return observations, np.zeros(self.num_envs), nothing, nothing.copy(), merged
        seen, info = env.read()
        rewards, terminations, truncations = (
            np.array(list(info["agents"][kind].values()))
            for kind in ("rewards", "terminations", "truncations")
        )
        infos, ended = self._infos(info), terminations | truncations
        merged = self._merge(infos)
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            rows = np.flatnonzero(ended).tolist()
            final = np.full(self.num_envs, None, dtype=object)
            for row in rows:  # copied, since a reset may overwrite it
                final[row] = snapshot(seen[self._agent_names[row]])
            last = {"final_obs": final, "final_info": self._merge({n: infos[n] for n in rows})}
            last.update({f"_{key}": ended.copy() for key in last})
            if not env.alive:
                observations, merged = self.reset()
                merged["episode_over"][:] = True
                return observations, rewards, terminations, truncations, {**merged, **last}
            merged.update(last)
            seen = {name: seen[name] if name in env.alive else env.dead[name] for name in seen}
        return self._batch(seen), rewards, terminations, truncations, merged

    def _batch(self, observations: Mapping[str, Any]) -> Any:
        space, rows = self.single_observation_space, [observations[n] for n in self._agent_names]
        try:
            return concatenate(space, rows, create_empty_array(space, self.num_envs))
        except Mismatch as error:
            name, reason = self._agent_names[error.row or 0], error.called("observation")
            text = f"agent {name!r} returned an invalid {reason}: expected {space}"
            raise InvalidObservationError(text) from None

    def _infos(self, info: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the info of each row."""
        by_agent = info["agents"]
        shared = {key: info[key] for key in self._env.shared_infos}
        shared["episode_over"] = not self._env.alive
        infos = {}
        for row, name in enumerate(self._agent_names):
            own = by_agent["infos"].get(name, {}) if "infos" in by_agent else {}
            infos[row] = {**own, **shared, "alive": by_agent["alive"][name]}
            if _MASK in by_agent:
                infos[row][_MASK] = by_agent[_MASK][name]
        return infos

    def _merge(self, infos: dict[int, dict[str, Any]]) -> dict[str, Any]:
        return merge([gather(infos)], self.num_envs)

    def render(self) -> tuple[Any, ...] | None:
        """Render the environment; every row gets the frame."""
        frame = self._env.render()
        return None if frame is None else (frame,) * self.num_envs

    def close_extras(self, **kwargs: Any) -> None:
        """Close the parallel environment; called by `close`."""
        self._env.close()


def _check_parallel(env: Any) -> None:
    """Refuse an object that is not a parallel environment."""
    if hasattr(env, "agent_selection") or hasattr(env, "agent_iter"):
        raise TypeError(
            f"expected a parallel environment, found {type(env).__name__}, whose agents step one "
            "after the other (AEC): turn it into one by pettingzoo.utils.aec_to_parallel"
        )
    missing = [name for name in _REQUIRED if not hasattr(env, name)]
    if missing:
        raise TypeError(
            f"expected a parallel environment of PettingZoo, found {type(env).__name__}, which "
            f"lacks {', '.join(missing)}"
        )


def _translators(
    own: Mapping[str, Any], find: Callable[[Any], Callable[[Any], Any] | None]
) -> dict[str, Callable[[Any], Any]]:
    """Return the functions that convert values, for the agents that need one."""
    found = {name: find(space) for name, space in own.items()}
    return {name: translate for name, translate in found.items() if translate is not None}


def _absent(space: spaces.Space[Any]) -> Any:
    """Return zeros, or the nearest value if a space has none; masks consist of ones."""
    if isinstance(space, spaces.Dict):
        values = {key: _absent(each) for key, each in space.spaces.items()}
        return {**values, _MASK: np.ones_like(values[_MASK])} if _MASK in values else values
    if isinstance(space, spaces.Tuple):
        return tuple(map(_absent, space.spaces))
    if isinstance(space, spaces.OneOf):
        return np.int64(0), _absent(space.spaces[0])
    empty = create_empty_array(space, 1)
    if empty is None:  # for values that are not arrays: always the same value
        space = copy.deepcopy(space)
        space.seed(0)
        return space.sample()
    (zeros,) = iterate(batch_space(space, 1), empty)
    if isinstance(space, spaces.Box):
        return np.clip(zeros, space.low, space.high)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        return np.clip(zeros, space.start, space.start + counts - 1)
    return zeros


def _by_agent(each: Mapping[str, spaces.Space[Any]]) -> spaces.Dict[Any]:
    return spaces.Dict(each, sort_keys=False)  # in the order of possible_agents


def _one_space(each: spaces.Dict[Any], kind: str) -> spaces.Space[Any]:
    """Return the space, which is equal for all agents."""
    (first, space), *others = each.spaces.items()
    for name, other in others:
        found = difference(space, other)
        if found is not None:
            raise ValueError(
                f"agents='rows' needs equal {kind} spaces, and those of {first!r} and {name!r} "
                f"differ: {found}: use agents='dict' (as_env)"
            )
    return space
