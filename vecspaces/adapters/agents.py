"""Vector envs of parallel environments: agents as rows, or as keys of Dicts.

The workers step environments of a single agent: an `AgentStack`, whose observation has the values
of all agents in arrays, or an `AgentDict`. The wrappers here make what users see of their batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.adapters.parallel_env import ALIVE, MASK, OF_ALL, absent_value, group_agents
from vecspaces.checks import show_value
from vecspaces.errors import InvalidActionError
from vecspaces.layout import Mismatch
from vecspaces.layout.describe import described
from vecspaces.layout.ports import fit_batch_of
from vecspaces.spaces import Dict, Space
from vecspaces.spaces.batch_values import pick
from vecspaces.spaces.nesting import Product
from vecspaces.vector import AutoresetMode, Rollout, Transition, VectorEnv, VectorWrapper
from vecspaces.vector.engine.arguments import action_error, check_env_ids, check_whole, masked_rows
from vecspaces.vector.exchange.failures import renumbered
from vecspaces.vector.exchange.infos import InfosByRow, merge
from vecspaces.vector.exchange.snapshots import snapshot
from vecspaces.vector.group.attributes import get_attribute
from vecspaces.vector.options import AgentLayout
from vecspaces.vector.utils import batch_space, iterate
from vecspaces.vector.vector_env import StepResult
from vecspaces.vector.vector_wrapper import ALL, Mask

_ENV_AGENTS = "the agents of one environment, whose rows step and are reset together"

Batch = dict[str, Any]
Numbers = npt.NDArray[np.intp]


class AgentRows(VectorWrapper[Any, Any, Any, Any, npt.NDArray[Any]]):
    """A vector env with one row per possible agent, around `AgentStack` environments.

    The environments that its methods take and return are rows. Those of one environment are named
    together, except in calls; with actions, also in their order.

    Attributes:
        agent_layout: `"rows"`.
        agent_names: The agent's name of each row.
        rows_per_env: The number of rows of each environment.
    """

    agent_layout: AgentLayout = "rows"
    num_envs = 0
    #: The declared keys of infos, with an entry per row; None if no key is declared.
    info_space: Dict[Any] | None = None

    def __init__(
        self, env: VectorEnv[Any, Any, Any], *, copy: bool = True, buffers: int = 1
    ) -> None:
        super().__init__(env)
        described_envs = zip(*self._wrapped.call(attrgetter("description")), strict=True)
        names, observations, actions, infos, dtypes = described_envs
        self._dtype = dtypes[0]
        self.agent_names: list[str] = list(chain.from_iterable(names))
        width = self._width = len(names[0])
        count = self.num_envs = self.batch_size = env.num_envs * width
        self.rows_per_env = (width,) * env.num_envs
        self.info_space = infos[0] or None
        self._keys = [key for key in infos[0] if key not in OF_ALL]
        self.copy = copy
        self.single_observation_space, self.single_action_space = observations[0], actions[0]
        self.observation_space = batch_space(observations[0], count)
        self.action_space = batch_space(self.single_action_space, count)
        self._same_step = env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        self._action_node = described(self.single_action_space)
        shape = self.single_action_space.shape or ()
        self._shape, self._folded = (count, *shape), (env.num_envs, width, *shape)
        self._alive = np.ones((env.num_envs, width), np.bool_)
        # For rollouts, the last steps: agents alive, ended episodes, rewards and flags.
        self._history: deque[tuple[Any, ...]] = deque(maxlen=buffers)
        # The environments of the pending reset (None: all), and the rows of the pending call.
        self._begun: list[int] | None = None
        self._called: tuple[list[int], list[int]] = [], []
        # The observations of an environment's agents, and the observation of an agent that is gone.
        self._stacked = batch_space(observations[0], width)
        self._absent = absent_value(observations[0])

    @property
    def unwrapped(self) -> VectorEnv[Any, Any, Any]:  # type: ignore[override]  # read only
        """This vector env, since agents are not rows of the vector env inside."""
        return self

    @property
    def groups(self) -> dict[str, Numbers]:
        """The groups of agents by name without number, as arrays of rows."""
        groups = group_agents(list(dict.fromkeys(self.agent_names)))
        names = np.array(self.agent_names)
        return {
            group: np.flatnonzero(np.isin(names, group_names))
            for group, group_names in groups.items()
        }

    # ------------------------------------------------------------------ rows and environments

    def _ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the wrapped vector env; its errors name rows."""
        try:
            return getattr(self.env, method)(*args, **kwargs)
        except Exception as error:
            raise renumbered(error, self._width) from error.__cause__

    def _rows(self, envs: Any) -> Numbers:
        """Return the rows of some environments."""
        return (np.asarray(envs, np.intp)[:, None] * self._width + range(self._width)).ravel()

    def _divide(self, env_ids: Any, call: str = "", kind: Any = InvalidActionError) -> Any:
        """Return rows, and their environments; with a `call`, they must be whole environments."""
        rows = check_env_ids(env_ids, self.num_envs)
        envs = list(dict.fromkeys(row // self._width for row in rows))
        if call:
            wholes = [range(env * self._width, (env + 1) * self._width) for env in envs]
            check_whole(rows, wholes, call, kind, _ENV_AGENTS)
        return rows, envs

    def _divide_options(self, options: Any) -> tuple[Any, Any]:
        """Return options with a mask of environments, and the numbers of these environments."""
        if not isinstance(options, Mapping) or "reset_mask" not in options:
            return options, None
        rows = masked_rows(options["reset_mask"], self.num_envs)
        _, envs = self._divide(rows, "options['reset_mask']", ValueError)
        mask = np.isin(np.arange(self.env.num_envs), envs)
        return {**options, "reset_mask": mask}, envs

    def _before_step(self, actions: Any, rows: Any = None, envs: Any = ()) -> Any:
        """Check and cast actions; divide them by environments."""
        space, count = self.single_action_space, self.num_envs if rows is None else len(rows)
        is_whole = actions.__class__ is np.ndarray and actions.shape == self._shape
        if is_whole and rows is None and actions.dtype is space.dtype:
            return actions.reshape(self._folded)  # as in most steps
        if rows is not None and rows != self._rows(envs).tolist():
            raise InvalidActionError(
                f"env_ids: expected the rows of each environment together and in their order, "
                f"{self._rows(envs).tolist()}; found {rows}"
            )
        try:
            batch = fit_batch_of(self._action_node, actions, count=count)
        except Mismatch as error:
            raise action_error(error, rows, self.action_space) from None
        return _fold(space, batch, self._width)

    # ------------------------------------------------------------------ reset and step

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes, in all environments or in those of a mask.

        Args:
            seed: None, an int (environment i gets seed + i), one int or None per environment, or a
                `numpy.random.SeedSequence`. The agents of an environment have one seed.
            options: One mapping for all environments, or a sequence of one per environment.
                `{"reset_mask": mask}` with a bool array of shape `(num_envs,)` chooses rows.

        Returns:
            The batch of observations, and the infos, of which `alive` and declared ones have all
            rows, others those that were reset.
        """
        self.reset_async(seed, options)
        return self.reset_wait()

    def reset_async(self, seed: Any = None, options: Any = None) -> None:
        """Begin a `reset`; `reset_wait` ends it."""
        options, begun = self._divide_options(options)
        self._ask("reset_async", seed=seed, options=options)
        self._begun = begun

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """End a `reset` that `reset_async` began."""
        return self._read_reset(*self._ask("reset_wait", timeout))

    def _read_reset(self, batch: Batch, infos: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        begun = ALL if self._begun is None else self._begun
        record = self._record(batch)
        self._alive[begun] = record["flags"][begun, ALIVE]
        merged = self._merge(infos, self.env.num_envs)
        flags = record["flags"].swapaxes(0, 1).copy()
        flags[ALIVE] = self._alive
        observations = self._show(batch["observation"], record, flags, None, merged)
        # The first observations of a mask replace those of the last step.
        last = () if self._begun is None else self._history.pop()[2:]
        self._note(merged, last)
        return observations, merged

    def step(self, actions: Any, env_ids: Any = None) -> StepResult:
        """Take one action of every agent that is alive, or of those of some environments."""
        if env_ids is None:
            return self._read_step(self._ask("step", self._before_step(actions)))
        rows, envs = self._divide(env_ids, "step")
        result = self._ask("step", self._before_step(actions, rows, envs), envs)
        return self._read(result, np.array(envs, np.intp))

    def step_async(self, actions: Any) -> None:
        """Begin a `step`; `step_wait` ends it."""
        self._ask("step_async", self._before_step(actions))

    def step_wait(self, timeout: float | None = None) -> StepResult:
        """End a `step` that `step_async` began."""
        return self._read_step(self._ask("step_wait", timeout))

    def _read_step(self, result: StepResult) -> StepResult:
        shown = self._read(result)
        self._note(shown[4], shown[1:4])
        return shown

    def _note(self, infos: Mapping[str, Any], results: Sequence[Any]) -> None:
        arrays = [infos[key] for key in OF_ALL] + list(results) if self._history.maxlen != 1 else ()
        self._history.append(tuple(array.copy() for array in arrays))

    def _read(self, result: StepResult, envs: Any = ALL) -> StepResult:
        """Return the rows of what all environments returned, or some.

        Batches of the wrapped vector env are changed in place, where they are shown in a rollout.
        """
        batch, _, terminated, truncated, infos = result
        record = self._record(batch)
        rewards, flags = record["rewards"].copy(), record["flags"].swapaxes(0, 1).copy()
        terminations, truncations, alive = flags[: ALIVE + 1]
        merged = self._merge(infos, len(terminated)) if infos else {}
        lost = infos.get("_worker_restarted")
        if lost is not None:  # lost episodes end with the last known observations
            rewards[lost], terminations[lost] = 0.0, False
            truncations[lost] = self._alive[envs][lost]
            if not self._same_step:
                alive[lost] = False
                for place, key in enumerate(self._keys, ALIVE + 1):
                    record[f"info {key}"][lost] = key == MASK
                    flags[place, lost] &= key == MASK
                record["flags"][lost] = flags[:, lost].swapaxes(0, 1)
        finals: dict[str, Any] = {}
        over = terminated | truncated if self._same_step else None
        if over is not None:
            for env in np.flatnonzero(over if lost is None else over & ~lost):
                last = self._record(infos["final_obs"][env])
                rewards[env] = last["rewards"]
                terminations[env], truncations[env] = last["flags"][:ALIVE]
            ended = terminations | truncations
            if ended.any():
                finals = self._finals(batch, infos, ended, over)
        observations = self._show(batch["observation"], record, flags, over, merged)
        self._alive[envs] = alive
        flat = rewards.ravel(), terminations.ravel(), truncations.ravel()
        return (observations, *flat, {**merged, **finals})

    def _record(self, batch: Batch) -> Any:
        """Return the fields of records."""
        return batch["record"].view(self._dtype)[..., 0]

    def _merge(self, infos: Mapping[str, Any], count: int) -> dict[str, Any]:
        """Merge the infos of agents, and repeat those of environments."""
        by_row = InfosByRow()
        for env in np.flatnonzero(infos.get("_agents", ())).tolist():
            by_row.update(enumerate(infos["agents"][env], env * self._width))
        merged = merge([by_row], count * self._width) if by_row else {}
        for key in ("worker_restarted", "_worker_restarted"):
            if key in infos:
                merged[key] = infos[key].repeat(self._width)
        return merged

    def _show(
        self, observations: Any, record: Any, flags: Mask, over: Mask | None, infos: dict[str, Any]
    ) -> Any:
        """Add the infos of all rows; return the rows of observations.

        `over` says which episodes are over; None, after a reset: those without agents.
        """
        alive, single = flags[ALIVE], self.single_observation_space
        count, is_full = alive.size, 0 not in alive.tobytes()
        if over is None:
            over = np.zeros(len(alive), np.bool_) if is_full else ~alive.any(axis=1)
        infos["alive"], infos["episode_over"] = alive.flatten(), over.repeat(self._width)
        infos["_alive"], infos["_episode_over"] = np.ones((2, count), np.bool_)
        for place, key in enumerate(self._keys, ALIVE + 1):
            if 1 in flags[place].tobytes():
                infos[key] = _unfold(None, record[f"info {key}"], count, self.copy)
                infos[f"_{key}"] = flags[place].flatten()
        if self._same_step and not is_full:
            observations = _blank(single, observations, ~alive, self._absent)
        return _unfold(single, observations, count, self.copy)

    def _finals(
        self, batch: Batch, infos: Mapping[str, Any], ended: Mask, dones: Mask
    ) -> dict[str, Any]:
        """Return the last observations and infos of the agents that ended (SAME_STEP)."""
        last, by_row = np.full(ended.size, None, dtype=object), InfosByRow()
        space: Any = self.env.single_observation_space
        for env in np.flatnonzero(ended.any(axis=1)).tolist():
            final: Batch = infos["final_obs"][env] if dones[env] else pick(space, batch, env)
            record = self._record(final)
            source = infos.get("final_info", {}) if dones[env] else infos
            env_infos = (
                source["agents"][env] if "_agents" in source and source["_agents"][env] else None
            )
            values = list(iterate(self._stacked, final["observation"]))
            for place in np.flatnonzero(ended[env]).tolist():
                row = env * self._width + place
                last[row] = snapshot(values[place])
                info = dict(env_infos[place]) if env_infos else {}
                info.update(alive=False, episode_over=bool(dones[env]))
                for number, key in enumerate(self._keys, ALIVE + 1):
                    if record["flags"][number, place]:
                        info[key] = snapshot(record[f"info {key}"][place])
                by_row[row] = info
        finals = {"final_obs": last, "final_info": merge([by_row], ended.size)}
        return {**finals, **{f"_{key}": ended.flatten() for key in finals}}

    # ------------------------------------------------------------------ streams

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Send actions to the agents of environments, without waiting for results."""
        rows, envs = self._divide(env_ids, "send")
        self._ask("send", self._before_step(actions, rows, envs), envs)

    def send_reset(self, env_ids: Any = None, *, seed: Any = None, options: Any = None) -> None:
        """Send environments a reset, with a seed per environment, in the order of first rows."""
        _, envs = self._divide(env_ids, "send_reset")
        self._ask("send_reset", envs, seed=seed, options=options)

    def send_call(self, env_ids: Any, name: Any, /, *args: Any, **kwargs: Any) -> None:
        """Send environments a `call`, without waiting for results."""
        _, envs = self._divide(env_ids, "send_call")
        self._ask("send_call", envs, name, *args, **kwargs)

    def recv(
        self,
        count: int | None = None,
        timeout: float | None = None,
        *,
        at_least: int | None = None,
        return_errors: bool = False,
    ) -> Transition:
        """Receive the environments that are ready first; `count` and `at_least` count rows."""
        counts = {"count": count, "at_least": at_least}
        for name, number in counts.items():
            if isinstance(number, int) and number % self._width:
                raise ValueError(
                    f"recv: {name} must be a multiple of {self._width}, the agents of one "
                    f"environment, whose rows are ready together; found {number}"
                )
        envs = {name: number and number // self._width for name, number in counts.items()}
        result = self._ask("recv", timeout=timeout, return_errors=return_errors, **envs)
        rows = self._rows(result.env_ids)
        transition = Transition(*self._read(result[:5], result.env_ids), rows.astype(np.int64))
        no_infos: list[dict[str, Any]] = [{}] * self._width
        transition.row_infos = [
            info for env_info in result.row_infos for info in env_info.get("agents", no_infos)
        ]
        transition.begins = np.repeat(result.begins, self._width)
        transition.results = self._by_rows(result.results)
        transition.errors = self._by_rows(
            {env: renumbered(error, self._width) for env, error in result.errors.items()}
        )
        return transition

    def _by_rows(self, by_env: Mapping[int, Any]) -> dict[int, Any]:
        return {row: value for env, value in by_env.items() for row in self._rows([env]).tolist()}

    def restart(self, env_ids: Any = None, *, terminate: bool = False) -> npt.NDArray[np.int64]:
        """Restart the workers of some environments; return all of their rows."""
        _, envs = self._divide(env_ids, "restart", ValueError)
        return self._rows(self._ask("restart", envs, terminate=terminate)).astype(np.int64)

    def rollout_view(self) -> Rollout:
        """Return the last `buffers - 1` steps as arrays in time order.

        Returns:
            Observations as views; other arrays as copies.

        Raises:
            ValueError: There were fewer or more steps, or observations have no fixed size.
        """
        batch = self._ask("rollout_view").observations
        record = self._record(batch)
        history = list(self._history)
        results: Any = map(np.stack, zip(*(noted[2:] for noted in history[1:]), strict=True))
        lives = map(np.stack, zip(*(noted[:2] for noted in history), strict=True))
        values = dict(zip(OF_ALL, lives, strict=True))
        masks = {key: np.ones(value.shape, np.bool_) for key, value in values.items()}
        for place, key in enumerate(self._keys, ALIVE + 1):
            parts = record[f"info {key}"], record["flags"][:, :, place]
            values[key], masks[key] = (
                _unfold(None, part, self.num_envs, copy=True, axis=1) for part in parts
            )
        infos = {}
        for key in self.info_space or ():
            infos[key], infos[f"_{key}"] = values[key], masks[key]
        single = self.single_observation_space
        observations = _unfold(single, batch["observation"], self.num_envs, axis=1)
        rewards, terminations, truncations = results
        return Rollout(observations, rewards, terminations, truncations, infos)

    # ------------------------------------------------------------------ calls

    def call(self, name: Any, *args: Any, env_ids: Any = None, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of the environments of rows, once per row."""
        self.call_async(name, *args, env_ids=env_ids, **kwargs)
        return self.call_wait()

    def get_attr(self, name: str, *, env_ids: Any = None) -> tuple[Any, ...]:
        """Get an attribute of the environments of rows."""
        return self.call(get_attribute, name, env_ids=env_ids)

    def render(self, **kwargs: Any) -> tuple[Any, ...]:
        """Render the environments of rows."""
        return self.call("render", **kwargs)

    def call_async(self, name: Any, *args: Any, env_ids: Any = None, **kwargs: Any) -> None:
        """Begin a `call`; `call_wait` ends it."""
        called = _, envs = self._divide(env_ids)
        self._ask("call_async", name, *args, env_ids=envs, **kwargs)
        self._called = called

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """End a `call` that `call_async` began."""
        return self._repeat(self._ask("call_wait", timeout), *self._called)

    def _repeat(self, values: Any, rows: list[int], envs: list[int]) -> tuple[Any, ...]:
        """Return the value of each row's environment; there are none after a `set_attr`."""
        by_env = dict(zip(envs, values, strict=False))
        return tuple(by_env[row // self._width] for row in rows if by_env)

    def set_attr(self, name: str, values: Any, *, env_ids: Any = None) -> None:
        """Set an attribute of environments, to one value for all, or one per row.

        Raises:
            ValueError: A wrong number of values, or different ones for the rows of an environment.
        """
        rows, envs = self._divide(env_ids, f"set_attr({name!r})", ValueError)
        if isinstance(values, (list, tuple)):
            firsts = dict(zip(rows, values, strict=False))
            by_env = [firsts.get(env * self._width) for env in envs]
            same = map(np.array_equal, values, self._repeat(by_env, rows, envs))
            if len(values) != len(rows) or not all(same):
                raise ValueError(
                    f"set_attr({name!r}): expected {len(rows)} values, one per row and the same "
                    f"for {_ENV_AGENTS}, or one that is no list or tuple; found {len(values)}: "
                    f"{show_value(values)}"
                )
            values = by_env
        self._ask("set_attr", name, values, env_ids=envs)


# ---------------------------------------------------------------------- batches by environment


def _map_arrays(
    space: Any, on_array: Callable[..., Any], on_values: Callable[..., Any], *batches: Any
) -> Any:
    """Call a function with each array of batches, another with each tuple of other values."""
    if isinstance(batches[0], np.ndarray):
        return on_array(*batches)
    if not isinstance(space, Product):
        return on_values(*batches)
    return space._build(
        _map_arrays(member, on_array, on_values, *(batch[key] for batch in batches))
        for key, member in space._members().items()
    )


def _fold(space: Space[Any], batch: Any, width: int) -> Any:
    """Divide a batch of rows by environments of `width` rows."""
    return _map_arrays(
        space,
        lambda array: array.reshape(-1, width, *array.shape[1:]),
        lambda values: tuple(values[place::width] for place in range(width)),
        batch,
    )


def _unfold(space: Any, batch: Any, count: int, copy: bool = False, axis: int = 0) -> Any:
    """Return the `count` rows of a batch by environments, which are on `axis` of arrays."""

    def reshape(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        rows = array.reshape(*array.shape[:axis], count, *array.shape[axis + 2 :])
        return rows.copy() if copy else rows

    return _map_arrays(
        space, reshape, lambda columns: tuple(chain(*zip(*columns, strict=True))), batch
    )


def _blank(space: Space[Any], batch: Any, gone: Mask, absent: Any) -> Any:
    """Return a batch by environments with `absent` for agents that are gone, arrays in place."""

    def put(array: npt.NDArray[Any], value: Any) -> npt.NDArray[Any]:
        array[gone] = value
        return array

    def replace(columns: Any, value: Any) -> tuple[Any, ...]:
        pairs = (zip(*pair, strict=True) for pair in zip(columns, gone.T, strict=True))
        return tuple(tuple(value if is_gone else kept for kept, is_gone in pair) for pair in pairs)

    return _map_arrays(space, put, replace, batch, absent)
