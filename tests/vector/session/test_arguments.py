"""Arguments of the constructors and of `reset`: what they mean, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.envs import Ledger, ledgers
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.vector.session.arguments import plan_reset
from vecspaces.vector.session.seeds import spread_seeds

counts = st.integers(1, 9)


@pytest.mark.parametrize("make", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize(
    ("env_fns", "match"),
    [
        (Ledger, "env_fns must be a list of functions that make environments"),
        ([partial(Ledger, 0), Ledger(1)], r"env_fns\[1\] must be a function .*\(Ledger\)"),
    ],
    ids=["no list", "an environment"],
)
def test_what_is_no_list_of_factories_is_refused(make: Any, env_fns: Any, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        make(env_fns)


def test_an_unknown_start_method_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"context must be None or one of .*spawn.*'teleport'"):
        AsyncVectorEnv(ledgers(1), context="teleport")


def test_an_unknown_autoreset_mode_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'NextStep', 'SameStep', 'Disabled', found 'Sometimes'"):
        AutoresetMode.of("Sometimes")


@given(st.integers(0, 2**40), counts)
def test_an_int_counts_up(seed: int, count: int) -> None:
    expected = [seed + number for number in range(count)]
    assert spread_seeds(seed, count) == expected
    assert spread_seeds(np.int64(seed), count) == expected


@given(st.lists(st.one_of(st.none(), st.integers(0, 2**40)), min_size=1, max_size=6))
def test_a_sequence_is_taken_as_it_is(seeds: list[int | None]) -> None:
    assert spread_seeds(seeds, len(seeds)) == seeds
    assert spread_seeds(tuple(seeds), len(seeds)) == seeds


def test_seeds_are_python_ints() -> None:
    for seed in (np.int32(3), np.array([3, 4]), [np.uint8(3), 4], np.random.SeedSequence(1)):
        assert {type(one) for one in spread_seeds(seed, 2)} == {int}


@given(st.integers(0, 2**64), counts)
def test_a_seed_sequence_is_spawned_one_child_each(entropy: int, count: int) -> None:
    ours, theirs = np.random.SeedSequence(entropy), np.random.SeedSequence(entropy)
    for _ in range(2):
        children = theirs.spawn(count)
        assert spread_seeds(ours, count) == [
            one.generate_state(1)[0] & 0x7FFFFFFF for one in children
        ]


NUMBER = r"expected 3 seeds.*found \d"
PLACE = r"seed\[\d\]"
ONE = "^seed must be None, an int, .* found "


@pytest.mark.parametrize(
    ("error", "match", "seeds"),
    [
        (ValueError, NUMBER, [[], [1, 2], (None,) * 4, np.zeros(2, int)]),
        (TypeError, ONE, ["123", 1.5, {1, 2, 3}, b"abc", np.random.default_rng(0), np.array(3)]),
        (TypeError, PLACE, [[1, 2.5, 3], [1, "2", 3], np.zeros(3), [[1], [2], [3]]]),
    ],
)
def test_seeds_that_are_none_are_refused(error: Any, match: str, seeds: list[Any]) -> None:
    for seed in seeds:
        with pytest.raises(error, match=match):
            spread_seeds(seed, 3)


@given(counts.flatmap(lambda count: hnp.arrays(np.bool_, count).filter(np.any)), st.booleans())
def test_a_mask_chooses_rows_and_is_taken_out(mask: Any, more: bool) -> None:
    options = {"reset_mask": mask, **({"low": 1} if more else {})}
    kept = dict(options)
    plan = plan_reset(5, options, [1] * len(mask))
    assert plan.rows.tolist() == np.flatnonzero(mask).tolist()
    assert plan.seeds == [5 + number for number in range(len(mask))]
    assert plan.options == [{"low": 1} if more else None] * len(mask)
    assert not plan.keep_options
    assert options == kept and options["reset_mask"] is mask


def test_without_options_everything_is_reset() -> None:
    plan = plan_reset(None, None, [1] * 3)
    assert (plan.rows.tolist(), plan.seeds, plan.options) == ([0, 1, 2], [None] * 3, [None] * 3)


def test_options_of_each_are_kept() -> None:
    given_options = ({"a": 1}, None, {})
    plan = plan_reset(None, given_options, [1] * 3)
    assert plan.options == list(given_options)
    assert plan.keep_options


def test_a_mask_among_the_options_of_one_is_refused() -> None:
    mask = np.ones(2, np.bool_)
    with pytest.raises(ValueError, match=r"options\[1\].*reset_mask"):
        plan_reset(None, [{}, {"reset_mask": mask}], [1, 1])
