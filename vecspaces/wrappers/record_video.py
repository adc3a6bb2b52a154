"""RecordVideo: frames of chosen environments, side by side, as a GIF or MP4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, NoReturn

import numpy as np
import numpy.typing as npt

from vecspaces.interop import require_extra
from vecspaces.vector import VectorEnv, VectorWrapper
from vecspaces.vector.vector_env import ActType, ObsType, StepResult
from vecspaces.vector.vector_wrapper import Mask

Image = npt.NDArray[np.uint8]

_GAP = 4  # pixels between the frames of two environments
_BACKGROUND = 40  # dark grey
PICTURES = (".gif", ".mp4")


class RecordVideo(
    VectorWrapper[ObsType, ActType, ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]
):
    """Writes the frames after every reset and step into one file, as a grid.

    The file is complete when `length` frames are written, or after `close`. In SAME_STEP mode the
    last frame of an episode is missing, because its environment has been reset.

    Args:
        env: The vector env to wrap; its environments were made with `render_mode="rgb_array"`.
        path: The file; its ending, `.gif` or `.mp4`, is its format.
        env_ids: The environments in the grid, row by row; None: all.
        length: The maximum number of frames; None: until `close`.
        fps: Frames per second; None: `render_fps` of the environments' metadata, or 30.
        max_size: The maximum width and height in pixels; larger grids are shrunk by an integer
            factor.

    Attributes:
        frames_written: The number of frames in the file.

    Raises:
        ValueError: The environments do not render images, or an argument is out of its range.
        ImportError: imageio is not installed, or imageio-ffmpeg for MP4.

    Example:
        >>> import os, tempfile
        >>> from vecspaces import make_vec
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "out.gif")
        ...     envs = make_vec("CartPole-v1", 4, backend="sync", render_mode="rgb_array")
        ...     with RecordVideo(envs, path, env_ids=[0, 1]) as envs:
        ...         _ = envs.reset(seed=1), envs.step(envs.action_space.sample())
        ...     envs.frames_written, os.path.exists(path)
        (2, True)
    """

    def __init__(
        self,
        env: VectorEnv[ObsType, ActType, npt.NDArray[Any]],
        path: str | Path,
        *,
        env_ids: Sequence[int] | None = None,
        length: int | None = None,
        fps: float | None = None,
        max_size: int = 1024,
    ) -> None:
        super().__init__(env)
        self.path = Path(path)
        self._env_ids = list(range(env.num_envs) if env_ids is None else env_ids)
        self._length = math.inf if length is None else length
        self._fps = float(fps if fps is not None else env.metadata.get("render_fps") or 30)
        self._max_size = max_size
        self._check()
        require_extra("imageio", "video")
        if self.path.suffix.lower() == ".mp4":
            require_extra("imageio_ffmpeg", "video")
        self._writer: Any = None
        self.frames_written = 0

    def _check(self) -> None:
        """Refuse wrong arguments, before anything is recorded."""
        if self.render_mode != "rgb_array":
            raise ValueError(
                "RecordVideo needs environments made with render_mode='rgb_array', found "
                f"{self.render_mode!r}"
            )
        if self.path.suffix.lower() not in PICTURES:
            raise ValueError(f"path: expected a name ending in .gif or .mp4, found {self.path}")
        if not self.path.parent.is_dir():
            raise ValueError(f"path: expected a folder that exists, found {self.path.parent}")
        bad = [row for row in self._env_ids if not 0 <= row < self.num_envs]
        if bad or not self._env_ids or len(set(self._env_ids)) < len(self._env_ids):
            raise ValueError(
                f"env_ids: expected different numbers from 0 to {self.num_envs - 1}, "
                f"found {self._env_ids}"
            )
        if self._length < 1:
            raise ValueError(f"length: expected at least 1, found {self._length}")
        if self._max_size < 1:
            raise ValueError(f"max_size: expected at least 1 pixel, found {self._max_size}")
        if not 0 < self._fps < math.inf:
            raise ValueError(f"fps: expected more than 0 frames per second, found {self._fps}")

    def send(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise ValueError: environments that are busy cannot be rendered."""
        raise ValueError("RecordVideo cannot record send and recv: use step, or unwrap it")

    send_reset = recv = send

    def _after_reset(
        self, observations: ObsType, infos: dict[str, Any], mask: Mask | None
    ) -> tuple[ObsType, dict[str, Any]]:
        self._record()
        return observations, infos

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        self._record()
        return result

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"RecordVideo cannot be copied or pickled, since both would write {self.path}: "
            "copy the vector env that it wraps"
        )

    def close(self, **kwargs: Any) -> None:
        """Finish the file, and close the wrapped vector env."""
        try:
            self._finish()
        finally:
            self.env.close(**kwargs)

    def _record(self) -> None:
        """Write one frame, unless there are enough."""
        if self.frames_written >= self._length:
            return
        grid = shrink(tile(_render(self.env, self._env_ids)), self._max_size)
        if self._writer is None:
            self._writer = _open_writer(self.path, self._fps)
        self._writer.append_data(grid)
        self.frames_written += 1
        if self.frames_written >= self._length:
            self._finish()

    def _finish(self) -> None:
        """Complete the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            finally:
                if not self.frames_written:
                    self.path.unlink(missing_ok=True)  # a file without a frame


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


def tile(frames: Sequence[npt.NDArray[Any]]) -> Image:
    """Arrange frames as a grid that is as square as possible, row by row.

    A frame is a uint8 array `(height, width, 3)` or `(height, width)`. Smaller ones are centred.
    """
    images = [_as_image(number, frame) for number, frame in enumerate(frames)]
    height = max(image.shape[0] for image in images)
    width = max(image.shape[1] for image in images)
    columns = math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    shape = (rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3)
    grid = np.full(shape, _BACKGROUND, dtype=np.uint8)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        top = row * (height + _GAP) + (height - image.shape[0]) // 2
        left = column * (width + _GAP) + (width - image.shape[1]) // 2
        grid[top : top + image.shape[0], left : left + image.shape[1]] = image
    return grid


def shrink(image: Image, max_size: int) -> Image:
    """Shrink an image to at most `max_size` pixels a side; each pixel is the mean of a square.

    Pixels at the right and bottom edge that do not fill a square are cut off.
    """
    factor = math.ceil(max(image.shape[:2]) / max_size)
    if factor == 1:
        return image
    height, width = (max(1, size // factor) for size in image.shape[:2])
    total = np.zeros((height, width, 3), dtype=np.uint32)
    # One strided pass for each place in the square is much faster than a mean over two axes.
    for top, left in np.ndindex(min(factor, image.shape[0]), min(factor, image.shape[1])):
        total += image[top::factor, left::factor][:height, :width]
    count = min(factor, image.shape[0]) * min(factor, image.shape[1])
    small: Image = (total // count).astype(np.uint8)
    return small


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
