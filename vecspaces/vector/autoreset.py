"""What follows the end of an episode."""

from __future__ import annotations

from enum import Enum
from typing import Any


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
        """Understand a mode of ours, of Gymnasium's enum of the same name, or its value.

        Args:
            mode: `AutoresetMode.NEXT_STEP`, `"NextStep"`, or Gymnasium's member.

        Returns:
            Our member.

        Raises:
            ValueError: It is none of them.

        Example:
            >>> AutoresetMode.of("SameStep")
            <AutoresetMode.SAME_STEP: 'SameStep'>
        """
        value = getattr(mode, "value", mode)
        if value not in [member.value for member in cls]:
            known = ", ".join(repr(member.value) for member in cls)
            raise ValueError(
                f"autoreset_mode must be an AutoresetMode, or one of {known}, found {mode!r}"
            )
        return cls(value)
