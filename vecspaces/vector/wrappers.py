"""Wrappers that change what a vector env takes or returns.

A wrapper states its transform once, in one of three hooks, and every way in and out passes through
it:

    ============================================  ================================
    in:   step, step_async, send                  ``_before_step``
    out:  step, step_wait, recv                   ``_after_step``, ``_after_recv``
    out:  reset, reset_wait                       ``_after_reset``
    ============================================  ================================

A subclass that overrides `step` or `reset` itself, as Gymnasium's users do, is not bypassed either:
`__init_subclass__` finds out which inherited methods would go around an override, and these then
call it, or refuse where they cannot.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, cast

import numpy as np
import numpy.typing as npt

from vecspaces.errors import AlreadyPendingCallError, NoAsyncCallError
from vecspaces.spaces import Dict, Space
from vecspaces.vector.utils import batch_space, concatenate, create_empty_array, iterate
from vecspaces.vector.vector_env import ActType, ArrayType, ObsType, Seed, StepResult, VectorEnv

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from vecspaces.vector.send_recv import Transition
    from vecspaces.vector.session.ring import Rollout

    WrapperObsType = TypeVar("WrapperObsType", default=Any)
    WrapperActType = TypeVar("WrapperActType", default=Any)
else:
    from typing import TypeVar

    WrapperObsType = TypeVar("WrapperObsType")
    WrapperActType = TypeVar("WrapperActType")

EnvIds = Sequence[int] | npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_STEP = ("step",)
_STEP_PARTS = ("step_async", "step_wait")
_RESET = ("reset",)
_RESET_PARTS = ("reset_async", "reset_wait")
_STREAM = ("send", "recv")
_ROLLOUT = ("rollout_view",)
_EVERY_STEP = (*_STEP, *_STEP_PARTS, *_RESET, *_RESET_PARTS)
# Methods -> the methods whose overrides they would go around if they are inherited from further up.
_GO_AROUND = {
    _STEP: _STEP_PARTS,
    _STEP_PARTS: _STEP,
    _RESET: _RESET_PARTS,
    _RESET_PARTS: _RESET,
    _STREAM: _EVERY_STEP,
    _ROLLOUT: _EVERY_STEP,
}


def _inner(name: str, description: str, settable: bool = False) -> Any:
    """Return a property that is that of the wrapped vector env."""

    def write(self: Any, value: Any) -> None:
        setattr(self.env, name, value)

    return property(
        lambda self: getattr(self.env, name), write if settable else None, doc=description
    )


def _own(name: str, description: str) -> Any:
    """Return a property that is that of the wrapped vector env until the wrapper sets its own."""
    key = f"_{name}"

    def read(self: Any) -> Any:
        value = vars(self).get(key)
        return getattr(self.env, name) if value is None else value

    return property(read, lambda self, value: vars(self).update({key: value}), doc=description)


class VectorWrapper(
    VectorEnv[WrapperObsType, WrapperActType, ArrayType],
    Generic[WrapperObsType, WrapperActType, ObsType, ActType, ArrayType],
):
    """A vector env that changes what another one takes or returns.

    Everything that is not overridden is passed on, new arguments (`env_ids`, `stats`, ...) too.
    Where a subclass overrides `step` alone, `step_wait` calls it, with the actions that
    `step_async` was given; in the same way `reset_wait` calls `reset`, and `step` the two halves of
    a subclass that overrides these. `send`, `recv` and `rollout_view` have no such way and raise a
    TypeError, until the subclass overrides them too.

    Args:
        env: The vector env to wrap.

    Raises:
        TypeError: `env` is no `VectorEnv`.
    """

    env: VectorEnv[ObsType, ActType, ArrayType]
    # By group of methods: the override that they would go around.
    _bypassed: ClassVar[Mapping[tuple[str, ...], str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._bypassed = {
            methods: min(overrides, key=cls._depth)
            for methods, overrides in _GO_AROUND.items()
            if min(map(cls._depth, overrides)) < min(map(cls._depth, methods))
        }

    @classmethod
    def _depth(cls, name: str) -> int:
        """Return how far up the class is that defines a method."""
        return next(depth for depth, base in enumerate(cls.__mro__) if name in vars(base))

    def __init__(self, env: VectorEnv[ObsType, ActType, ArrayType]) -> None:
        if not isinstance(env, VectorEnv):
            raise TypeError(f"env must be a vecspaces.vector.VectorEnv, found {type(env).__name__}")
        self.env = env
        # What step_async or reset_async left for a `step` or `reset` that a subclass overrides.
        self._deferred: tuple[str, dict[str, Any]] | None = None
        # The mask of the reset that is pending; None: all environments.
        self._pending_mask: Mask | None = None

    @property
    def _wrapped(self) -> Any:
        """The wrapped vector env, for methods that only some have."""
        return self.env

    # ------------------------------------------------------------------ the hooks

    def _before_step(self, actions: WrapperActType) -> ActType:
        """Change the actions of all environments, or of those that are stepped."""
        return cast("ActType", actions)

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        """Change the five values of a step; `env_ids` are the rows' environments, None: all."""
        return result

    def _after_recv(self, result: StepResult, env_ids: npt.NDArray[np.int64]) -> StepResult:
        """Change the five values of `recv`, which may also be those of a reset."""
        return self._after_step(result, env_ids)

    def _after_reset(
        self, observations: ObsType, infos: dict[str, Any], mask: Mask | None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        """Change what a reset of all environments (None), or of those of a mask, returned."""
        return cast("WrapperObsType", observations), infos

    # ------------------------------------------------------------------ in and out

    def reset(
        self, *, seed: Seed | None = None, options: Any = None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        """Reset the wrapped vector env."""
        if _RESET in self._bypassed:
            self.reset_async(seed=seed, options=options)
            return self.reset_wait()
        self._check_idle("reset")
        mask = _reset_mask(options)
        try:
            observations, infos = self.env.reset(seed=seed, options=options)
        except BaseException:
            self._pending_mask = mask  # `reset_wait` may end it yet
            raise
        return self._after_reset(observations, infos, mask)

    def reset_async(self, seed: Seed | None = None, options: Any = None) -> None:
        """Begin a `reset`; `reset_wait` ends it."""
        mask = _reset_mask(options)
        if _RESET_PARTS in self._bypassed:
            if mask is not None:
                options = {**options, "reset_mask": mask}
            self._defer("reset", seed=seed, options=options)
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
            self._refuse_bypass(_STEP)
            result = self._wrapped.step(self._before_step(actions), env_ids)
            return self._after_step(result, np.asarray(env_ids))
        if _STEP in self._bypassed:
            self.step_async(actions)
            return self.step_wait()
        self._check_idle("step")
        return self._after_step(self.env.step(self._before_step(actions)), None)

    def step_async(self, actions: WrapperActType) -> None:
        """Begin a `step`; `step_wait` ends it."""
        if _STEP_PARTS in self._bypassed:
            self._defer("step", actions=copy.deepcopy(actions))
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
        """Give actions to environments without waiting for them."""
        self._refuse_bypass(_STREAM)
        self._wrapped.send(self._before_step(actions), env_ids)

    def send_reset(
        self,
        env_ids: EnvIds | None = None,
        *,
        seed: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Send environments a reset without waiting for them."""
        self._refuse_bypass(_STREAM)
        self._wrapped.send_reset(env_ids, seed=seed, options=options)

    def recv(self, count: int | None = None, timeout: float | None = None) -> Transition:
        """Receive the environments that are ready first."""
        self._refuse_bypass(_STREAM)
        received: Transition = self._wrapped.recv(count, timeout)
        changed = self._after_recv(received[:5], received.env_ids)
        return type(received)(*changed, received.env_ids)

    def rollout_view(self) -> Rollout:
        """Return the last `buffers - 1` steps of the wrapped vector env."""
        self._refuse_bypass(_ROLLOUT)
        rollout: Rollout = self._wrapped.rollout_view()
        return rollout

    def _defer(self, name: str, **arguments: Any) -> None:
        """Keep the arguments of `step` or `reset` for the wait."""
        self._check_idle(f"{name}_async")
        self._deferred = name, arguments

    def _check_idle(self, call: str) -> None:
        """Refuse a call while a deferred one is pending."""
        if self._deferred is not None:
            pending = self._deferred[0]
            raise AlreadyPendingCallError(
                f"{call} was called while a {pending} is still pending: call {pending}_wait first",
                pending,
            )

    def _take_deferred(self, name: str, timeout: float | None) -> dict[str, Any]:
        """Return the arguments that `_defer` kept."""
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

    def _refuse_bypass(self, methods: tuple[str, ...]) -> None:
        """Raise if an override of the subclass would not see what these methods do."""
        if methods in self._bypassed:
            override, name = self._bypassed[methods], type(self).__name__
            raise TypeError(
                f"{' and '.join(methods)} would go around {name}.{override}: override "
                f"{' and '.join(methods)} too, or write {name} as a VectorObservationWrapper, "
                "VectorActionWrapper or VectorRewardWrapper"
            )

    def render(self, **kwargs: Any) -> tuple[Any, ...] | None:
        """Render the wrapped vector env."""
        return self.env.render(**kwargs)

    def close(self, **kwargs: Any) -> None:
        """Close the wrapped vector env."""
        self.env.close(**kwargs)

    def close_extras(self, **kwargs: Any) -> None:
        """Free what the wrapped vector env holds."""
        self.env.close_extras(**kwargs)

    def __getattr__(self, name: str) -> Any:
        # Only for what neither the wrapper nor VectorEnv defines: call, get_attr, set_attr, stats,
        # ...
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self.env}>"

    observation_space: Space[Any] = _own(
        "observation_space", "The space of a batch of observations."
    )
    action_space: Space[Any] = _own("action_space", "The space of a batch of actions.")
    single_observation_space: Space[Any] = _own(
        "single_observation_space", "The space of one environment's observation."
    )
    single_action_space: Space[Any] = _own(
        "single_action_space", "The space of one environment's action."
    )
    metadata: dict[str, Any] = _own("metadata", "Facts about the environments.")
    num_envs: int = _inner("num_envs", "The number of environments.")
    info_space: Dict[Any] | None = _inner(
        "info_space", "What the infos of each environment hold, if it is declared."
    )
    spec: Any = _inner("spec", "What the wrapped vector env was made from.")
    render_mode: str | None = _inner("render_mode", "How the environments render.")
    closed: bool = _inner("closed", "Whether the wrapped vector env is closed.", settable=True)
    np_random: Any = _inner("np_random", "The generator of the wrapped vector env.", settable=True)
    np_random_seed: Any = _inner(
        "np_random_seed", "The seed of the wrapped vector env's generator."
    )
    unwrapped: VectorEnv[Any, Any, Any] = _inner("unwrapped", "The vector env below all wrappers.")


class VectorObservationWrapper(VectorWrapper[WrapperObsType, ActType, ObsType, ActType, ArrayType]):
    """A wrapper that changes observations; override `observations`.

    What `reset` and `step` return is changed, in all their forms, and `infos["final_obs"]` too.

    Args:
        env: The vector env to wrap.
    """

    def _after_reset(
        self, observations: ObsType, infos: dict[str, Any], mask: Mask | None
    ) -> tuple[WrapperObsType, dict[str, Any]]:
        return self.observations(observations), infos

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        observations, rewards, terminations, truncations, infos = result
        if "_final_obs" in infos:
            ended = np.flatnonzero(infos["_final_obs"])
            infos["final_obs"] = self._final_observations(infos["final_obs"], ended)
        return self.observations(observations), rewards, terminations, truncations, infos

    def _final_observations(
        self, finals: npt.NDArray[Any], rows: npt.NDArray[np.intp]
    ) -> npt.NDArray[Any]:
        """Change the last observations of the episodes that ended, as one batch of these rows."""
        if not len(rows):
            return finals
        space, count = self.env.single_observation_space, len(rows)
        items = [finals[row] for row in rows]
        batch = self.observations(concatenate(space, items, create_empty_array(space, count)))
        changed = np.full(len(finals), None, dtype=object)
        batched = batch_space(self.single_observation_space, count)
        for row, item in zip(rows, iterate(batched, batch), strict=True):
            changed[row] = item
        return changed

    def rollout_view(self) -> Rollout:
        """Refuse: the ring holds the observations of the environments, unchanged.

        Raises:
            ValueError: Always.
        """
        raise _unchanged_rollout(self, "observations")

    def observations(self, observations: ObsType) -> WrapperObsType:
        """Change a batch of observations.

        Every row has to be changed by itself: `step` and `reset` hand over the rows of all
        environments (a `reset` with a mask those that were not reset too), `recv` those of some in
        any order, and the last observations of episodes come as a batch of their own.

        Args:
            observations: Rows that the wrapped vector env returned, as many as there are; views
                that must not be written to where it was made with `copy=False`.

        Returns:
            As many rows, as `single_observation_space` describes them.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement observations")


class VectorActionWrapper(VectorWrapper[ObsType, WrapperActType, ObsType, ActType, ArrayType]):
    """A wrapper that changes actions; override `actions`."""

    def _before_step(self, actions: WrapperActType) -> ActType:
        return self.actions(actions)

    def actions(self, actions: WrapperActType) -> ActType:
        """Change a batch of actions.

        Args:
            actions: What the wrapper was given: a row for each environment, or for each of those
                that `send` was given.

        Returns:
            What the wrapped vector env takes, with as many rows.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement actions")


class VectorRewardWrapper(VectorWrapper[ObsType, ActType, ObsType, ActType, ArrayType]):
    """A wrapper that changes rewards; override `rewards`."""

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        observations, rewards, terminations, truncations, infos = result
        return observations, self.rewards(rewards), terminations, truncations, infos

    def rollout_view(self) -> Rollout:
        """Refuse: the rewards of the wrapped vector env are unchanged.

        Raises:
            ValueError: Always.
        """
        raise _unchanged_rollout(self, "rewards")

    def rewards(self, rewards: ArrayType) -> ArrayType:
        """Change a batch of rewards.

        Args:
            rewards: Shape `(rows,)`: of all environments, or of those that `recv` returns.

        Returns:
            What the wrapper returns, of the same shape.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement rewards")


def _reset_mask(options: Any) -> Mask | None:
    """Copy the mask of the environments to reset: a caller may reuse its array; None: all."""
    mask = options.get("reset_mask") if isinstance(options, Mapping) else None
    return None if mask is None else np.array(mask)


def _unchanged_rollout(wrapper: VectorWrapper[Any, Any, Any, Any, Any], what: str) -> ValueError:
    """Return the error for a rollout that a transform would not see."""
    return ValueError(
        f"rollout_view() would return {what} that {type(wrapper).__name__} has not changed: call "
        "env.rollout_view() of the wrapped vector env, and change them yourself"
    )
