"""AutoresetMode: the three modes, when each resets an environment, and their accepted names.

`vector/group/single_envs.py` carries the modes out.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode as GymnasiumAutoresetMode

    AnyAutoresetMode: TypeAlias = "AutoresetMode | GymnasiumAutoresetMode | AutoresetName"

AutoresetName: TypeAlias = Literal[
    "NextStep", "SameStep", "Disabled", "NEXT_STEP", "SAME_STEP", "DISABLED"
]


class AutoresetMode(Enum):
    """When a finished environment is reset.

    The names and values are Gymnasium's (its page on vector autoreset modes).

    Attributes:
        NEXT_STEP: The step after the end resets and ignores its action.
        SAME_STEP: The step that ends an episode also resets; `infos["final_obs"]` holds its end.
        DISABLED: The caller resets, with `options={"reset_mask": ...}`.
    """

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"
    DISABLED = "Disabled"

    @classmethod
    def of(cls, mode: Any) -> AutoresetMode:
        """Return the member for a mode, for Gymnasium's member, or for the value or name of one.

        Args:
            mode: `AutoresetMode.NEXT_STEP`, `"NextStep"`, `"NEXT_STEP"`, or Gymnasium's member.

        Returns:
            The member.

        Raises:
            ValueError: `mode` is not an autoreset mode.

        Example:
            >>> AutoresetMode.of("SameStep")
            <AutoresetMode.SAME_STEP: 'SameStep'>
        """
        value = getattr(mode, "value", mode)
        for member in cls:
            if value in (member.value, member.name):
                return member
        known = ", ".join(repr(member.value) for member in cls)
        raise ValueError(
            f"autoreset_mode must be an AutoresetMode, or one of {known}, found {mode!r}"
        )
