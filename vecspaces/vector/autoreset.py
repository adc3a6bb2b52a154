"""AutoresetMode: the three modes, and their accepted names.

`vector/group/single_envs.py` implements the modes.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode as GymnasiumAutoresetMode

    AnyAutoresetMode: TypeAlias = "AutoresetMode | GymnasiumAutoresetMode | AutoresetName"

AutoresetName: TypeAlias = Literal[
    "NextStep", "SameStep", "Disabled",
    "NEXT_STEP", "SAME_STEP", "DISABLED",
    "next_step", "same_step", "disabled",
    "nextstep", "samestep",
]  # fmt: skip


class AutoresetMode(Enum):
    """When a finished environment is reset.

    Names and values are those of Gymnasium.

    Attributes:
        NEXT_STEP: The step after the end resets and ignores its action.
        SAME_STEP: The step that ends an episode also resets; `infos["final_obs"]` has its last
            observation.
        DISABLED: The caller resets, with `options={"reset_mask": ...}`.
    """

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"
    DISABLED = "Disabled"

    @classmethod
    def of(cls, mode: Any) -> AutoresetMode:
        """Return the member for a mode, for Gymnasium's member, or for a member's value or name.

        Args:
            mode: A member, Gymnasium's member, or text such as `"NextStep"`, `"NEXT_STEP"` or
                `"nextstep"`; case and underscores do not matter.

        Returns:
            The member.

        Raises:
            ValueError: `mode` is not an autoreset mode.

        Example:
            >>> AutoresetMode.of("SameStep")
            <AutoresetMode.SAME_STEP: 'SameStep'>
        """
        value = getattr(mode, "value", mode)
        if isinstance(value, str):
            name = value.replace("_", "").lower()
            for member in cls:
                if name == member.value.lower():
                    return member
        known = ", ".join(repr(member.value) for member in cls)
        raise ValueError(
            f"autoreset_mode must be an AutoresetMode, or one of {known}, found {mode!r}"
        )
