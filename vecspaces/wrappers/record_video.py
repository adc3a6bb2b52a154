"""RecordVideo: frames of chosen environments, side by side, as a GIF or MP4."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, NoReturn

import numpy as np
import numpy.typing as npt

from vecspaces.interop import require_extra
from vecspaces.vector import AutoresetMode, VectorEnv, VectorWrapper
from vecspaces.vector.vector_env import ActType, ObsType, StepResult
from vecspaces.vector.vector_wrapper import Mask

Image = npt.NDArray[np.uint8]
Trigger = Callable[[int], bool]

_GAP = 4  # pixels between the frames of two environments
_BACKGROUND = 40  # dark grey
PICTURES = (".gif", ".mp4")


class RecordVideo(
    VectorWrapper[ObsType, ActType, ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]
):
    """Writes the frames of environments into files, as a grid.

    Arguments and names of files are those of `gymnasium.wrappers.vector.RecordVideo`. Episodes are
    those of the first recorded environment, and each call of `step` is a step. `to_file` writes one
    file instead. In SAME_STEP mode the last frame of an episode is missing, because its environment
    has been reset.

    Args:
        env: The vector env to wrap; its environments were made with `render_mode="rgb_array"`.
        video_folder: The folder for the files, which is made if it does not exist.
        video_aspect_ratio: The width and height that the grid should have approximately.
        record_first_only: Whether only the first environment is recorded.
        episode_trigger: Whether a file begins at an episode with this number; None, if there is no
            `step_trigger` either: at 0, 1, 8, 27 and further cubes, and at every thousandth.
        step_trigger: Whether a file begins at a step with this number.
        video_length: After how many steps a file ends; 0: with the episode.
        name_prefix: The beginning of the files' names.
        fps: Frames per second; None: `render_fps` of the environments' metadata, or 30.
        disable_logger: Has no effect, because nothing is logged.
        gc_trigger: Has no effect, because frames are not kept.
        env_ids: The environments in the grid, row by row; None: all.
        suffix: The format of the files, `".mp4"` or `".gif"`.

    Attributes:
        recording: Whether the next frames are written.
        frames_written: The number of frames in the last file.
        episode_id: The number of the episode.
        step_id: The number of the last step.

    Raises:
        ValueError: The environments do not render images, or an argument is out of its range.
        ImportError: imageio is not installed, or imageio-ffmpeg for MP4.

    Example:
        >>> import os, tempfile
        >>> from vecspaces import make_vec
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     envs = make_vec("CartPole-v1", 4, backend="sync", render_mode="rgb_array")
        ...     with RecordVideo(envs, folder, suffix=".gif") as envs:
        ...         _ = envs.reset(seed=1), envs.step(envs.action_space.sample())
        ...     envs.frames_written, os.listdir(folder)
        (2, ['rl-video-episode-0.gif'])
    """

    def __init__(
        self,
        env: VectorEnv[ObsType, ActType, npt.NDArray[Any]],
        video_folder: str | Path,
        video_aspect_ratio: tuple[int, int] = (1, 1),
        record_first_only: bool = False,
        episode_trigger: Trigger | None = None,
        step_trigger: Trigger | None = None,
        video_length: int = 0,
        name_prefix: str = "rl-video",
        fps: float | None = None,
        disable_logger: bool = True,
        gc_trigger: Trigger | None = None,
        *,
        env_ids: Sequence[int] | None = None,
        suffix: str = ".mp4",
    ) -> None:
        super().__init__(env)
        self.video_folder, self.name_prefix, self._suffix = Path(video_folder), name_prefix, suffix
        self.video_aspect_ratio = video_aspect_ratio
        self._env_ids = list(range(env.num_envs) if env_ids is None else env_ids)
        self._env_ids = self._env_ids[:1] if record_first_only else self._env_ids
        self.video_length: float = video_length or math.inf
        self._fps = float(fps if fps is not None else env.metadata.get("render_fps") or 30)
        self._check()
        require_extra("imageio", "video")
        if suffix.lower() == ".mp4":
            require_extra("imageio_ffmpeg", "video")
        self.video_folder.mkdir(parents=True, exist_ok=True)
        is_default = episode_trigger is None and step_trigger is None
        self.episode_trigger = _is_cube if is_default else episode_trigger
        self.step_trigger = step_trigger
        self._mode = AutoresetMode.of(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._has_ended = self.recording = False
        self.step_id = self.episode_id = -1
        self._path = self.video_folder
        self._writer: Any = None
        self.frames_written = 0

    @classmethod
    def to_file(
        cls,
        env: VectorEnv[ObsType, ActType, npt.NDArray[Any]],
        path: str | Path,
        *,
        length: int | None = None,
        **arguments: Any,
    ) -> RecordVideo[ObsType, ActType]:
        """Write the frames after every reset and step into one file.

        Args:
            env: The vector env to wrap.
            path: The file; its ending, `.gif` or `.mp4`, is its format.
            length: The maximum number of frames; None: until `close`.
            **arguments: `env_ids`, `fps` and `video_aspect_ratio`.

        Returns:
            The wrapped vector env.

        Raises:
            ValueError: An argument is out of its range.
        """
        path = Path(path)
        if not path.parent.is_dir():
            raise ValueError(f"path: expected a folder that exists, found {path.parent}")
        if length is not None and length < 1:
            raise ValueError(f"length: expected at least 1, found {length}")
        recorder = cls(env, path.parent, suffix=path.suffix, **arguments)
        recorder.episode_trigger, recorder.video_length = None, (length or sys.maxsize) - 1
        recorder.start_recording(path.stem)
        return recorder

    def _check(self) -> None:
        """Refuse wrong arguments, before anything is recorded."""
        if self.render_mode != "rgb_array":
            raise ValueError(
                "RecordVideo needs environments made with render_mode='rgb_array', found "
                f"{self.render_mode!r}"
            )
        if self._suffix.lower() not in PICTURES:
            raise ValueError(f"expected files that end in .gif or .mp4, found {self._suffix!r}")
        bad = [row for row in self._env_ids if not 0 <= row < self.num_envs]
        if bad or not self._env_ids or len(set(self._env_ids)) < len(self._env_ids):
            raise ValueError(
                f"env_ids: expected different numbers from 0 to {self.num_envs - 1}, "
                f"found {self._env_ids}"
            )
        if not 0 < self._fps < math.inf:
            raise ValueError(f"fps: expected more than 0 frames per second, found {self._fps}")
        if self.video_length < 0:
            raise ValueError(f"video_length: expected at least 0, found {self.video_length}")
        if not min(self.video_aspect_ratio) > 0:
            ratio = self.video_aspect_ratio
            raise ValueError(f"video_aspect_ratio: expected two numbers above 0, found {ratio}")

    def send(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise ValueError: environments that are busy cannot be rendered."""
        raise ValueError("RecordVideo cannot record send and recv: use step, or unwrap it")

    send_reset = recv = send

    def _after_reset(
        self, observations: ObsType, infos: dict[str, Any], mask: Mask | None
    ) -> tuple[ObsType, dict[str, Any]]:
        if mask is None or mask[self._env_ids[0]]:
            self._begin_episode()
        self._record()
        return observations, infos

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        _, _, terminations, truncations, _ = result
        rows = np.arange(self.num_envs) if env_ids is None else env_ids
        self.step_id += 1
        for place in np.flatnonzero(rows == self._env_ids[0]).tolist():
            ended, had_ended = terminations[place] or truncations[place], self._has_ended
            self._has_ended = ended
            is_next = self._mode is AutoresetMode.NEXT_STEP and had_ended
            if is_next or (self._mode is AutoresetMode.SAME_STEP and ended):
                self._begin_episode()
        if self.step_trigger is not None and self.step_trigger(self.step_id):
            self.start_recording(f"{self.name_prefix}-step-{self.step_id}")
        self._record()
        return result

    def _begin_episode(self) -> None:
        self.episode_id += 1
        self._has_ended = False
        if self.recording and self.video_length == math.inf:
            self.stop_recording()
        if self.episode_trigger is not None and self.episode_trigger(self.episode_id):
            self.start_recording(f"{self.name_prefix}-episode-{self.episode_id}")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"RecordVideo cannot be copied or pickled, since both would write {self.video_folder}: "
            "copy the vector env that it wraps"
        )

    def close(self, **kwargs: Any) -> None:
        """Finish the file, and close the wrapped vector env."""
        try:
            self.stop_recording()
        finally:
            self.env.close(**kwargs)

    def start_recording(self, video_name: str) -> None:
        """Begin a file with this name, without its ending; finish the one before.

        Args:
            video_name: The name.
        """
        self.stop_recording()
        self.recording, self.frames_written = True, 0
        self._path = self.video_folder / f"{video_name}{self._suffix}"

    def stop_recording(self) -> None:
        """Finish the file, if one was begun."""
        self.recording = False
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            finally:
                if not self.frames_written:
                    self._path.unlink(missing_ok=True)  # a file without a frame

    def _record(self) -> None:
        """Write one frame, if a file was begun."""
        if not self.recording:
            return
        frames = _render(self.env, self._env_ids)
        grid = tile(frames, self.video_aspect_ratio)
        if self._writer is None:
            self._writer = _open_writer(self._path, self._fps)
        self._writer.append_data(grid)
        self.frames_written += 1
        if self.frames_written > self.video_length:
            self.stop_recording()


