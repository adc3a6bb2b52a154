"""FrameStackObservation: the last observations of each environment, which share their memory."""

from __future__ import annotations

import copy
from functools import partial
from operator import index
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from vecspaces.spaces.batch_values import pick
from vecspaces.vector import VectorEnv
from vecspaces.vector.utils import batch_space, concatenate, create_empty_array, iterate
from vecspaces.vector.vector_env import ActType, ObsType, StepResult
from vecspaces.vector.vector_wrapper import ALL, Mask, RowChoice
from vecspaces.wrappers.batches import has_arrays_only, map_arrays
from vecspaces.wrappers.episodes import EpisodeBounds, EpisodeWrapper

_Array = npt.NDArray[Any]
# Stacks per line: when a line is full, its last frames are copied to the beginning of a new one.
_STACKS = 9


class FrameStackObservation(EpisodeWrapper[Any, ActType, ObsType], Generic[ActType, ObsType]):
    """Returns the last `stack_size` observations of each environment, the newest last.

    At the beginning of an episode, padding replaces the missing observations.

    Each observation is stored once, not once per stack. If the wrapped vector env was made with
    `copy=False`, `reset` and `step` return read-only views of this memory, which is not written
    again while the views exist. k stacked frames then take the memory of one frame, but a step in
    which an episode begins copies k - 1 frames of all environments. `recv` and `step(env_ids=...)`
    return copies, as do all calls with `copy=True`.

    Args:
        env: The vector env to wrap.
        stack_size: The number of stacked observations.
        padding_type: `"reset"` (the first observation of the episode), `"zero"` (zeros, or the
            nearest values of a Box; the start of a Discrete), or an observation.

    Raises:
        TypeError: `stack_size` is not an integer.
        ValueError: `stack_size` is not positive, or `padding_type` is not one of these.

    Example:
        >>> from vecspaces import make_vec
        >>> envs = make_vec("CartPole-v1", 2, backend="sync", copy=False)
        >>> with FrameStackObservation(envs, 3, padding_type="zero") as envs:
        ...     first, _ = envs.reset(seed=1)
        ...     second, *_ = envs.step(np.array([0, 1]))
        ...     second.shape, first[0, 1].tolist(), np.shares_memory(first, second)
        ((2, 3, 4), [0.0, 0.0, 0.0, 0.0], True)
    """

    _changes = "observations"

    def __init__(
        self,
        env: VectorEnv[ObsType, ActType, _Array],
        stack_size: int,
        *,
        padding_type: Any = "reset",
    ) -> None:
        super().__init__(env)
        try:
            self.stack_size = index(stack_size)
        except TypeError:
            raise TypeError(f"stack_size: expected an integer, found {stack_size!r}") from None
        if self.stack_size < 1:
            raise ValueError(f"stack_size: expected at least 1, found {stack_size}")
        space = env.single_observation_space
        padding: Any = None  # the first observation
        if isinstance(padding_type, str) and padding_type == "zero":
            padding = _zero(space)
        elif not (isinstance(padding_type, str) and padding_type == "reset"):
            if padding_type not in space:
                raise ValueError(
                    "padding_type: expected 'reset', 'zero' or an observation of "
                    f"{space}, found {padding_type!r}"
                )
            padding, padding_type = copy.deepcopy(padding_type), "_custom"
        self.padding_type: str = padding_type
        self.single_observation_space = batch_space(space, self.stack_size)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        kind = _ArrayFrames if has_arrays_only(space) else _ItemFrames
        self._frames: _ArrayFrames | _ItemFrames = kind(
            space, self.num_envs, self.stack_size, padding, bool(getattr(env, "copy", True))
        )

    def _save_rows(self, env_ids: npt.NDArray[np.int64]) -> dict[str, Any]:
        return {**super()._save_rows(env_ids), "_frames": self._frames.save(env_ids)}

    def _load_rows(self, saved: dict[str, Any], env_ids: npt.NDArray[np.int64]) -> None:
        self._frames.load(saved["_frames"], env_ids)
        super()._load_rows({key: saved[key] for key in saved if key != "_frames"}, env_ids)

    def _after_load(self, observations: ObsType, env_ids: npt.NDArray[np.int64]) -> Any:
        return self._frames.stacks(env_ids)

    def _begin(
        self, observations: ObsType, infos: dict[str, Any], rows: RowChoice
    ) -> tuple[Any, dict[str, Any]]:
        begun = np.ones(len(self._numbers[rows]), np.bool_)
        chosen = observations
        if rows is not ALL:
            chosen = pick(self.env.single_observation_space, observations, rows)
        self._frames.push(chosen, rows, begun)
        return self._frames.stacks(ALL), infos

    def _follow(self, result: StepResult, progress: EpisodeBounds) -> StepResult:
        observations, *others, infos = result
        rows, begun = progress.rows, progress.begun
        if "_final_obs" in infos:
            infos = self._with_finals(infos, partial(self._stack_finals, self._numbers[rows]))
        if self._same_step and np.count_nonzero(progress.ended):
            begun = progress.ended if begun is None else begun | progress.ended
        self._frames.push(observations, rows, begun)
        return self._frames.stacks(rows), others[0], others[1], others[2], infos

    def _stack_finals(self, numbers: _Array, batch: Any, ended: _Array) -> Any:
        """Return the last stacks of episodes that ended."""
        self._frames.push(batch, numbers[ended], None)
        return self._frames.stacks(numbers[ended])


