"""Tests: what each part of the contract needs of the vector env under test."""

from __future__ import annotations

from typing import Any


class Part:
    """Tests of a vector env that `make` makes.

    Attributes:
        built_again_with_1_of_3: Which of three environments a reset builds again after number 1
            broke: more than itself where its worker runs it as one vector env with others.
    """

    built_again_with_1_of_3: tuple[int, ...] = (1,)

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        """Make the vector env under test."""
        raise NotImplementedError
