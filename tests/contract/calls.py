"""Tests: calls, attributes and statistics, and which calls may follow which."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.comparing import Part
from tests.envs import Ledger, ledgers, wrapped_ledger


class CallsContract(Part):
    """Calls, attributes and statistics, and which calls may follow which."""

    def test_calls_give_one_result_and_set_attr_takes_one_value_per_environment(self) -> None:
        with self.make(ledgers(3)) as envs:
            assert envs.call("multiply", 10, plus=1) == (1, 11, 21)
            assert envs.call("multiply", 2, env_ids=np.array([2, 0])) == (4, 0)
            assert envs.call("multiply", 1, env_ids=[]) == ()
            envs.call_async("multiply", factor=3)
            assert envs.call_wait() == (0, 3, 6)
            envs.set_attr("length", [1, 2, 3])
            envs.set_attr("length", (7, 8), env_ids=[2, 0])
            assert envs.get_attr("length") == (8, 2, 7)
            envs.set_attr("length", 5, env_ids=[1])
            assert envs.get_attr("length", env_ids=[1, 0]) == (5, 8)
            envs.set_attr("novel", np.arange(3))
            assert_identical(envs.get_attr("novel"), (np.arange(3),) * 3)
            envs.set_attr("novel", abs)
            assert envs.get_attr("novel") == (abs,) * 3  # which a call would call
            with pytest.raises(ValueError, match="2 values for 3 environments"):
                envs.set_attr("length", [1, 2])

    def test_calls_look_through_wrappers(self) -> None:
        with self.make([partial(wrapped_ledger, number) for number in range(2)]) as envs:
            assert envs.get_attr("layers") == (1, 1)
            assert envs.call("multiply", 2) == (0, 2)
            envs.set_attr("length", 4)
            envs.set_attr("layers", [2, 3])
            envs.set_attr("novel", 6)
            assert envs.get_attr("layers") == (2, 3)
            inner = envs.get_attr("unwrapped")
            assert [type(env) for env in inner] == [Ledger, Ledger]
            assert [(env.length, env.novel) for env in inner] == [(4, 6), (4, 6)]

    def test_a_call_that_raises_names_the_environment_and_breaks_nothing(self) -> None:
        with self.begun(ledgers(4)) as envs:
            for call, error, text in (
                (partial(envs.call, "fail", (1,)), KeyError, "number 1"),
                (partial(envs.call, "no_such_name", env_ids=[1]), AttributeError, "no_such_name"),
            ):
                with pytest.raises(error, match=text) as caught:
                    call()
                assert "environment 1" in str(caught.value.__cause__)
                assert envs.call("fail") == ("fine",) * 4
            assert envs.step([1] * 4)[0][:, 2].tolist() == [1] * 4

    def test_stats_count_the_steps_of_each_environment(self) -> None:
        env_fns = [partial(Ledger, number, length=3 + number) for number in range(3)]
        with self.begun(env_fns, stats=True) as envs:
            for _ in range(12):
                envs.step([0, 0, 0])
            stats = envs.stats()
            assert stats.steps.tolist() == [12, 12, 12]
            for times in (stats.step_mean, stats.step_max):
                assert times.shape == (3,) and (times > 0).all()
            shares = (stats.caller_outside, stats.caller_computing, stats.caller_waiting)
            assert min(shares) > 0 and sum(shares) == pytest.approx(1)
            assert ((stats.worker_busy > 0) & (stats.worker_busy <= 1)).all()
            assert (stats.busy_seconds > 0).all()
            assert f"{max(shares):.0%}" in stats.bottleneck
            assert [row for rows in stats.worker_envs for row in rows] == [0, 1, 2]