class _ArrayFrames:
    """The last frames of each environment: one line of frames per row, and the end of each line.

    A stack is the end of a line. No frame is written twice. The padding is before the first frame;
    None: the first frame itself.
    """

    def __init__(self, space: Space[Any], count: int, size: int, padding: Any, copy: bool) -> None:
        self._space, self._size, self._padding, self._copy = space, size, padding, copy
        self._numbers = np.arange(count)
        self._before = np.arange(1 - size, 0)
        self._line = batch_space(space, _STACKS * size)
        self._lines = create_empty_array(self._line, count)
        if padding is not None:
            map_arrays(space, np.copyto, self._lines, padding)
        self._ends = np.full(count, size - 1)

    def push(self, batch: Any, rows: RowChoice, begun: Mask | None) -> None:
        """Add a frame to some rows, after padding where an episode begins."""
        ends = self._ends.copy()
        ends[rows] += 1 if begun is None else np.where(begun, self._size, 1)
        # A view of all rows needs lines that end at the same index.
        uneven = rows is ALL and not self._copy and not _are_equal(ends)
        if uneven or ends.max() >= _STACKS * self._size:
            self._lines = self._moved(rows)
            ends[:] = self._size - 1
        self._ends = ends
        at = self._numbers[rows]
        places = ends[rows]
        starts = None if begun is None else at[begun]

        def write(line: _Array, new: Any, padding: Any) -> None:
            if rows is ALL and _are_equal(ends):
                line[:, ends[0]] = new
            else:
                line[at, places] = new
            if starts is not None:
                before = ends[starts][:, None] + self._before
                first = np.asarray(new)[begun][:, None]
                line[starts[:, None], before] = first if self._padding is None else padding

        map_arrays(
            self._space,
            write,
            self._lines,
            batch,
            batch if self._padding is None else self._padding,
        )

    def _moved(self, rows: RowChoice) -> Any:
        """Return new lines that begin with the last frames, with space for more in some rows."""
        size = self._size
        lines = create_empty_array(self._line, len(self._numbers), np.empty)

        def move(new: _Array, stacks: _Array) -> None:
            new[:, :size] = stacks
            new[rows, : size - 1] = stacks[rows, 1:]

        map_arrays(self._space, move, lines, self.stacks(ALL))
        return lines

    def stacks(self, rows: RowChoice) -> Any:
        """Return the last frames of some rows."""
        size, ends = self._size, self._ends

        def read(line: _Array) -> _Array:
            if rows is ALL and _are_equal(ends):
                view: _Array = line[:, ends[0] - size + 1 : ends[0] + 1]
                view = view.copy() if self._copy else view
                view.flags.writeable = self._copy
                return view
            at = self._numbers[rows][:, None]
            stacks: _Array = line[at, ends[at] + np.append(self._before, 0)]
            return stacks

        return map_arrays(self._space, read, self._lines)

    def save(self, rows: _Array) -> Any:
        """Return the last frames of some rows."""
        return self.stacks(rows)

    def load(self, saved: Any, rows: _Array) -> None:
        """Add the frames that `save` returned, of as many rows or of one."""
        for place in range(self._size):
            frame = map_arrays(self._space, lambda stacks: stacks[:, place], saved)  # noqa: B023
            self.push(frame, rows, None)


