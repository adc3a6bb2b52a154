"""RecordVideo: what is in the file, and when it is whole."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers import vector as gymnasium_wrappers

from tests.envs import Drift, Ledger
from tests.vector.ways import run_by
from vecspaces.adapters.gymnasium import as_gymnasium
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from vecspaces.wrappers import RecordVideo, record_video
from vecspaces.wrappers.record_video import tile

iio = pytest.importorskip("imageio.v3", reason="imageio is not installed")

BACKENDS = {"sync": SyncVectorEnv, "async": partial(AsyncVectorEnv, num_workers=2)}


class Painter(Ledger):
    """Shows its number as a shade of red, the time of its episode as one of blue."""

    def render(self) -> Any:
        frame = np.zeros((8, 12, 3), np.uint8)
        frame[..., 0] = 40 * self.number
        frame[..., 2] = 60 * self.time
        return frame


def painters(count: int = 4, length: int = 3, render_mode: str | None = "rgb_array") -> list[Any]:
    return [
        partial(Painter, number, length=length, render_mode=render_mode) for number in range(count)
    ]


def stepped(envs: VectorEnv[Any, Any, Any], steps: int) -> None:
    envs.reset(seed=1)
    for _ in range(steps):
        envs.step(np.zeros(envs.num_envs, np.int64))


def shades(path: Path) -> list[tuple[int, int]]:
    """The red and blue of the upper left corner of each frame of a file."""
    return [(int(frame[1, 1, 0]), int(frame[1, 1, 2])) for frame in iio.imread(path)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gif_shows_chosen_environments_step_by_step(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "out.gif"
    with RecordVideo.to_file(BACKENDS[backend](painters()), path, env_ids=[2, 0]) as envs:
        stepped(envs, 2)
    frames = iio.imread(path)
    assert frames.shape == (3, 8, 28, 3)
    assert shades(path) == [(80, 0), (80, 60), (80, 120)]
    assert frames[2][1, 20].tolist() == [0, 0, 120]


@pytest.mark.parametrize(
    ("mode", "blues"),
    [
        (AutoresetMode.NEXT_STEP, [0, 60, 120, 0, 60]),  # the end is seen, then the beginning
        (AutoresetMode.SAME_STEP, [0, 60, 0, 60, 0]),
        (AutoresetMode.DISABLED, [0, 60, 120, 0, 60]),
    ],
    ids=str,
)
def test_it_shows_what_the_mode_shows_in_every_way(
    mode: AutoresetMode, blues: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "out.gif"
    RecordVideo.to_file(SyncVectorEnv(painters(1)), path).close()
    assert not path.exists()  # there was no frame
    for way in ("step", "async", "some"):
        inner = SyncVectorEnv(painters(2, length=2), autoreset_mode=mode)
        with RecordVideo.to_file(inner, path, env_ids=[1]) as envs:
            run_by(envs, way, steps=4)
        # A GIF shows frames that are equal as one, such as after a step of the other environment.
        assert shades(path)[: len(blues)] == [(40, blue) for blue in blues], way


def test_an_mp4_holds_as_many_frames(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")
    path = tmp_path / "out.mp4"
    with RecordVideo.to_file(SyncVectorEnv(painters()), path, fps=10) as envs:
        stepped(envs, 4)
    assert ffmpeg.count_frames_and_secs(path) == (5, 0.5)


def test_the_speed_is_that_of_the_metadata_or_the_one_given(tmp_path: Path) -> None:
    for fps, milliseconds in ((None, 250), (20, 50)):
        path = tmp_path / f"{fps}.gif"
        with RecordVideo.to_file(SyncVectorEnv(painters(1)), path, fps=fps) as envs:
            stepped(envs, 2)
        assert iio.immeta(path)["duration"] == milliseconds


def test_it_is_whole_after_its_length_and_renders_no_more(tmp_path: Path) -> None:
    path = tmp_path / "out.gif"
    with RecordVideo.to_file(SyncVectorEnv(painters(1, length=99)), path, length=3) as envs:
        stepped(envs, 2)
        assert shades(path) == [(0, 0), (0, 60), (0, 120)]
        envs.unwrapped.call("__dict__")[0]["render"] = None  # would raise now
        envs.step(np.zeros(1, np.int64))
        assert envs.frames_written == 3


def test_a_simulator_that_renders_all_at_once_is_recorded(tmp_path: Path) -> None:
    class Painting(Drift):
        render_mode = "rgb_array"

        def render(self) -> Any:
            shades = [50 * number + self.time for number in range(3)]
            return tuple(np.full((4, 4, 3), shade, np.uint8) for shade in shades)

    path = tmp_path / "out.gif"
    with RecordVideo.to_file(Painting(3), path, env_ids=[2]) as envs:
        envs.reset()
        envs.step(np.zeros((3, 2)))
    assert shades(path) == [(100, 100), (101, 101)]


TRIGGERS: dict[str, dict[str, Any]] = {
    "cubes": {},
    "some episodes": {"episode_trigger": lambda episode: episode % 2 == 1, "name_prefix": "film"},
    "steps": {"step_trigger": lambda step: step in (2, 7), "video_length": 3},
    "to the end": {"step_trigger": lambda step: step == 4},
    "length": {"episode_trigger": lambda episode: episode > 0, "video_length": 2},
}


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", TRIGGERS)
def test_files_are_those_of_gymnasium(
    name: str, mode: AutoresetMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = dict[str, int](), dict[str, int]()

    class Clip:
        def __init__(self, frames: list[Any], fps: float) -> None:
            self.frames = frames

        def write_videofile(self, path: str, logger: Any) -> None:
            theirs[Path(path).stem] = len(self.frames)

    class Writer:
        def __init__(self, path: Path, fps: float) -> None:
            self.name = path.stem
            ours[self.name] = 0

        def append_data(self, frame: Any) -> None:
            ours[self.name] += 1

        def close(self) -> None:
            pass

    # What Gymnasium writes files with.
    for part in ("moviepy", "moviepy.video", "moviepy.video.io"):
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    clips: Any = ModuleType("moviepy.video.io.ImageSequenceClip")
    clips.ImageSequenceClip = Clip
    monkeypatch.setitem(sys.modules, clips.__name__, clips)
    monkeypatch.setattr(record_video, "_open_writer", Writer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's, of the folder and of SAME_STEP mode
        for kind in (partial(RecordVideo, suffix=".gif"), gymnasium_wrappers.RecordVideo):
            made: Any = SyncVectorEnv(painters(3), autoreset_mode=mode)
            made = as_gymnasium(made) if kind is gymnasium_wrappers.RecordVideo else made
            envs: Any = kind(made, str(tmp_path), **TRIGGERS[name])
            envs.reset(seed=0)
            for _ in range(14):
                _, _, terminations, truncations, _ = envs.step(np.zeros(3, np.int64))
                over = terminations | truncations
                if mode is AutoresetMode.DISABLED and over.any():
                    envs.reset(options={"reset_mask": over})
            envs.close()
    assert ours == theirs


def test_the_grid_is_square_with_smaller_frames_in_the_middle_and_grey_ones_get_colours() -> None:
    for count, shape in {1: (5, 6), 2: (5, 16), 4: (14, 16), 5: (14, 26)}.items():
        assert tile([np.zeros((5, 6, 3), np.uint8)] * count).shape == (*shape, 3)
    grid = tile([np.full((6, 6, 3), 255, np.uint8), np.full((2, 2), 100, np.uint8)])
    assert grid[2, 12].tolist() == [100, 100, 100]
    assert grid[0, 12].tolist() == [40, 40, 40]
