"""The example that overlaps policy and environments: a seed repeats it, and it learns."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

EXAMPLE = "overlapped_ppo"


def train(example: ModuleType, halves: int, updates: int, seed: int) -> tuple[float, Any]:
    return example.train(halves=halves, num_envs=8, steps=64, updates=updates, seed=seed)


@pytest.mark.parametrize("halves", [1, 2])
def test_a_seed_repeats_it(example: ModuleType, halves: int) -> None:
    runs = [train(example, halves, 2, seed) for seed in (1, 1, 2)]
    assert runs[0][0] == runs[1][0]
    for name, weights in runs[0][1].items():
        assert torch.equal(runs[1][1][name], weights), name
    assert not all(torch.equal(runs[2][1][name], runs[0][1][name]) for name in runs[0][1])


@pytest.mark.full
def test_it_learns(example: ModuleType) -> None:
    mean, _ = example.train(halves=2, num_envs=16, steps=128, updates=15, seed=1)
    assert mean > 100  # a random policy: 22
