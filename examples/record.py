"""Record 64 running HalfCheetahs as a moving picture.

python examples/record.py environments.gif

Each environment has a random variation of one gait. This needs `gymnasium[mujoco]`, and
`MUJOCO_GL=egl` or `osmesa` on a machine without a screen; `--env CartPole-v1` needs neither.
"""

from __future__ import annotations

import argparse
import colorsys
from typing import Any

import gymnasium
import numpy as np

from vecspaces import make_vec
from vecspaces.wrappers import RecordVideo

# Found by a search for the longest way; each line has a number per joint.
AMPLITUDE = np.array([2.24, 1.28, 0.97, 0.74, 1.06, 0.40])
PHASE = np.array([-1.90, -0.29, -1.76, 0.60, 0.79, 0.09])
OFFSET = np.array([-0.04, -0.12, -0.30, 0.05, -0.13, -0.68])
ANGULAR_SPEED = 1.319  # per step


class Painted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives a HalfCheetah a colour by its seed, and a dark floor without shadows."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        model = self.unwrapped.model  # type: ignore[attr-defined]
        if seed is not None:
            model.geom_rgba[1:, :3] = colorsys.hsv_to_rgb(seed * 0.618 % 1, 0.75, 1.0)
        model.geom_rgba[0, :3] = (0.3, 0.45, 0.7)
        model.mat_texrepeat[:] = 25
        model.mat_reflectance[:] = 0
        model.cam_fovy[:] = 22
        model.cam_poscom0[:, 2] = 0.1
        model.vis.quality.shadowsize = 0
        return super().reset(seed=seed, options=options)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record environments as a moving picture.")
    parser.add_argument("file", help="a .gif or .mp4")
    parser.add_argument("--env", default="HalfCheetah-v5", help="another one acts at random")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--frames", type=int, default=30)
    options = parser.parse_args()
    runs = options.env == "HalfCheetah-v5"
    arguments: dict[str, Any] = {"render_mode": "rgb_array"}
    if runs:
        arguments |= {"width": 80, "height": 54, "camera_name": "track"}
        arguments |= {"wrappers": [Painted]}
    with make_vec(options.env, options.num_envs, **arguments) as envs:
        video = RecordVideo.to_file(envs, options.file, length=options.frames, fps=15)
        video.reset(seed=0)
        rng = np.random.default_rng(0)
        late = rng.uniform(0, 0.5, (options.num_envs, 1))
        for step in range(options.frames - 1):
            actions = envs.action_space.sample()
            if runs:
                turns = np.sin(ANGULAR_SPEED * step + late + PHASE)
                actions = np.clip(AMPLITUDE * turns + OFFSET, -1, 1).astype(np.float32)
            video.step(actions)
        print(f"{options.num_envs} environments, {video.frames_written} frames")
        video.close()


if __name__ == "__main__":
    main()
