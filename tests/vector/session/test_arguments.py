"""What the constructors refuse before anything is built: the message names the argument."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.envs import Ledger, ledgers
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv


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


@pytest.mark.parametrize("name", ["step_timeout", "start_timeout"])
@pytest.mark.parametrize(
    ("value", "error"),
    [("1", TypeError), (True, TypeError), (0, ValueError), (float("nan"), ValueError)],
)
def test_a_bound_on_time_is_a_number_above_zero(name: str, value: Any, error: Any) -> None:
    with pytest.raises(error, match=f"{name} must be"):
        AsyncVectorEnv(ledgers(1), **{name: value})


def test_an_unknown_start_method_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"context must be None or one of .*spawn.*'teleport'"):
        AsyncVectorEnv(ledgers(1), context="teleport")


def test_an_unknown_autoreset_mode_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'NextStep', 'SameStep', 'Disabled', found 'Sometimes'"):
        AutoresetMode.of("Sometimes")
