"""Parallel environments as environments of one agent, and the checks of what they return.

The interface is that of `pettingzoo.ParallelEnv`, which is not imported: any object with its
members is a parallel environment.
"""

from __future__ import annotations

import copy
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

import vecspaces.vector  # noqa: F401 (first, for threads that import both)
from vecspaces import spaces
from vecspaces.checks import show_value
from vecspaces.env import Env
from vecspaces.errors import InvalidInfoError, InvalidObservationError, ResetNeededError
from vecspaces.interop import foreign_values, native_space, native_values
from vecspaces.layout import Mismatch
from vecspaces.spaces.batch_values import ARRAY_SPACES
from vecspaces.spaces.equivalence import difference
from vecspaces.vector.exchange.info_space import KEY_SPACES
from vecspaces.vector.exchange.snapshots import snapshot
from vecspaces.vector.group.form import InvalidResult, as_reward
from vecspaces.vector.utils import batch_space, concatenate, create_empty_array, iterate

MASK = "action_mask"
#: The infos that every row has.
OF_ALL = ("alive", "episode_over")
#: The row of `flags` in the record of an `AgentStack` that says who is alive.
ALIVE = 2
_FLAG = spaces.Box(0, 1, (), np.bool_)
_REQUIRED = ("possible_agents", "observation_space", "action_space", "reset", "step")


