"""The agents of parallel environments in a vector env: their names, groups and rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

#: "rows": each agent has a row of its own; "dict": each agent is a key of Dicts.
AgentLayout: TypeAlias = Literal["rows", "dict"]


def check_layout(agents: str | None) -> None:
    """Refuse an argument `agents` that is not a layout."""
    if agents not in (None, "rows", "dict"):
        raise ValueError(f"agents: expected 'rows', 'dict' or None; found {agents!r}")


def group_agents(names: Sequence[str]) -> dict[str, list[str]]:
    """Group agents by their names without the number at the end.

    Example:
        >>> group_agents(["adversary_0", "adversary_1", "agent_0"])
        {'adversary': ['adversary_0', 'adversary_1'], 'agent': ['agent_0']}
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"[_-]?\d+$", "", name) or name, []).append(name)
    return groups


def end_agents(first: Mapping[str, Any]) -> dict[str, Any]:
    """Return `info["agents"]` of the step that ends a lost episode: all agents are truncated.

    `first` is its value in the following reset.
    """
    values = {"rewards": 0.0, "terminations": False, "truncations": True, "alive": False}
    last: dict[str, Any] = {kind: dict.fromkeys(first[kind], values[kind]) for kind in values}
    if "action_mask" in first:
        masks = first["action_mask"].items()
        last["action_mask"] = {name: np.ones_like(mask) for name, mask in masks}
    return last


def first_rows(units: Sequence[int]) -> list[int]:
    """Return the first row of each environment, given their numbers of rows.

    Example:
        >>> first_rows([1, 3, 1])
        [0, 1, 4]
    """
    return list(accumulate(units[:-1], initial=0))


class HasAgents:
    """The attributes of vector envs whose environments have agents.

    Attributes:
        agent_layout: `"rows"`, `"dict"`, or None if environments have no agents.
        rows_per_env: The number of rows of each environment: one, or one per agent.
    """

    agent_layout: AgentLayout | None = None
    rows_per_env: tuple[int, ...]
    _agent_names: list[str]

    @property
    def agent_names(self) -> list[str]:
        """The agent's name of each row (`agents="rows"`), or of each key (`agents="dict"`)."""
        if self.agent_layout is None:
            raise AttributeError(
                f"{self!r} has no agents: make_vec(..., agents='rows') and agents='dict' make a "
                "vector env of PettingZoo's parallel environments"
            )
        return list(self._agent_names)

    @property
    def groups(self) -> dict[str, Any]:
        """The groups of agents by name without number, as arrays of rows or lists of names."""
        names = self.agent_names
        groups = group_agents(list(dict.fromkeys(names)))
        if self.agent_layout == "dict":
            return groups
        return {group: np.flatnonzero(np.isin(names, each)) for group, each in groups.items()}

    def rows_of_agent(self, name: str) -> npt.NDArray[np.intp]:
        """Return the rows of one agent, one in each environment (`agents="rows"`).

        Args:
            name: The agent's name.

        Returns:
            An index array.

        Raises:
            ValueError: There is no such agent, or agents are keys and have no rows.
            AttributeError: The environments have no agents.
        """
        names = self.agent_names
        if self.agent_layout == "dict":
            raise ValueError("agents='dict': an agent is a key of observations, and has no rows")
        if name not in names:
            known = ", ".join(dict.fromkeys(names))
            raise ValueError(f"name: expected one of {known}; found {name!r}")
        return np.flatnonzero(np.array(names) == name)
