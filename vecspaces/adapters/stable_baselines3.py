"""Vector envs of the class `stable_baselines3.common.vec_env.VecEnv`.

Stable-Baselines3 expects that the step which ends an episode also resets the environment, that its
info contains the last observation, and that infos are one dict per environment. This module
converts results to this form, in the caller's process.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces import spaces, vector
from vecspaces.adapters.wrapping import batch_actions, has_attribute, has_wrapper, taken
from vecspaces.interop import require_extra
from vecspaces.vector.engine.arguments import Once
from vecspaces.vector.group.attributes import get_attribute

_vec_env: Any = require_extra("stable_baselines3.common.vec_env", "sb3")
_preprocessing: Any = require_extra("stable_baselines3.common.preprocessing", "sb3")

from vecspaces.adapters.gymnasium import to_gymnasium  # noqa: E402  # SB3 brings Gymnasium

__all__ = ["DummyVecEnv", "SubprocVecEnv", "VecspacesVecEnv", "as_vec_env"]

_LIBRARY = "Stable-Baselines3"
Indices = int | Iterable[int] | None
InfoList = list[dict[str, Any]]


class VecspacesVecEnv(_vec_env.VecEnv):  # type: ignore[misc]  # SB3 need not be installed
    """A vector env of vecspaces with the interface of Stable-Baselines3's vector envs.

    Its methods are those of Stable-Baselines3, with `indices` for some environments (None: all).

    Args:
        vector_env: A vector env of vecspaces, wrapped or not, or of its Gymnasium interface; it is
            stepped, not copied. Any autoreset mode works; SAME_STEP is the fastest, because the
            other modes reset finished environments by a second call. Or factories of environments,
            as `make_vec_env(..., vec_env_cls=VecspacesVecEnv)` passes them, of which a vector env
            in SAME_STEP mode is made.
        backend: `"async"` or `"sync"`: where the environments of factories run.
        dead_rows: With `agents="rows"`, an agent may be gone before its environment's episode is
            over. Stable-Baselines3 cannot mask its row, and trains on zeros. `"refuse"` raises an
            error for such rows, `"keep"` accepts them.
        **vector_kwargs: More arguments for `AsyncVectorEnv` or `SyncVectorEnv`. A `num_workers`
            above the number of environments counts as that number. With `"sync"`, those that
            concern processes have no effect.

    Attributes:
        vector_env: The vector env of vecspaces.

    Raises:
        TypeError: `vector_env` is no vector env of single environments.
        ValueError: `vector_env` does not copy its observations, or its actions do not start at 0.
        CustomSpaceError: Gymnasium has no space of this kind.

    Example:
        >>> from stable_baselines3 import PPO
        >>> from vecspaces import make_vec
        >>> envs = make_vec("CartPole-v1", 4, vector_kwargs={"autoreset_mode": "SameStep"})
        >>> vec_env = as_vec_env(envs)
        >>> model = PPO("MlpPolicy", vec_env, n_steps=32).learn(128)
        >>> model.num_timesteps
        128
        >>> vec_env.close()
    """

    def __init__(
        self,
        vector_env: Any,
        *,
        backend: str = "async",
        dead_rows: str = "refuse",
        **vector_kwargs: Any,
    ) -> None:
        if dead_rows not in ("refuse", "keep"):
            raise ValueError(f"dead_rows: expected 'refuse' or 'keep', found {dead_rows!r}")
        self._refuses_dead = dead_rows == "refuse"
        mode = vector.AutoresetMode.SAME_STEP
        with taken(vector_env, _LIBRARY, mode, backend, vector_kwargs) as (envs, _):
            self._wrap(envs)
        self._source = vector_env  # kept, or it would be collected and close its vector env

    def _wrap(self, vector_env: vector.VectorEnv[Any, Any, Any]) -> None:
        """Take a vector env that was checked."""
        actions = vector_env.single_action_space
        if np.any(getattr(actions, "start", 0)):
            raise ValueError(
                f"action_space: Stable-Baselines3's policies count from 0, not from the start of "
                f"{actions}: wrap each environment in gymnasium.wrappers.TransformAction(env, "
                "lambda action: action + env.action_space.start, space_that_starts_at_0)"
            )
        self.vector_env: Any = vector_env
        self._mode = vector.AutoresetMode.of(vector_env.metadata["autoreset_mode"])
        super().__init__(
            vector_env.num_envs,
            to_gymnasium(vector_env.single_observation_space),
            to_gymnasium(vector_env.single_action_space),
        )
        # Whether rows are agents, and the first row of each environment.
        self._are_agents = getattr(vector_env, "agent_layout", None) == "rows"
        width = getattr(vector_env, "rows_per_env", (1,))[0]
        self._firsts = range(0, vector_env.num_envs, width)
        self.metadata: dict[str, Any] = {**self.metadata, **vector_env.metadata}
        # The last action masks, None of environments without. With `action_mask` in the info_space,
        # they answer sb3-contrib's `env_method("action_masks")` without a call.
        self._declares_masks = "action_mask" in list(vector_env.info_space or ())
        self._masks: list[Any] | None = None

    def reset(self) -> Any:
        """Begin new episodes, with the seeds and options of `seed` and `set_options`.

        Returns:
            The batch of observations; the infos are in `reset_infos`.
        """
        options = Once(self._options[row] or None for row in self._firsts)
        # The agents of environment k have one seed: seed + k.
        seeds: Any = self._seeds[: len(self._firsts)]
        seeds = None if all(seed is None for seed in seeds) else seeds
        observations, infos = self.vector_env.reset(
            seed=seeds, options=options if any(options) else None
        )
        self._check_agents(infos)
        self.reset_infos = vector.infos_as_list(infos, self.num_envs)
        if self._declares_masks:
            self._masks = [info.get("action_mask") for info in self.reset_infos]
        self._reset_seeds()  # both are used once
        self._reset_options()
        return observations

    def _check_agents(self, infos: dict[str, Any]) -> None:
        """Refuse rows of agents that are gone while their environment's episode continues."""
        if not self._are_agents or not self._refuses_dead or "alive" not in infos:
            return
        dead = infos["_alive"] & ~infos["alive"]
        if self._mode is not vector.AutoresetMode.SAME_STEP:  # `alive` is of the next episode
            dead &= ~infos["episode_over"]
        if dead.any():
            row = int(dead.argmax())
            raise ValueError(
                f"row {row}, agent {self.vector_env.agent_names[row]!r}, is gone while its "
                "environment's episode goes on: Stable-Baselines3 has no mask for rows, and would "
                "learn from its zeros; dead_rows='keep' keeps them all the same"
            )

    def step_async(self, actions: Any) -> None:
        """Begin a step; `step_wait` ends it.

        Args:
            actions: One per environment, or a batch as `vector_env` takes it. Whole numbers may
                come as floats, as SB3's policies return them for MultiBinary.
        """
        space = self.vector_env.single_action_space
        self.vector_env.step_async(batch_actions(space, actions, self.num_envs))
        self._masks = None  # until it has ended

    def step_wait(self) -> tuple[Any, npt.NDArray[np.float32], npt.NDArray[np.bool_], InfoList]:
        """End a step; finished environments are reset.

        Returns:
            Observations, rewards (float32), whether each episode is over, and one info per
            environment, with `"TimeLimit.truncated"`, and at an end `"terminal_observation"`.
        """
        observations, rewards, terminations, truncations, merged = self.vector_env.step_wait()
        dones = begun = terminations | truncations
        self._check_agents(merged)
        infos = vector.infos_as_list(merged, self.num_envs)
        ended = dones.nonzero()[0].tolist()
        if self._mode is vector.AutoresetMode.SAME_STEP:
            for row in ended:
                infos[row], self.reset_infos[row] = _last_and_first(infos[row])
        elif ended:
            finals = list(vector.utils.iterate(self.vector_env.observation_space, observations))
            for row in ended:
                infos[row]["terminal_observation"] = finals[row]
            if self._are_agents:  # environments of one agent may be among them
                begun = np.where(merged["_episode_over"], merged["episode_over"], dones)
            if begun.any():
                observations, merged = self.vector_env.reset(options={"reset_mask": begun})
                self._check_agents(merged)
                resets = vector.infos_as_list(merged, self.num_envs)
                for row in begun.nonzero()[0].tolist():
                    self.reset_infos[row] = resets[row]
        if self._declares_masks:
            pairs = zip(infos, self.reset_infos, begun.tolist(), strict=True)
            current = [first if is_begun else info for info, first, is_begun in pairs]
            self._masks = [info.get("action_mask") for info in current]
        for info, cut in zip(infos, (truncations & ~terminations).tolist(), strict=True):
            info["TimeLimit.truncated"] = cut
        return observations, rewards.astype(np.float32), dones, infos

    def _known_masks(self, indices: Indices) -> list[Any] | None:
        """Return copies of the last action masks; None where one is not known."""
        if self._masks is None:
            return None
        masks = [self._masks[row] for row in self._rows(indices)]
        return None if any(mask is None for mask in masks) else [mask.copy() for mask in masks]

    def close(self) -> None:
        """Close the environments and free their resources."""
        self._masks = None
        self.vector_env.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Get an attribute of environments, or of their wrappers; a method is not called.

        `"action_mask"` is read from the last infos, if the info_space declares it.
        """
        if attr_name == "action_mask":
            masks = self._known_masks(indices)
            if masks is not None:
                return masks
        return self._call(get_attribute, attr_name, indices=indices)

    def has_attr(self, attr_name: str) -> bool:
        """Whether all environments, or their wrappers, have an attribute."""
        if self._declares_masks and attr_name in ("action_mask", "action_masks"):
            return True
        return all(self._call(has_attribute, attr_name))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of environments, on the wrapper that has it."""
        self._masks = None  # it may change them
        rows = list(dict.fromkeys(self._rows(indices)))
        self.vector_env.set_attr(attr_name, [value] * len(rows), env_ids=rows)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of environments, or of their wrappers.

        `"action_masks"` without arguments returns the masks of the last infos, if the info_space
        declares `"action_mask"`.
        """
        if method_name == "action_masks" and not (method_args or method_kwargs):
            masks = self._known_masks(indices)
            if masks is not None:
                return masks
        else:
            self._masks = None  # it may change them
        return self._call(method_name, *method_args, indices=indices, **method_kwargs)

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        """Whether environments are wrapped in a class."""
        return self._call(has_wrapper, wrapper_class, indices=indices)

    def get_images(self) -> list[Any]:
        """Render all environments; None for each if they do not render images."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"get_images() needs environments made with render_mode='rgb_array', found "
                f"{self.render_mode!r}",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return list(self.vector_env.render() or ())

    def _call(self, name: Any, *args: Any, indices: Indices = None, **kwargs: Any) -> list[Any]:
        rows = self._rows(indices)
        if len(set(rows)) < len(rows):  # an environment that is named twice is called twice
            return [self._call(name, *args, indices=row, **kwargs)[0] for row in rows]
        return list(self.vector_env.call(name, *args, env_ids=rows, **kwargs))

    def _rows(self, indices: Indices) -> list[int]:
        """Return indices as numbers; negative ones count from the end, as in a list."""
        rows = range(self.num_envs)
        if indices is None:
            return list(rows)
        if isinstance(indices, (int, np.integer)):
            return [rows[int(indices)]]
        return [rows[int(index)] for index in indices]


