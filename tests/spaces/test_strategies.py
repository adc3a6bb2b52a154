"""Strategies: spaces of every kind are drawn."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import KINDS, Recipe, recipes


def test_every_kind_of_space_is_drawn_and_no_other() -> None:
    drawn: set[str] = set()
    pairs = {kind: recipes((kind, "Discrete"), max_leaves=2) for kind in KINDS}

    @settings(max_examples=40)
    @given(st.fixed_dictionaries(pairs))
    def draw(found: dict[str, Recipe]) -> None:
        for kind, recipe in found.items():
            assert recipe.kinds <= {kind, "Discrete"}
            drawn.update(recipe.kinds & {kind})

    draw()
    assert drawn == set(KINDS)
