"""The example of one learner per shard, with two learners on two nodes each, on this machine."""

from __future__ import annotations

import re

import pytest

from tests.programs import ROOT, run_python

pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')

EXAMPLE = ROOT / "examples" / "sharded_learners.py"


@pytest.mark.full
@pytest.mark.timeout(300)
def test_two_learners_on_two_nodes_each_learn_one_policy() -> None:
    options = ["--local", "--num-envs", "32", "--updates", "10"]
    done = run_python("-W", "ignore", EXAMPLE, *options, timeout=240)
    homes = [set(line.split(": ")[-1].split("; ")) for line in done.stdout.splitlines()[:2]]
    assert [len(names) for names in homes] == [2, 2]
    assert not homes[0] & homes[1], "four nodes"
    returns = [float(number) for number in re.findall(r"mean return +([\d.]+)", done.stdout)]
    assert len(returns) == 10
    assert returns[0] < 40 < 80 < max(returns)
