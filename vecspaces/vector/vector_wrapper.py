"""VectorWrapper: the base class of wrappers, and which call uses which of its hooks.

A wrapper defines its transform once, in hooks that several calls share:

    ============================================  ================================
    in:   step, step_async, send                  ``_before_step``
    out:  step, step_wait, recv                   ``_after_step``, ``_after_recv``
    out:  reset, reset_wait                       ``_after_reset``
    ============================================  ================================

A wrapper whose call is interrupted (Ctrl-C, or any exception from a signal handler) needs a
`reset()` of all environments: the state that wrappers have per episode begins anew there.

A subclass may override `step` or `reset` instead, as Gymnasium's wrappers do. The methods that
would bypass such an override call it, or raise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, cast

import numpy as np
import numpy.typing as npt

from vecspaces.errors import AlreadyPendingCallError, NoAsyncCallError
from vecspaces.spaces import Dict, Space
from vecspaces.typevars import TypeVar
from vecspaces.vector.engine.arguments import check_env_ids
from vecspaces.vector.send_recv import Transition
from vecspaces.vector.states import VectorState, WrapperState
from vecspaces.vector.utils import batch_space, concatenate, iterate
from vecspaces.vector.vector_env import ActType, ArrayType, ObsType, Seed, StepResult, VectorEnv

if TYPE_CHECKING:
    from vecspaces.vector.engine.ring import Rollout

WrapperObsType = TypeVar("WrapperObsType", default=Any)
WrapperActType = TypeVar("WrapperActType", default=Any)
EnvIds = Sequence[int] | npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
# The environments of some rows: their numbers, or a slice of all.
RowChoice = Any
ALL = slice(None)

_STEP = ("step",)
_STEP_PARTS = ("step_async", "step_wait")
_RESET = ("reset",)
_RESET_PARTS = ("reset_async", "reset_wait")
_STREAM = ("send", "recv")
_ROLLOUT = ("rollout_view",)
_EVERY_STEP = (*_STEP, *_STEP_PARTS, *_RESET, *_RESET_PARTS)
# By methods of the base class, the methods whose overrides they would bypass.
_GO_AROUND = {
    _STEP: _STEP_PARTS,
    _STEP_PARTS: _STEP,
    _RESET: _RESET_PARTS,
    _RESET_PARTS: _RESET,
    _STREAM: _EVERY_STEP,
    _ROLLOUT: _EVERY_STEP,
}


def _inner(name: str, *, local: bool = False, settable: bool = False) -> Any:
    """Return a property that reads the wrapped vector env, or the value that the wrapper set."""
    key = f"_{name}"

    def read(self: Any) -> Any:
        value = getattr(self, key) if local else None
        return getattr(self.env, name) if value is None else value

    def write(self: Any, value: Any) -> None:
        setattr(*((self, key) if local else (self.env, name)), value)

    doc = (
        f"`{name}` of the wrapped vector env{', unless the wrapper has its own' if local else ''}."
    )
    return property(read, write if local or settable else None, doc=doc)


class VectorWrapper(
    VectorEnv[WrapperObsType, WrapperActType, ArrayType],
    Generic[WrapperObsType, WrapperActType, ObsType, ActType, ArrayType],
):
    """A vector env that changes the actions or results of another vector env.

    All other calls and attributes are passed on. If a subclass overrides `step` alone, `step_wait`
    calls it with the actions of `step_async`. In the same way `reset_wait` calls `reset`, and
    `step` calls `step_async` and `step_wait` if these are overridden. `send`, `recv` and
    `rollout_view` then raise a TypeError, unless the subclass overrides them too.

    Args:
        env: The vector env to wrap.

    Raises:
        TypeError: `env` is not a `VectorEnv`.
    """

    env: VectorEnv[ObsType, ActType, ArrayType]
    #: The attributes with an entry per environment, and the others, that `save_state` saves. None:
    #: the class does not name its state, and `save_state` is refused.
    saved_state: ClassVar[tuple[Sequence[str], Sequence[str]] | None] = None
    # The values that a rollout would return unchanged, so that `rollout_view` is refused; or "".
    _changes: ClassVar[str] = ""

    def __init__(self, env: VectorEnv[ObsType, ActType, ArrayType]) -> None:
        self.env = check_vector_env(env)
        kind = type(self)
        names = {*_EVERY_STEP, *_STREAM, *_ROLLOUT}
        changed = {name for name in names if getattr(kind, name) != getattr(VectorWrapper, name)}
        # For a group of methods, none of which is overridden, the override that they would bypass.
        self._bypassed: dict[tuple[str, ...], str] = {
            methods: next(name for name in overrides if name in changed)
            for methods, overrides in _GO_AROUND.items()
            if changed.intersection(overrides) and changed.isdisjoint(methods)
        }
        # The arguments of step_async or reset_async, for a `step` or `reset` that a subclass
        # overrides.
        self._deferred: tuple[str, dict[str, Any]] | None = None
        # The mask of the pending reset; None: all environments.
        self._pending_mask: Mask | None = None

    @property
    def _wrapped(self) -> Any:
        """The wrapped vector env, for methods that only some vector envs have."""
        return self.env

    # ------------------------------------------------------------------ the hooks

    def _before_step(self, actions: WrapperActType) -> ActType:
        """Change the actions of all environments, or of those that are stepped."""
        return cast("ActType", actions)

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        """Change the five values of a step; `env_ids` are the rows' environments, None: all."""
        return result

    def _after_recv(
        self, result: StepResult, env_ids: npt.NDArray[np.int64], begins: Sequence[bool] | Mask
    ) -> StepResult:
        """Change the five values of `recv`; rows of `begins` are of a reset, not of a step."""
        return self._after_step(result, env_ids)

    def _after_reset(
        self, observations: ObsType, infos: dict[str, Any], mask: Mask | None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        """Change what a reset of all environments (None), or of those of a mask, returned."""
        return cast("WrapperObsType", observations), infos

    def _after_load(self, observations: ObsType, env_ids: npt.NDArray[np.int64]) -> WrapperObsType:
        """Change the observations of environments whose state was loaded."""
        return cast("WrapperObsType", observations)

    def _save_rows(self, env_ids: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Return what is saved of environments."""
        names = self.saved_state[0] if self.saved_state else ()
        return {name: getattr(self, name)[env_ids] for name in names}

    def _load_rows(self, saved: dict[str, Any], env_ids: npt.NDArray[np.int64]) -> None:
        """Load what `_save_rows` returned, of as many environments or of one environment."""
        for name, values in saved.items():
            getattr(self, name)[env_ids] = values

    def _with_finals(
        self, infos: dict[str, Any], change: Callable[[Any, npt.NDArray[np.intp]], Any]
    ) -> dict[str, Any]:
        """Return infos in which the last observations of episodes are changed, as one batch.

        `change` is called with this batch and the rows that ended.
        """
        ended = np.flatnonzero(infos["_final_obs"])
        if not len(ended):
            return infos
        space, finals = self.env.single_observation_space, infos["final_obs"]
        batch = concatenate(space, [finals[row] for row in ended], None)
        changed = np.full(len(finals), None, dtype=object)
        batched = batch_space(self.single_observation_space, len(ended))
        for row, item in zip(ended, iterate(batched, change(batch, ended)), strict=True):
            changed[row] = item
        return {**infos, "final_obs": changed}

    # ------------------------------------------------------------------ in and out

    def reset(
        self, *, seed: Seed | None = None, options: Any = None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        """Reset the wrapped vector env."""
        if _RESET in self._bypassed:
            self.reset_async(seed=seed, options=options)
            return self.reset_wait()
        self._check_call("reset")
        mask = _reset_mask(options)
        try:
            observations, infos = self.env.reset(seed=seed, options=options)
        except AlreadyPendingCallError:
            raise
        except BaseException:
            self._pending_mask = mask  # `reset_wait` may still end it
            raise
        return self._after_reset(observations, infos, mask)

    def reset_async(self, seed: Seed | None = None, options: Any = None) -> None:
        """Begin a `reset`; `reset_wait` ends it."""
        self._check_call("reset_async")
        mask = _reset_mask(options)
        if _RESET_PARTS in self._bypassed:
            if mask is not None:
                options = {**options, "reset_mask": mask}
            self._deferred = "reset", {"seed": seed, "options": options}
        else:
            self._wrapped.reset_async(seed=seed, options=options)
        self._pending_mask = mask

    def reset_wait(self, timeout: float | None = None) -> tuple[WrapperObsType, dict[str, Any]]:
        """End a `reset` that `reset_async` began."""
        if _RESET_PARTS in self._bypassed:
            return self.reset(**self._take_deferred("reset", timeout))
        observations, infos = self._wrapped.reset_wait(timeout)
        return self._after_reset(observations, infos, self._pending_mask)

    def step(
        self, actions: WrapperActType, env_ids: EnvIds | None = None
    ) -> tuple[WrapperObsType, ArrayType, ArrayType, ArrayType, dict[str, Any]]:
        """Step all environments of the wrapped vector env, or some."""
        if env_ids is not None:
            self._check_call("step", _STEP)
            result = self._wrapped.step(self._before_step(actions), env_ids)
            return self._after_step(result, np.array(env_ids, np.int64))
        if _STEP in self._bypassed:
            self.step_async(actions)
            return self.step_wait()
        self._check_call("step")
        return self._after_step(self.env.step(self._before_step(actions)), None)

    def step_async(self, actions: WrapperActType) -> None:
        """Begin a `step`; `step_wait` ends it."""
        self._check_call("step_async")
        if _STEP_PARTS in self._bypassed:
            self._deferred = "step", {"actions": copy.deepcopy(actions)}
        else:
            self._wrapped.step_async(self._before_step(actions))

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[WrapperObsType, ArrayType, ArrayType, ArrayType, dict[str, Any]]:
        """End a `step` that `step_async` began."""
        if _STEP_PARTS in self._bypassed:
            return self.step(*self._take_deferred("step", timeout).values())
        return self._after_step(self._wrapped.step_wait(timeout), None)

    def send(self, actions: Any, env_ids: EnvIds | None = None) -> None:
        """Send actions to environments without waiting for results."""
        self._check_call("send", _STREAM)
        self._wrapped.send(self._before_step(actions), env_ids)

    def send_reset(
        self,
        env_ids: EnvIds | None = None,
        *,
        seed: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Send environments a reset without waiting for results."""
        self._check_call("send_reset", _STREAM)
        self._wrapped.send_reset(env_ids, seed=seed, options=options)

    def recv(
        self,
        count: int | None = None,
        timeout: float | None = None,
        *,
        at_least: int | None = None,
        return_errors: bool = False,
    ) -> Transition:
        """Receive the environments that are ready first."""
        self._check_call("recv", _STREAM)
        # An inner wrapper may have a `recv` without these arguments.
        arguments = {"at_least": at_least, "return_errors": return_errors or None}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        transition: Transition = self._wrapped.recv(count, timeout, **arguments)
        changed = self._after_recv(transition[:5], transition.env_ids, transition.begins)
        return transition._replace(**dict(zip(transition._fields, changed, strict=False)))

    def rollout_view(self) -> Rollout:
        """Return the last `buffers - 1` steps of the wrapped vector env.

        Raises:
            ValueError: The wrapper changes observations or rewards, and those of the rollout are
                unchanged.
        """
        if self._changes:
            raise ValueError(
                f"rollout_view() would return {self._changes} that {type(self).__name__} has not "
                "changed: call env.rollout_view() of the wrapped vector env, and change them "
                "yourself"
            )
        self._check_call("rollout_view", _ROLLOUT)
        rollout: Rollout = self._wrapped.rollout_view()
        return rollout

    def save_state(self, env_ids: EnvIds | None = None) -> VectorState:
        """Save the state of the wrapped vector env, and that of the wrapper.

        Raises:
            TypeError: The wrapper does not name its state (`saved_state`).
        """
        self._check_saved("save_state")
        state: VectorState = self._wrapped.save_state(env_ids)
        rows = self._save_rows(self._numbers_of(env_ids))
        if not rows:
            return state
        _, names = self.saved_state or ((), ())
        others = copy.deepcopy({name: getattr(self, name) for name in names})
        wrapper_state = WrapperState(
            type(self).__name__, self.single_observation_space, rows, others
        )
        return replace(state, wrappers=(*state.wrappers, wrapper_state))

    def load_state(
        self, state: VectorState, env_ids: EnvIds | None = None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        """Load a state into the wrapped vector env, and into the wrapper.

        What does not belong to an environment, such as running statistics, is loaded if `env_ids`
        is None.
        """
        self._check_saved("load_state")
        numbers, wrapper_state = self._numbers_of(env_ids), None
        if self._save_rows(numbers) and isinstance(state, VectorState):
            wrapper_state = (
                state.wrappers[-1] if state.wrappers else WrapperState("no wrapper", None, {}, {})
            )
            wrapper_state.check(type(self).__name__, self.single_observation_space)
            state = replace(state, wrappers=state.wrappers[:-1])
        observations, infos = self._wrapped.load_state(state, env_ids)
        if wrapper_state is not None:
            self._load_rows(wrapper_state.rows, numbers)
            if env_ids is None:
                vars(self).update(copy.deepcopy(wrapper_state.others))
        return self._after_load(observations, numbers), infos

    def _check_saved(self, call: str) -> None:
        self._check_call(call)
        if self.saved_state is None:
            raise TypeError(
                f"{call}: {type(self).__name__} does not name the attributes that are its state: "
                "set its class attribute saved_state, or call it of the wrapped vector env"
            )

    def _numbers_of(self, env_ids: EnvIds | None) -> npt.NDArray[np.int64]:
        return np.array(check_env_ids(env_ids, self.num_envs), np.int64)

    def _check_call(self, call: str, methods: tuple[str, ...] = ()) -> None:
        """Refuse a call whose methods would bypass an override, or that comes before a wait."""
        if methods in self._bypassed:
            override, name = self._bypassed[methods], type(self).__name__
            raise TypeError(
                f"{' and '.join(methods)} would go around {name}.{override}: override "
                f"{' and '.join(methods)} too, or write {name} as a VectorObservationWrapper, "
                "VectorActionWrapper or VectorRewardWrapper"
            )
        if self._deferred is not None:
            pending = self._deferred[0]
            raise AlreadyPendingCallError(
                f"{call} was called while a {pending} is still pending: call {pending}_wait first",
                pending,
            )

    def _take_deferred(self, name: str, timeout: float | None) -> dict[str, Any]:
        """Return the arguments that were stored for the wait."""
        if self._deferred is None or self._deferred[0] != name:
            raise NoAsyncCallError(
                f"{name}_wait was called, but no {name} is pending: call {name}_async first", name
            )
        if timeout is not None:
            raise ValueError(
                f"{name}_wait of {type(self).__name__} calls its {name}, which takes no timeout: "
                f"make the vector env with step_timeout, or override {name}_async and {name}_wait"
            )
        arguments, self._deferred = self._deferred[1], None
        return arguments

    def render(self, **kwargs: Any) -> tuple[Any, ...] | None:
        """Render the wrapped vector env."""
        return self.env.render(**kwargs)

    def close(self, **kwargs: Any) -> None:
        """Close the wrapped vector env."""
        self.env.close(**kwargs)

    def close_extras(self, **kwargs: Any) -> None:
        """Free the resources of the wrapped vector env."""
        self.env.close_extras(**kwargs)

    def __getattr__(self, name: str) -> Any:
        # For names that neither the wrapper nor VectorEnv defines: call, get_attr, stats, ...
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self.env}>"

    # The wrapper's own values. Properties do not look for them in `__dict__`, because this makes
    # all attributes of an object slower.
    _observation_space = _action_space = _metadata = None
    _single_observation_space = _single_action_space = None
    observation_space: Space[Any] = _inner("observation_space", local=True)
    action_space: Space[Any] = _inner("action_space", local=True)
    single_observation_space: Space[Any] = _inner("single_observation_space", local=True)
    single_action_space: Space[Any] = _inner("single_action_space", local=True)
    metadata: dict[str, Any] = _inner("metadata", local=True)
    num_envs: int = _inner("num_envs")
    info_space: Dict[Any] | None = _inner("info_space")
    spec: Any = _inner("spec")
    render_mode: str | None = _inner("render_mode")
    closed: bool = _inner("closed", settable=True)
    np_random: Any = _inner("np_random", settable=True)
    np_random_seed: Any = _inner("np_random_seed")
    unwrapped: VectorEnv[Any, Any, Any] = _inner("unwrapped")


class VectorObservationWrapper(VectorWrapper[WrapperObsType, ActType, ObsType, ActType, ArrayType]):
    """A wrapper that changes observations; override `observations`.

    It changes the observations of all calls that reset or step, and `infos["final_obs"]`.

    Args:
        env: The vector env to wrap.
    """

    _changes = "observations"

    def _after_reset(
        self, observations: ObsType, infos: dict[str, Any], mask: Mask | None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        return self.observations(observations), infos

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        observations, rewards, terminations, truncations, infos = result
        if "_final_obs" in infos:
            infos = self._with_finals(infos, lambda batch, ended: self.observations(batch))
        return self.observations(observations), rewards, terminations, truncations, infos

    def _after_load(self, observations: ObsType, env_ids: npt.NDArray[np.int64]) -> WrapperObsType:
        return self.observations(observations)

    def observations(self, observations: ObsType) -> WrapperObsType:
        """Change a batch of observations.

        Change every row independently of the others: `step(actions)` and `reset` pass the rows of
        all environments (also those that a mask did not reset), `step` with `env_ids`, `recv` and
        `load_state` pass some rows in any order, and the last observations of episodes are passed
        as a separate batch.

        Args:
            observations: Any number of rows. With `copy=False` they are views; do not write to
                them.

        Returns:
            The same number of rows, which are in `single_observation_space`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement observations")


class VectorActionWrapper(VectorWrapper[ObsType, WrapperActType, ObsType, ActType, ArrayType]):
    """A wrapper that changes actions; override `actions`."""

    def _before_step(self, actions: WrapperActType) -> ActType:
        return self.actions(actions)

    def actions(self, actions: WrapperActType) -> ActType:
        """Change a batch of actions.

        Args:
            actions: One row per environment, or per entry of `env_ids`.

        Returns:
            The same number of rows, for the wrapped vector env.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement actions")


class VectorRewardWrapper(VectorWrapper[ObsType, ActType, ObsType, ActType, ArrayType]):
    """A wrapper that changes rewards; override `rewards`."""

    _changes = "rewards"

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        observations, rewards, terminations, truncations, infos = result
        return observations, self.rewards(rewards), terminations, truncations, infos

    def rewards(self, rewards: ArrayType) -> ArrayType:
        """Change a batch of rewards.

        Args:
            rewards: The rewards of all environments, or of those that `recv` or `step` with
                `env_ids` returns; shape `(rows,)`.

        Returns:
            The changed rewards, of the same shape.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement rewards")


def check_vector_env(env: Any) -> Any:
    """Return the vector env to wrap; raise TypeError for anything else."""
    if not isinstance(env, VectorEnv):
        raise TypeError(
            "env must be a vecspaces.vector.VectorEnv, such as make_vec returns, found "
            f"{type(env).__name__}"
        )
    return env


def _reset_mask(options: Any) -> Mask | None:
    """Copy the mask of the environments to reset, whose array the caller may reuse; None: all."""
    mask = options.get("reset_mask") if isinstance(options, Mapping) else None
    return None if mask is None else np.array(mask)