def _last_and_first(info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split an info of SAME_STEP mode into that of the last step and that of the reset."""
    last = info.pop("final_info", {})
    last["terminal_observation"] = info.pop("final_obs")
    if "episode" in info:
        # A RecordEpisodeStatistics around the vector env reports the episode that has ended.
        last["episode"] = info.pop("episode")
    return last, info


class _DropIn(VecspacesVecEnv):
    """The base of SubprocVecEnv and DummyVecEnv: attributes are set where SB3 sets them."""

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of environments, on their outermost wrappers."""
        self._masks = None  # it may change them
        self._call(setattr, attr_name, value, indices=indices)


class SubprocVecEnv(_DropIn):
    """Replaces `stable_baselines3.common.vec_env.SubprocVecEnv`: one worker per core.

    Args:
        env_fns: Factories of environments; each is called once, in its worker.
        start_method: A start method of `multiprocessing`; None: forkserver, if the platform has it,
            otherwise spawn.
        **vector_kwargs: More arguments for `vecspaces.vector.AsyncVectorEnv`.

    Raises:
        ValueError: There is no such start method.

    Example:
        >>> import gymnasium
        >>> from vecspaces.adapters.stable_baselines3 import SubprocVecEnv
        >>> vec_env = SubprocVecEnv([lambda: gymnasium.make("CartPole-v1")] * 4, num_workers=2)
        >>> vec_env.reset().shape
        (4, 4)
        >>> vec_env.close()
    """

    def __init__(
        self, env_fns: Iterable[Any], start_method: str | None = None, **vector_kwargs: Any
    ) -> None:
        if start_method is None:
            known = multiprocessing.get_all_start_methods()
            start_method = "forkserver" if "forkserver" in known else "spawn"
        multiprocessing.get_context(start_method)  # raises if there is none of this name
        super().__init__(env_fns, context=start_method, **vector_kwargs)


class DummyVecEnv(_DropIn):
    """Replaces `stable_baselines3.common.vec_env.DummyVecEnv`: all in the caller's process.

    Args:
        env_fns: Factories of environments; each is called once.

    Attributes:
        envs: The environments; empty after `close`.

    Raises:
        NotImplementedError: Observations are nested more than one level deep, as in
            Stable-Baselines3.

    Example:
        >>> import gymnasium
        >>> from vecspaces.adapters.stable_baselines3 import DummyVecEnv
        >>> vec_env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])
        >>> vec_env.envs[0].unwrapped.gravity
        9.8
        >>> vec_env.close()
    """

    def __init__(self, env_fns: Iterable[Any]) -> None:
        super().__init__(env_fns, backend="sync")
        # Their own spaces, which the `seed` of an algorithm seeds.
        for name in ("observation_space", "action_space"):
            space = getattr(self.envs[0], name)
            if not isinstance(space, spaces.Space):
                setattr(self, name, space)
        try:
            _preprocessing.check_for_nested_spaces(self.observation_space)
        except BaseException:
            self.close()
            raise

    @property
    def envs(self) -> list[Any]:
        """The environments; empty after `close`."""
        environments: list[Any] = self.vector_env.envs
        return environments


def as_vec_env(vector_env: Any, *, dead_rows: str = "refuse") -> VecspacesVecEnv:
    """Convert a vector env for the algorithms and wrappers of Stable-Baselines3.

    Args:
        vector_env: As for `VecspacesVecEnv`, whose errors it raises.
        dead_rows: `"refuse"` or `"keep"`, as there.

    Returns:
        A `stable_baselines3.common.vec_env.VecEnv`.
    """
    return VecspacesVecEnv(vector_env, dead_rows=dead_rows)
