"""collect: a generator of whole episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Unpack

from vecspaces.evaluation.play import Play, PlayOptions
from vecspaces.evaluation.policies import Policy
from vecspaces.evaluation.tracks import Episode, Tracks
from vecspaces.make import Factory

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec


def collect(
    policy: Policy | str,
    env: str | EnvSpec | Factory,
    *,
    episodes: int,
    ordered: bool = False,
    **arguments: Unpack[PlayOptions],
) -> Generator[Episode, None, None]:
    """Play seeded episodes with a policy, and yield each finished one with all of its steps.

    The episodes are those of `evaluate`: they are equal, bit for bit, for any `num_envs`,
    `num_workers` and `backend`, and after worker deaths, after which a lost episode begins again.
    Only the episodes that are being played are in memory. The workers start with the first `next`.
    They end after the last episode, after an error, and when the generator is closed or
    garbage-collected, as after a `break`. While the caller processes an episode, environments end
    the step that they were sent, and take no other step.

    Args:
        policy: As for `evaluate`.
        env: As for `evaluate`.
        episodes: The number of episodes.
        ordered: Whether to yield episodes in the order of the seeds. Finished ones then wait for
            those before them; to bound the memory, an episode begins only if its number is less
            than `2 * num_envs` above that of the first unfinished episode. False: in the order in
            which they finish.
        **arguments: The arguments of `evaluate` of the same names; `vector_kwargs` may have an
            `info_space`.

    Returns:
        A generator of episodes.

    Raises:
        Exception: What `evaluate` raises: at once for wrong arguments, otherwise from `next`.

    Example:
        >>> def lean(observations):
        ...     return (observations[:, 2] > 0).astype(int)
        >>> for episode in collect(lean, "CartPole-v1", episodes=2, seed=0, ordered=True):
        ...     print(episode, episode.observations.shape)
        <Episode 0 with seed 821328062: 39 steps, return 39> (40, 4)
        <Episode 1 with seed 1529665511: 26 steps, return 26> (27, 4)
    """
    return _collect(Play("collect", policy, env, episodes, arguments), ordered)


def _collect(play: Play, ordered: bool) -> Generator[Episode, None, None]:
    """Yield the episodes; closing the generator closes the workers."""
    tracks = Tracks()
    played = play.play(play.seeds, tracks=tracks, ahead=2 * play.num_envs if ordered else None)
    finished: dict[int, Episode] = {}
    due = 0  # the number of the next episode
    with contextlib.closing(played) as results:
        for result in results:
            if not ordered:
                due = result.episode
            # No variable here refers to an episode, so only the caller keeps it in memory.
            finished[result.episode] = tracks.finish(result)
            while due in finished:
                yield finished.pop(due)
                due += 1