def _is_cube(episode: int) -> bool:
    """Gymnasium's schedule for episodes."""
    return episode % 1000 == 0 if episode >= 1000 else round(episode ** (1 / 3)) ** 3 == episode


def _render(env: VectorEnv[Any, Any, Any], env_ids: list[int]) -> list[Any]:
    """Render the recorded environments; a vector env without `env_ids` renders all."""
    if hasattr(env.unwrapped, "call"):
        frames: Any = env.render(env_ids=env_ids)  # type: ignore[call-arg]  # as just checked
        return list(frames)
    everyone = env.render() or ()
    return [everyone[row] for row in env_ids]


def _open_writer(path: Path, fps: float) -> Any:
    """Open a file that frames are appended to, so that none is kept in memory."""
    imageio = require_extra("imageio.v2", "video")
    if path.suffix.lower() == ".gif":
        # loop=0: forever. The times of a GIF are hundredths of a second.
        return imageio.get_writer(path, mode="I", duration=1000 / fps, loop=0)
    return imageio.get_writer(path, mode="I", fps=fps, macro_block_size=2)


def tile(frames: Sequence[npt.NDArray[Any]], ratio: tuple[int, int] = (1, 1)) -> Image:
    """Arrange frames as a grid whose width and height have about this ratio, row by row.

    A frame is a uint8 array `(height, width, 3)` or `(height, width)`. Smaller ones are centred.
    """
    images = [_as_image(number, frame) for number, frame in enumerate(frames)]
    height = max(image.shape[0] for image in images)
    width = max(image.shape[1] for image in images)
    wanted = height * ratio[0] / (width * ratio[1])  # columns per row
    count = len(images)
    least = math.ceil(math.sqrt(count))  # as in Gymnasium, not fewer columns than rows
    columns = min(range(least, count + 1), key=lambda n: abs(n / -(-count // n) - wanted))
    rows = math.ceil(count / columns)
    shape = (rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3)
    grid = np.full(shape, _BACKGROUND, dtype=np.uint8)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        top = row * (height + _GAP) + (height - image.shape[0]) // 2
        left = column * (width + _GAP) + (width - image.shape[1]) // 2
        grid[top : top + image.shape[0], left : left + image.shape[1]] = image
    return grid


def _as_image(number: int, frame: Any) -> Image:
    """Check a frame, and repeat a grey one in all three channels."""
    image = np.asarray(frame)
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(
            f"frame {number}: expected an array (height, width, 3) of uint8 from render, found "
            f"{image.dtype} of shape {image.shape}"
        )
    return image
