"""`vecspaces collect`: a file per episode, which holds what `vecspaces.collect` yields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.cli.running import run
from tests.compare import assert_identical
from tests.contract import ALL_SPACES
from tests.envs import Sampler
from tests.evaluation.envs import Errand, errand_policy
from vecspaces import Episode, collect, spaces

ERRAND = "tests.evaluation.envs:Errand --policy tests.evaluation.envs:errand_policy"


class Anything(Sampler):
    """Observes and is given values of every kind of space."""

    info_space = spaces.Dict(own=spaces.Box(-9, 9, (), np.int64))

    def __init__(self) -> None:
        super().__init__(ALL_SPACES["all"], ALL_SPACES["all"])

    def _talk(self) -> dict[str, Any]:
        return {**super()._talk(), "object": object(), "pair": (np.float32(0.5), "a"), "own": 1}


def read(space: Any, arrays: Any, name: str) -> Any:
    """Return the batch of a space that a file holds."""
    if isinstance(space, spaces.Dict):
        return {key: read(part, arrays, f"{name}/{key}") for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        parts = enumerate(space.spaces)
        return tuple(read(part, arrays, f"{name}/{number}") for number, part in parts)
    if arrays[name].dtype.kind != "U":
        return arrays[name]
    return tuple(space.from_jsonable(json.loads(str(arrays[name]))))


def check(folder: str, episodes: list[Episode]) -> None:
    """Compare files with episodes."""
    names = [f"{number:0{len(str(len(episodes) - 1))}}.npz" for number in range(len(episodes))]
    assert sorted(path.name for path in Path(folder).iterdir()) == names
    for name, episode in zip(names, episodes, strict=True):
        with np.load(Path(folder, name)) as arrays:
            for part, space in (
                ("observations", episode.observation_space),
                ("actions", episode.action_space),
            ):
                assert_identical(read(space, arrays, part), getattr(episode, part))
            for field in ("rewards", "terminations", "truncations"):
                assert_identical(arrays[field], getattr(episode, field))
            assert int(arrays["seed"]) == episode.seed


def test_the_files_hold_the_episodes() -> None:
    result = run(f"collect {ERRAND} --episodes 12 --seed 3 --num-workers 2 --out made")
    assert result.exit_code == 0, result.output
    expected = list(collect(errand_policy, Errand, episodes=12, seed=3, ordered=True))
    check("made", expected)
    steps = sum(len(episode.rewards) for episode in expected)
    assert "12 episodes of" in result.stdout and f"{steps:,}" in result.stdout
    with np.load("made/04.npz") as arrays:
        infos = expected[4].infos
        assert json.loads(str(arrays["infos/note"])) == infos["note"]
        distances = json.loads(str(arrays["infos/distance"]))
        assert np.float32(distances[1:]).tolist() == np.float32(infos["distance"][1:]).tolist()
        assert arrays["infos/_distance"].tolist() == infos["_distance"].tolist()
        assert json.loads(str(arrays["infos/of"]))[-1] == {"nested": 1}


def test_every_kind_of_value_is_written_or_named() -> None:
    env = "tests.cli.test_collect:Anything"
    result = run(f"collect {env} --policy random --episodes 6 --seed 1 --out made --backend sync")
    assert result.exit_code == 0, result.output
    found = list(collect("random", Anything, episodes=6, seed=1, ordered=True, backend="sync"))
    check("made", found)
    warning = "vecspaces: warning: infos/object is left out: neither an array nor JSON"
    assert result.stderr.splitlines().count(warning) == 1
    with np.load("made/0.npz") as arrays:
        assert json.loads(str(arrays["infos/pair"]))[1] == [0.5, "a"]
        assert arrays["infos/own"].tolist() == [1] * len(found[0].infos["_own"])
        assert "infos/object" not in arrays


class Ambiguous(Sampler):
    """Has two keys whose names in a file are equal."""

    def __init__(self) -> None:
        inner = spaces.Dict({"b": spaces.Discrete(2)})
        super().__init__(spaces.Dict({"a/b": spaces.Discrete(3), "a": inner}), spaces.Discrete(2))


def test_two_values_of_one_name_are_refused() -> None:
    env = "tests.cli.test_collect:Ambiguous"
    result = run(f"collect {env} --policy random --episodes 2 --out made --backend sync")
    assert result.exit_code == 2
    text = "vecspaces: --out: two values have the name observations/a/b: rename one"
    assert result.stderr.splitlines()[0] == f"{text}; 0 episodes are in made"
    assert not list(Path("made").iterdir())


def test_options_are_those_of_evaluate_and_the_folder_may_be_empty() -> None:
    where = "empty"
    Path(where).mkdir()
    arguments = f"{ERRAND} --env-arg shortest=2 --env-arg endless=True --max-episode-steps 5"
    result = run(f"collect {arguments} --episodes 2 --seed 0 --no-progress --out {where}")
    assert result.exit_code == 0, result.output
    with np.load(f"{where}/1.npz") as arrays:
        assert arrays["truncations"].tolist() == [False] * 4 + [True]
    again = run(f"collect {arguments} --episodes 2 --out {where}")
    assert again.exit_code == 2
    refused = f"vecspaces: --out: expected a new or empty folder, found {where} with files"
    assert again.stderr.splitlines() == [refused]


def test_an_error_leaves_the_episodes_that_have_ended() -> None:
    from tests.evaluation.envs import seeds_of

    bad = seeds_of(3, 12)[7]
    result = run(
        f"collect tests.evaluation.envs:Raising --env-arg bad={bad} --policy random --episodes 12 "
        "--seed 3 --num-envs 1 --backend sync --out made"
    )
    assert result.exit_code == 1
    assert f"collect was playing episode 7 with seed {bad}" in " ".join(result.output.split())
    assert "7 episodes are in made" in " ".join(result.output.split())
    assert len(list(Path("made").iterdir())) == 7
