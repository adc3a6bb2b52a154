"""The spaces of a batch, and the error for environments whose spaces differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from vecspaces.interop import native_space
from vecspaces.layout import Layout
from vecspaces.spaces import Dict, Space
from vecspaces.spaces.equivalence import difference, is_same, is_space_dtype_shape_equiv
from vecspaces.vector.exchange.failures import Message
from vecspaces.vector.group.building import GroupDescription, WrongSpace
from vecspaces.vector.utils import batch_differing_spaces, batch_space

ObservationMode: TypeAlias = Literal["same", "different"] | tuple[Space[Any], Space[Any]]


class SpacesDifferError(RuntimeError):
    """Environments of one batch have different spaces."""


def check_mode(observation_mode: Any) -> None:
    """Check an `observation_mode` before anything is built."""
    if isinstance(observation_mode, tuple) and len(observation_mode) == 2:
        for space in observation_mode:
            try:
                native_space(space)
            except TypeError as error:
                raise TypeError(
                    "observation_mode must be a pair of spaces "
                    f"(observation_space, single_observation_space): {error}"
                ) from None
    elif observation_mode not in ("same", "different"):
        raise ValueError(
            "observation_mode must be 'same', 'different', or a pair of spaces "
            f"(observation_space, single_observation_space), found {observation_mode!r}"
        )


def agree(
    descriptions: Sequence[GroupDescription], observation_mode: ObservationMode
) -> tuple[Space[Any], Space[Any], Space[Any], Space[Any]]:
    """Return the observation spaces of the batch and of one environment, and the action spaces.

    A RuntimeError if an environment does not fit.
    """
    observations = [space for group in descriptions for space in group.observation_spaces]
    actions = [space for group in descriptions for space in group.action_spaces]
    num_envs = len(observations)
    single_action = accepted = actions[0]
    for row, space in enumerate(actions):
        if space is accepted:
            continue
        if not is_same(space, single_action):
            raise SpacesDifferError(
                Message(
                    "{:envs} has action space {}, {:envs} has {}: the actions of a batch need one "
                    "space; the first difference: {}",
                    [row],
                    space,
                    [0],
                    single_action,
                    difference(single_action, space),
                )
            )
        accepted = space
    if isinstance(observation_mode, tuple):
        batched, single = (native_space(space) for space in observation_mode)
        _check_observations(observations, single, observation_mode)
        check_pair(batched, single, num_envs)
    else:
        single = observations[0]
        _check_observations(observations, single, observation_mode)
        batched = (
            batch_space(single, num_envs)
            if observation_mode == "same"
            else batch_differing_spaces(observations)
        )
    return batched, single, batch_space(single_action, num_envs), single_action


def agree_on_infos(descriptions: Sequence[GroupDescription]) -> Dict[Any] | None:
    """Return the info_space of the environments; raise RuntimeError if one has another."""
    declared: list[tuple[int, Dict[Any] | None]] = []
    for description in descriptions:
        for count, space in zip(description.counts, description.info_spaces, strict=True):
            if isinstance(space, WrongSpace):
                text = (
                    "{:env_fn} returned an environment with a wrong info_space: {}; where the "
                    "attribute is about something else, give the vector env the argument info_space"
                )
                raise space.kind(Message(text, len(declared), space.text))
            declared.append((count, space))
    row, (_, first) = 0, declared[0]
    accepted = first
    for count, space in declared:
        if space is not accepted and (space is None or first is None or not is_same(space, first)):
            detail: str = "one of them has none"
            if space is not None and first is not None:
                detail = f"the first difference: {difference(first, space)}"
            raise RuntimeError(
                Message(
                    "{:envs} has info_space {}, {:envs} has {}: a batch needs one info_space; {}; "
                    "give all environments the same, or the vector env the argument info_space",
                    [row],
                    space,
                    [0],
                    first,
                    detail,
                )
            )
        row += count
        accepted = space
    return first


def _check_observations(
    observations: Sequence[Space[Any]], single: Space[Any], observation_mode: ObservationMode
) -> None:
    """Refuse an environment whose observations do not fit the batch."""
    same = observation_mode == "same"
    accepted = single if same else None
    for row, space in enumerate(observations):
        if space is accepted:
            continue
        if not (is_same(space, single) if same else is_space_dtype_shape_equiv(space, single)):
            advice = (
                "(observation_mode='same'): give all environments one space, or use "
                "observation_mode='different' for other bounds"
                if same
                else f"up to its bounds (observation_mode={observation_mode!r}): shapes and "
                "dtypes must be equal"
            )
            raise SpacesDifferError(
                Message(
                    "{:envs} has observation space {}, expected {} {}; the first difference: {}",
                    [row],
                    space,
                    single,
                    advice,
                    difference(single, space, bounds=same),
                )
            )
        accepted = space


def check_pair(batched: Space[Any], single: Space[Any], num_envs: int) -> None:
    """Refuse a batched space whose arrays differ from those of a batch of `single`."""
    expected = batch_space(single, num_envs)
    wanted, actual = Layout.compile(expected, 1), Layout.compile(batched, 1)
    leaves = [
        [(leaf.path, leaf.dtype, leaf.shape) for leaf in layout.leaves]
        for layout in (wanted, actual)
    ]
    if wanted.fixed and leaves[0] != leaves[1]:
        raise RuntimeError(
            f"observation_mode: the batched observation_space {batched} does not hold a batch of "
            f"{num_envs} observations of {single}: expected shapes and dtypes as in {expected}; "
            "the pair is (observation_space, single_observation_space)"
        )