class _ItemFrames:
    """The last frames of each environment, if they are not only arrays: one tuple per row."""

    def __init__(self, space: Space[Any], count: int, size: int, padding: Any, copy: bool) -> None:
        self._space, self._size, self._padding = space, size, padding
        self._numbers = np.arange(count)
        self._rows: list[tuple[Any, ...]] = [(padding,) * size] * count

    def push(self, batch: Any, rows: RowChoice, begun: Mask | None) -> None:
        """Add a frame to some rows, after padding where an episode begins."""
        numbers = self._numbers[rows].tolist()
        items = iterate(batch_space(self._space, len(numbers)), batch)
        for place, (row, item) in enumerate(zip(numbers, items, strict=True)):
            frame = copy.deepcopy(item)  # a view, if the vector env does not copy
            before = self._rows[row][1:]
            if begun is not None and begun[place]:
                before = (frame if self._padding is None else self._padding,) * (self._size - 1)
            self._rows[row] = (*before, frame)

    def stacks(self, rows: RowChoice) -> Any:
        """Return the last frames of some rows."""
        stacked = [concatenate(self._space, self._rows[row], None) for row in self._numbers[rows]]
        return concatenate(batch_space(self._space, self._size), stacked, None)

    def save(self, rows: _Array) -> Any:
        """Return the last frames of some rows, which are never changed."""
        return [self._rows[row] for row in rows]

    def load(self, saved: Any, rows: _Array) -> None:
        """Use the frames that `save` returned, of as many rows or of one."""
        for place, row in enumerate(rows):
            self._rows[row] = saved[place if len(saved) > 1 else 0]


def _are_equal(ends: _Array) -> bool:
    """Whether all lines end at the same index."""
    return bool((ends == ends[0]).all())


def _zero(space: Space[Any]) -> Any:
    """Return Gymnasium's zeros of a space: of a Box the nearest, of a Discrete its start."""
    if isinstance(space, Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, (Discrete, MultiDiscrete)):
        return copy.copy(space.start)
    if isinstance(space, MultiBinary):
        return np.zeros(space.shape, space.dtype)
    if isinstance(space, Dict):
        return {key: _zero(member) for key, member in space.items()}
    if isinstance(space, Tuple):
        return tuple(map(_zero, space.spaces))
    if isinstance(space, Text):
        return space.characters[0] * space.min_length
    if isinstance(space, Sequence):
        return _zero(space.stacked_feature_space) if space.stack else ()
    if isinstance(space, OneOf):
        return 0, _zero(space.spaces[0])
    if isinstance(space, Graph):
        nodes = _zero(batch_space(space.node_space, 1))
        if space.edge_space is None:
            return GraphInstance(nodes, None, None)
        edges = _zero(batch_space(space.edge_space, 1))
        return GraphInstance(nodes, edges, np.zeros((1, 2), np.int64))
    raise ValueError(f"padding_type: expected 'reset' or an observation for {space}, found 'zero'")