def group_agents(names: Sequence[str]) -> dict[str, list[str]]:
    """Group agents by their names without the number at the end.

    Example:
        >>> group_agents(["adversary_0", "adversary_1", "agent_0"])
        {'adversary': ['adversary_0', 'adversary_1'], 'agent': ['agent_0']}
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"[_-]?\d+$", "", name) or name, []).append(name)
    return groups


class AgentError(ValueError):
    """A parallel environment violates PettingZoo's rules.

    Attributes:
        finding: The name of the finding in `vecspaces.testing.check_env`.
    """

    def __init__(self, finding: str, message: str) -> None:
        super().__init__(message)
        self.finding = finding


class AgentDict(Env[Any, Any]):
    """A parallel environment as one environment, with Dicts by agent (`as_env`).

    `info["agents"]` has `rewards`, `terminations`, `truncations`, `alive`, `action_mask` and
    `infos` by agent; the info of the last step has each agent's return as `info["return/NAME"]`.
    Everything that the parallel environment returns is checked here.
    """

    observation_space: Any
    action_space: Any

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
        observed = {name: self._space(name, "observation") for name in names}
        actions = {name: self._space(name, "action") for name in names}
        self._to_native = _translators(observed, native_values)
        self._to_foreign = _translators(actions, foreign_values)
        self.observation_space = _by_agent({name: native_space(observed[name]) for name in names})
        self.action_space = _by_agent({name: native_space(actions[name]) for name in names})
        self._known_spaces = {
            "observation": self.observation_space.spaces,
            "action": self.action_space.spaces,
        }
        # For agents with Discrete actions; masks of other actions stay in the infos.
        self.mask_spaces = {
            name: spaces.MultiBinary(int(space.n))
            for name, space in self.action_space.spaces.items()
            if isinstance(space, spaces.Discrete)
        }
        # The values for an agent without an observation: zeros, and a mask of ones.
        self.dead = {
            name: absent_value(space) for name, space in self.observation_space.spaces.items()
        }
        self.info_space, self._has_state = None, state
        if state:
            space = getattr(parallel_env, "state_space", None)
            if space is None:
                raise ValueError(
                    f"state=True needs a state_space, which {self._title} does not have"
                )
            space = native_space(space)
            if isinstance(space, KEY_SPACES):
                self.info_space = spaces.Dict(state=space)
        #: The agents whose next action will be used.
        self.alive: frozenset[str] = frozenset()
        self._everyone = frozenset(names)
        self._was_reset = self._gives_masks = False
        self._checks_spaces = 2  # resets
        # The agents whose last flag in this episode was a truncation, and the sums of rewards.
        self._truncated: set[str] = set()
        self._returns: dict[str, float] = {}

    def _space(self, name: str, kind: str) -> Any:
        return getattr(self.parallel_env, f"{kind}_space")(self._ids[name])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        self.alive = frozenset()
        result = self.parallel_env.reset(seed=seed, options=options)
        if self._checks_spaces:
            self._check_spaces()
        observations, infos = self._unpack(result, "reset", "observations and infos", 2)
        self._was_reset = True
        if not self.parallel_env.agents:
            text = f"{self._title} has no agents after reset: an episode needs one"
            raise AgentError("agent-missing", text)
        self._truncated, self._returns = set(), dict.fromkeys(self.agent_names, 0.0)
        return self._check(observations, {}, {}, {}, infos)

    def step(
        self, action: Mapping[str, Any]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take the actions of the agents that are alive; those of others are ignored."""
        observation, info = self._act(action)
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

    def _act(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Take the actions of the agents that are alive; return the observation and the info."""
        if not self.alive:
            when = "after the end of the episode: call reset()"
            if not self._was_reset:
                when = "before the first reset: call reset() first"
            raise ResetNeededError(f"step was called {when}")
        native = {agent: actions[str(agent)] for agent in self.parallel_env.agents}
        for name, translate in self._to_foreign.items():
            if name in self.alive:
                native[self._ids[name]] = translate(native[self._ids[name]])
        return self._read(self.parallel_env.step(native))

    def _read(self, result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the observation and the info of what a step returned."""
        parts = "observations, rewards, terminations, truncations and infos"
        return self._check(*self._unpack(result, "step", parts, 5))

    def _unpack(self, result: Any, method: str, parts: str, count: int) -> tuple[Any, ...]:
        if isinstance(result, tuple) and len(result) == count:
            return result
        actual = type(result).__name__
        raise TypeError(f"{self._title} must return {parts} from {method}; it returned {actual}")

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
        info_by_name = self._by_name("infos", infos, acted | alive, optional=True)
        for name, info in info_by_name.items():
            try:
                info_by_name[name] = dict(info)
            except (TypeError, ValueError):
                raise self._misfit(name, "info", info, "a dict") from None
        masks = self._masks(seen, info_by_name, alive)
        numbers = self._by_name("rewards", rewards, acted)
        ends = [
            self._by_name("terminations", terminations, acted),
            self._by_name("truncations", truncations, acted),
        ]
        for name in [agent for agent in self.agent_names if agent in acted]:
            is_over = any(flags[name] for flags in ends)
            if is_over == (name in alive):
                text = "has a flag, and is among agents still" if is_over else "left without a flag"
                text += ": an agent leaves agents in the step that terminates or truncates it"
                raise self._breach("agent-flag", name, text)
        self.alive = alive
        names = self.agent_names
        by_agent: dict[str, Any] = {
            "rewards": {name: self._reward(name, numbers.get(name, 0.0)) for name in names},
            "terminations": {name: bool(ends[0].get(name)) for name in names},
            "truncations": {name: bool(ends[1].get(name)) for name in names},
            "alive": {name: name in alive for name in names},
        }
        if masks:
            by_agent[MASK] = masks
        if any(info_by_name.values()):
            by_agent["infos"] = info_by_name
        info = {"agents": by_agent}
        if self._has_state:
            info["state"] = self.parallel_env.state()
        # Copied, since the caller may keep or change an environment's observations.
        dead = self.dead
        return {n: seen[n] if n in seen else snapshot(dead[n]) for n in names}, info

    def _masks(
        self, seen: dict[str, Any], infos: dict[str, Any], alive: frozenset[str]
    ) -> dict[str, Any]:
        """Take the masks out of infos or observations; agents that are gone have ones."""
        masks = {}
        for name in self.mask_spaces:
            if MASK in infos.get(name, ()):
                masks[name] = infos[name].pop(MASK)
            if isinstance(seen.get(name), dict) and MASK in seen[name]:
                masks[name] = seen[name][MASK]
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
        """Return the values of the agents that need a value, by name, and ignore others."""
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
        raise self._misfit(name, MASK, value, expected)

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
        for kind, known in self._known_spaces.items():
            for name, space in known.items():
                text = difference(space, native_space(self._space(name, kind)))
                if text is not None:
                    text = f"has another {kind} space than before: {text}"
                    raise self._breach("agent-space", name, text)

    def lost_info(self, first: Mapping[str, Any]) -> dict[str, Any]:
        """Return the info of the step that ends an episode lost with its worker.

        All agents are truncated. `first` is the info of the reset that follows; a wrapper may have
        removed the agents from its infos.
        """
        values = {"rewards": 0.0, "terminations": False, "truncations": True, "alive": False}
        last: dict[str, Any] = {
            kind: dict.fromkeys(self.agent_names, value) for kind, value in values.items()
        }
        by_agent = first.get("agents", {})
        if MASK in by_agent:
            masks = by_agent[MASK].items()
            last[MASK] = {name: np.ones_like(mask) for name, mask in masks}
        return {"agents": last} if by_agent else {}

    @property
    def unwrapped(self) -> Any:
        """The parallel environment below all wrappers."""
        return getattr(self.parallel_env, "unwrapped", self.parallel_env)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "parallel_env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.parallel_env, name)

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


class AgentStack(AgentDict):
    """The same with arrays of all agents, which `AgentRows` shows as rows.

    Its observation is a Dict: `observation` is a batch of the agents' observations, and `record`
    the bytes of a structured array. Its fields are `rewards`, one per agent; `flags`, whose rows
    are terminations, truncations, who is alive, and who reports each declared info; and the values
    of these infos. Other infos are one dict per agent in `info["agents"]`.
    """

    def __init__(
        self, parallel_env: Any, state: bool, info_space: spaces.Dict[Any] | None = None
    ) -> None:
        super().__init__(parallel_env, state)
        names, count = self.agent_names, len(self.agent_names)
        single = _common_space(self.observation_space, "observation")
        action = _common_space(self.action_space, "action")
        if info_space is None:
            shared = {} if self.info_space is None else self.info_space.spaces
            declared = {**dict.fromkeys(OF_ALL, _FLAG), **shared}
            if self.mask_spaces:
                declared[MASK] = self.mask_spaces[names[0]]
            info_space = spaces.Dict(declared)
        infos: dict[str, Any] = {key: info_space[key] for key in info_space if key not in OF_ALL}
        fields: list[Any] = [
            ("rewards", "f8", (count,)),
            ("flags", "?", (ALIVE + 1 + len(infos), count)),
        ]
        for key, space in infos.items():
            fields.append((f"info {key}", space.dtype, (count, *space.shape)))
        self._dtype = np.dtype(fields, align=True)
        #: What `AgentRows` asks for.
        self.description = names, single, action, info_space, self._dtype
        self.info_space, self.action_space = None, batch_space(action, count)
        self.observation_space = spaces.Dict(
            observation=batch_space(single, count),
            record=spaces.Box(0, 255, (self._dtype.itemsize,), np.uint8),
        )
        self._record: Any = np.zeros(self._dtype.itemsize, np.uint8)
        self._infos = infos
        # The function that reads the values of all agents at once.
        order = self._order = list(self._ids.values())
        self._take: Any = itemgetter(*order) if count > 1 else lambda mapping: (mapping[order[0]],)
        # Whether a step may be plain: then only observations and rewards change, because all
        # agents are alive before and after it, no flag is set, and no agent has an info.
        arrays = isinstance(single, ARRAY_SPACES) and isinstance(action, ARRAY_SPACES)
        self._may_be_plain = arrays and not (self._to_native or self._to_foreign or state)
        self._plain: Any = {"observation": None, "record": self._record}, 0.0, False, False, {}
        record: Any = self._record
        self._pack_rewards = partial(struct.pack_into, f"{count}d", record, 0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        return self._stack(*super().reset(seed=seed, options=options))

    def step(self, action: Any) -> Any:
        """Take the actions of the agents that are alive; those of others are ignored."""
        order, take, env = self._order, self._take, self.parallel_env
        if not self._is_plain or env.agents != order:
            pairs = zip(self.agent_names, iterate(self.action_space, action), strict=True)
            return self._end_step(*self._act(dict(pairs)))
        result = env.step(dict(zip(order, action)))  # noqa: B905  # its rows are the agents
        try:
            observations, rewards, terminations, truncations, infos = result
            count = len(order)
            if (
                len(observations) == len(rewards) == len(terminations) == len(truncations) == count
                and True not in take(terminations)
                and True not in take(truncations)
                and (len(infos) == 0 or (len(infos) == count and not any(take(infos))))
                and env.agents == order
            ):
                self._pack_rewards(*take(rewards))
                # The vector env writes the tuples of all environments in one pass.
                self._plain[0]["observation"] = take(observations)
                return self._plain
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError, struct.error):
            pass  # `_read` raises the error, or converts the rewards
        return self._end_step(*self._read(result))

    def _end_step(self, seen: dict[str, Any], info: dict[str, Any]) -> Any:
        observation, info = self._stack(seen, info)
        return observation, 0.0, not self.alive, False, info

    def _stack(
        self, seen: dict[str, Any], info: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the observation and the infos of Dicts by agent."""
        by_agent, names = info["agents"], self.agent_names
        shared = {"state": info["state"]} if self._has_state else {}
        infos = [{**by_agent.get("infos", {}).get(name, {}), **shared} for name in names]
        for info_, name in zip(infos, names, strict=True):
            if MASK in by_agent:
                info_[MASK] = by_agent[MASK][name]
        self._record[:] = 0
        record = self._record.view(self._dtype)[0]
        record["rewards"] = list(by_agent["rewards"].values())
        for place, kind in enumerate(("terminations", "truncations", "alive")):
            record["flags"][place] = list(by_agent[kind].values())
        for place, (key, space) in enumerate(self._infos.items(), ALIVE + 1):
            has_key = record["flags"][place] = [key in info_ for info_ in infos]
            if any(has_key):
                reported = [info_.pop(key) for info_ in infos if key in info_]
                record[f"info {key}"][has_key] = self._join(
                    space, reported, "info", has_key, (key,)
                )
        everyone = len(self.alive) == len(names)
        self._is_plain = self._may_be_plain and everyone and not self._gives_masks
        observation = self._join(self.description[1], seen.values(), "observation")
        shown = {"observation": observation, "record": self._record}
        return shown, {"agents": infos} if any(infos) else {}

    def _join(
        self, space: Any, values: Any, what: str, reporting: Any = None, path: tuple[str, ...] = ()
    ) -> Any:
        """Put the values of all agents, or of the `reporting` agents, into a batch."""
        try:
            return concatenate(space, values, None)
        except Mismatch as error:
            names = [n for n, has in zip(self.agent_names, reporting or repeat(True)) if has]  # noqa: B905  # endless
            reason = Mismatch(error.expected, error.actual, path + error.path, name=what)
            text = f"agent {names[error.row or 0]!r} of {self._title} returned an invalid {reason}"
            kind = InvalidInfoError if reporting else InvalidObservationError
            raise kind(text) from None

    def lost_info(self, first: Mapping[str, Any]) -> dict[str, Any]:
        """Return an empty info: `AgentRows` stores which agents were alive."""
        return {}


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
    spaces_by_agent: Mapping[str, Any], find: Callable[[Any], Callable[[Any], Any] | None]
) -> dict[str, Callable[[Any], Any]]:
    """Return the functions that convert values, for the agents that need a conversion."""
    functions = {name: find(space) for name, space in spaces_by_agent.items()}
    return {name: translate for name, translate in functions.items() if translate is not None}


def absent_value(space: spaces.Space[Any]) -> Any:
    """Return zeros, or a constant value if a space has none; masks consist of ones."""
    if isinstance(space, spaces.Dict):
        values = {key: absent_value(member) for key, member in space.spaces.items()}
        return {**values, MASK: np.ones_like(values[MASK])} if MASK in values else values
    if isinstance(space, spaces.Tuple):
        return tuple(map(absent_value, space.spaces))
    empty = create_empty_array(space, 1)
    if empty is not None:
        (zeros,) = iterate(batch_space(space, 1), empty)
        if zeros in space:
            return zeros
    space = copy.deepcopy(space)
    space.seed(0)
    return space.sample()


def _by_agent(members: Mapping[str, spaces.Space[Any]]) -> spaces.Dict[Any]:
    return spaces.Dict(members, sort_keys=False)  # in the order of possible_agents


def _common_space(by_agent: spaces.Dict[Any], kind: str) -> spaces.Space[Any]:
    """Return the space, which is equal for all agents."""
    (first, space), *others = by_agent.spaces.items()
    for name, other in others:
        text = difference(space, other)
        if text is not None:
            raise ValueError(
                f"agents='rows' needs equal {kind} spaces, and those of {first!r} and {name!r} "
                f"differ: {text}: use agents='dict' (as_env)"
            )
    return space
