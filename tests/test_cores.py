"""How many cores are usable: the affinity, and every CPU quota on the way up."""

from __future__ import annotations

import math
import multiprocessing
from pathlib import Path

import pytest

from tests.envs import ledgers
from vecspaces import cores, system
from vecspaces.cores import count_usable_cores, cpu_quota
from vecspaces.vector import AsyncVectorEnv


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write the files of a made-up system, and return its root."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


CASES = {
    "no /proc": ({}, math.inf),
    "no quota": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
    "the group": (
        {"proc/self/cgroup": "0::/k/pod\n", "sys/fs/cgroup/k/pod/cpu.max": "250000 100000\n"},
        2.5,
    ),
    "a group above": (
        {
            "proc/self/cgroup": "0::/k/pod/box\n",
            "sys/fs/cgroup/k/pod/box/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/k/cpu.max": "100000 100000\n",
            "sys/fs/cgroup/k/pod/cpu.max": "max 100000\n",
        },
        1.0,
    ),
    "a path of the host": (
        {"proc/self/cgroup": "0::/docker/f00\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"},
        2.0,
    ),
    "a period of 0, and lines of no known form": (
        {
            "proc/self/cgroup": "what\n\n4:cpu\n5:cpu:/a\n0::/b\n",
            "sys/fs/cgroup/b/cpu.max": "100000 0\n",
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
        },
        2.0,
    ),
    "above the namespace": (
        {"proc/self/cgroup": "0::/../sibling\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"},
        2.0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_smallest_quota_on_the_way_up_counts(case: str, tmp_path: Path) -> None:
    files, expected = CASES[case]
    assert cpu_quota(tree(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("affinity", "quota", "expected"),
    [(64, math.inf, 64), (64, 2.0, 2), (64, 2.1, 3), (64, 0.1, 1), (2, 7.5, 2), (1, 0.5, 1)],
)
def test_a_quota_bounds_the_affinity_and_a_fraction_counts_as_a_core(
    affinity: int, quota: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "count_cores", lambda: affinity)
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    assert count_usable_cores() == expected


def test_the_default_number_of_workers_keeps_to_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "count_cores", lambda: 64)
    monkeypatch.setattr(cores, "cpu_quota", lambda: 2.0)
    with AsyncVectorEnv(ledgers(5)) as envs:
        assert envs.num_workers == len(multiprocessing.active_children()) == 2
