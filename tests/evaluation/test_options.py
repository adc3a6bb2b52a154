"""options= of evaluate and collect: what each reset gets, also after losses and from a journal."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluation.envs import (
    Errand,
    Poisoned,
    assert_same,
    assert_same_episodes,
    errand_policy,
    gathered,
    seeds_of,
)
from vecspaces import Episode, evaluate
from vecspaces.errors import WorkerDiedError

posix = pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
EPISODES = 12
OPTIONS: list[Any] = [
    None if k == 4 else {"at": np.array([k, -1.0]), "deep": [k]} for k in range(EPISODES)
]


class Placed(Poisoned):
    """An errand that begins where its options say, and changes all that it gets."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        _, info = super().reset(seed=seed)
        options = {"at": np.zeros(2), "deep": [4]} if options is None else options
        self.place = np.array(options.pop("at"), np.float64)
        return self._observe(), {**info, "k": options["deep"].pop()}


def played(poison: tuple[int, ...] = (), *given: Any, **arguments: Any) -> list[Episode]:
    return gathered(
        errand_policy,
        partial(Placed, poison, *given),
        **{"episodes": EPISODES, "options": OPTIONS, "backend": "sync", **arguments},
    )


@pytest.fixture(scope="module")
def alone() -> list[Episode]:
    """The episodes, played one by one with the options of each."""
    seeds = seeds_of(3, EPISODES)
    return [
        episode
        for seed, options in zip(seeds, OPTIONS, strict=True)
        for episode in played(episodes=1, seed=[seed], options=[options])
    ]


def assert_played(found: list[Episode], alone: list[Episode]) -> None:
    assert [episode.infos["k"][0] for episode in found] == list(range(EPISODES))
    for number, episode in enumerate(alone):
        object.__setattr__(episode, "number", number)
    assert_same_episodes(found, alone)


@pytest.mark.parametrize(
    "way",
    [
        {"num_envs": 1},
        {"num_envs": 5, "options": lambda k: OPTIONS[k]},
        {"num_envs": 99, "options": tuple(OPTIONS)},
        {"backend": "async", "num_workers": 2, "num_envs": 3},
    ],
)
def test_episodes_with_options_depend_on_no_number_of_environments(
    alone: list[Episode], way: Any
) -> None:
    before = json.dumps(OPTIONS, default=np.ndarray.tolist)
    assert_played(played(**way), alone)
    assert json.dumps(OPTIONS, default=np.ndarray.tolist) == before


def test_one_mapping_is_for_all_episodes() -> None:
    shared = {"at": np.ones(2), "deep": [7]}
    results = [
        evaluate(
            errand_policy, partial(Placed, ()), episodes=5, seed=3, backend="sync", options=options
        )
        for options in (shared, [shared] * 5, lambda k: shared)
    ]
    for result in results:
        assert_same(result, results[0])
    assert "at" in shared and shared["deep"] == [7]


@posix
@pytest.mark.parametrize("where", ["reset", "step"])
def test_lost_episodes_begin_again_with_their_options(
    alone: list[Episode], tmp_path: Path, where: str
) -> None:
    seeds = seeds_of(3, EPISODES)
    lost = tuple(seeds[k] for k in (0, 4, 11))
    assert_played(played(lost, where, tmp_path, backend="async", num_workers=2, num_envs=4), alone)
    assert len(list(tmp_path.iterdir())) == 3


@posix
def test_errors_name_the_options() -> None:
    seed = seeds_of(3, EPISODES)[2]
    options = [{"at": [0, 0], "deep": [k]} for k in range(EPISODES)]
    given: dict[str, Any] = {"episodes": EPISODES, "seed": 3, "options": options}
    burst = partial(Placed, (seed,), "step", None, "raise")
    with pytest.raises(FloatingPointError) as caught:
        evaluate(errand_policy, burst, backend="sync", **given)
    named = f"episode 2 with seed {seed} and options {options[2]}"
    assert caught.value.__notes__ == [f"evaluate was playing {named}"]
    with pytest.raises(WorkerDiedError) as died:
        evaluate(
            errand_policy,
            partial(Placed, (seed,)),
            num_workers=1,
            max_retries=0,
            num_envs=1,
            **given,
        )
    assert f"{named} lost its worker once" in str(died.value)
    assert f"(..., episodes=1, seed=[{seed}], options=[{options[2]}]) plays it" in str(died.value)


# ---------------------------------------------------------------------- the journal


def journalled(path: Path, options: Any, **arguments: Any) -> Any:
    given: dict[str, Any] = {"episodes": EPISODES, "seed": 3, "backend": "sync", **arguments}
    return evaluate(errand_policy, partial(Placed, ()), options=options, journal=path, **given)


def test_a_journal_continues_with_the_same_options_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    result = journalled(path, OPTIONS)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-4]))
    # Not the way in which they were given counts.
    assert_same(journalled(path, lambda k: OPTIONS[k], num_envs=2), result)
    content = path.read_bytes()
    other = [*OPTIONS[:7], {"at": np.array([7, -1.5]), "deep": [7]}, *OPTIONS[8:]]
    for options, words in (
        (other, r"whose options differ from episode 7 on, .*\[7\.0, -1\.0\].* has .*\[7\.0, -1\.5"),
        (None, r"of options \[.*, and this call has None"),
    ):
        with pytest.raises(ValueError, match=words):
            journalled(path, options)
    assert path.read_bytes() == content
    path.unlink()
    evaluate(errand_policy, partial(Placed, ()), episodes=2, seed=3, backend="sync", journal=path)
    with pytest.raises(ValueError, match="of options None, and this call has"):
        journalled(path, OPTIONS[:2], episodes=2)


@pytest.mark.parametrize("value", [Path("a"), {1}, b"a", 1j, np.array([None, object()])])
def test_a_journal_refuses_options_that_cannot_be_compared(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="journal: options of episode 1: expected numbers"):
        journalled(tmp_path / "journal", [None, {"value": [value]}], episodes=2)
    assert not (tmp_path / "journal").exists()


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ([{}], ValueError, "options: expected 3 mappings, one per episode, found 1"),
        ("abc", TypeError, "options must be a mapping, a sequence .* found 'abc' of type str"),
        (7, TypeError, "options must be a mapping"),
        ([None, None, 3], TypeError, "options of episode 2: expected a mapping or None, found 3"),
        (lambda k: k, TypeError, "options of episode 0: expected a mapping or None, found 0"),
        ({"reset_mask": [True]}, ValueError, "options of episode 0: found a reset_mask"),
    ],
)
def test_options_of_a_wrong_form_are_refused(options: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words):
        evaluate("random", Errand, episodes=3, backend="sync", options=options)
