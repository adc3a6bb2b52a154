"""options= of evaluate and collect: what each reset gets, also after losses and from a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluation.envs import Errand, assert_same, errand_policy, gathered, numbered
from vecspaces import evaluate

EPISODES = 6
LIST: list[Any] = [None if k == 4 else {"number": k, "at": np.array([k, -1.0])} for k in range(6)]


def numbers(options: Any, **way: Any) -> list[int]:
    """The number that each episode's reset found in its options."""
    arguments: Any = {"episodes": EPISODES, "options": options, "backend": "sync", **way}
    return [episode.infos["begun"][0] for episode in gathered(errand_policy, Errand, **arguments)]


def test_options_are_a_sequence_or_a_function_or_one_mapping() -> None:
    shared = {"number": 7}
    for num_envs in (1, 4):
        assert numbers(LIST, num_envs=num_envs) == [0, 1, 2, 3, -1, 5]
        assert numbers(tuple(LIST), num_envs=num_envs) == [0, 1, 2, 3, -1, 5]
        assert numbers(numbered, num_envs=num_envs) == list(range(EPISODES))
        for options in (shared, [shared] * EPISODES, lambda k: shared):
            assert numbers(options, num_envs=num_envs) == [7] * EPISODES
        assert numbers(None, num_envs=num_envs) == [-1] * EPISODES
    # The environments changed copies.
    assert shared == {"number": 7} and LIST[0].keys() == {"number", "at"}


def test_a_function_is_called_once_per_episode_and_may_reuse_its_dict() -> None:
    called: list[int] = []
    reused: dict[str, int] = {}

    def options(k: int) -> dict[str, int]:
        called.append(k)
        reused["number"] = k
        return reused

    assert numbers(options) == called == list(range(EPISODES))


def journalled(path: Path, options: Any, **arguments: Any) -> Any:
    named: dict[str, Any] = {"episodes": EPISODES, "seed": 3, "backend": "sync", **arguments}
    return evaluate(errand_policy, Errand, options=options, journal=path, **named)


def test_a_journal_continues_with_the_same_options_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    result = journalled(path, LIST)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-4]))
    # Not the way in which they were given counts.
    assert_same(journalled(path, lambda k: LIST[k], num_envs=2), result)
    content = path.read_bytes()
    other = [*LIST[:3], {"number": 3, "at": np.array([3, -1.5])}, *LIST[4:]]
    for options, words in (
        (other, r"whose options differ from episode 3 on, .*\[3\.0, -1\.0\].* has .*\[3\.0, -1\.5"),
        (None, r"of options \[.*, and this call has None"),
    ):
        with pytest.raises(ValueError, match=words):
            journalled(path, options)
    assert path.read_bytes() == content
    path.unlink()
    journalled(path, None, episodes=2)
    with pytest.raises(ValueError, match="of options None, and this call has"):
        journalled(path, LIST[:2], episodes=2)


@pytest.mark.parametrize("value", [Path("a"), {1}, b"a", 1j, np.array([None, object()])])
def test_a_journal_refuses_options_that_cannot_be_compared(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="journal: options of episode 1: expected numbers"):
        journalled(tmp_path / "journal", [None, {"value": [value]}], episodes=2)
    assert not (tmp_path / "journal").exists()
