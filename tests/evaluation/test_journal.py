"""The journal of an evaluation: what it holds, how a call continues from it, and its refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluation.envs import Errand, assert_same, errand_policy, seeds_of
from tests.programs import environ
from vecspaces import Evaluation, evaluate
from vecspaces.evaluation.journal import Journal

posix = pytest.mark.skipif(sys.platform == "win32", reason="locks and signals of POSIX")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def journalled(path: Path, **arguments: Any) -> Evaluation:
    defaults: dict[str, Any] = {"episodes": 6, "seed": 3, "backend": "sync", "journal": path}
    return evaluate(errand_policy, Errand, **{**defaults, **arguments})


def test_it_holds_each_episode_and_needs_no_environment_when_complete(path: Path) -> None:
    result = journalled(path, num_envs=2)
    content = path.read_bytes()
    header, *lines = map(json.loads, content.splitlines())
    assert header["seeds"] == result.seeds.tolist()
    lines.sort(key=lambda line: line["episode"])
    assert [line["total"] for line in lines] == result.returns.tolist()
    assert [line["seed"] for line in lines] == result.seeds.tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Errand, "__init__", lambda self: pytest.fail("an environment was built"))
        assert_same(journalled(path), result)
    assert path.read_bytes() == content


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.full)])
def test_one_that_ends_at_any_byte_keeps_the_whole_lines(path: Path, stride: int) -> None:
    journalled(path, episodes=3)
    content = path.read_bytes()
    header = json.loads(content.splitlines()[0])
    for size in range(0, len(content), stride):
        path.write_bytes(content[:size])
        journal = Journal(path, header["arguments"], header["seeds"])
        journal.close()
        kept = content[: content[:size].rfind(b"\n") + 1] or content.splitlines(keepends=True)[0]
        assert path.read_bytes() == kept
        assert len(journal.finished) == kept.count(b"\n") - 1


@pytest.mark.parametrize("size", [40, 400, -2])
def test_an_evaluation_continues_from_one_that_is_torn(path: Path, size: int) -> None:
    first = journalled(path)
    content = path.read_bytes()
    path.write_bytes(content[:size])
    seen: list[tuple[int, int]] = []
    way = {"backend": "async", "num_workers": 2, "max_retries": 9} if size == 400 else {}
    assert_same(journalled(path, progress=lambda *counts: seen.append(counts), **way), first)
    assert seen[0] == (max(content[:size].count(b"\n") - 1, 0), 6)
    assert sorted(path.read_bytes().splitlines()) == sorted(content.splitlines())


def test_without_a_seed_the_seeds_are_those_of_the_journal(path: Path) -> None:
    first = journalled(path, seed=None)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    assert_same(journalled(path, seed=None), first)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"episodes": 7}, "of episodes 6, and this call has 7"),
        ({"seed": 4}, "whose seeds differ from episode 0 on"),
        ({"seed": [*seeds_of(3, 4), 1, 2]}, "whose seeds differ from episode 4 on"),
        ({"max_episode_steps": 9}, "of max_episode_steps None, and this call has 9"),
        ({"batch_size": 2}, "of batch_size None, and this call has 2"),
        ({"env_kwargs": {"shortest": 5}}, "of env_kwargs"),
    ],
)
def test_one_of_other_arguments_is_refused_and_left_alone(
    path: Path, arguments: dict[str, Any], words: str
) -> None:
    journalled(path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=words):
        journalled(path, **arguments)
    for policy, env, name in (
        ("random", Errand, "policy"),
        (errand_policy, partial(Errand, 3), "env"),
    ):
        with pytest.raises(ValueError, match=f"of {name} "):
            evaluate(policy, env, episodes=6, seed=3, backend="sync", journal=path)
    assert path.read_bytes() == content


SPOILT: list[tuple[int, dict[str, Any]]] = [
    (4, {"seed": 5}),
    (2, {"episode": 6}),
    (3, {"episode": -1}),
    (3, {"episode": True}),
    (2, {"total": "1.5"}),
    (2, {"length": None}),
    (2, {"infos": []}),
    (1, {"seeds": [1, 2]}),
    (1, {"seeds": {"0": 1}}),
    (1, {"arguments": []}),
]


def test_a_line_that_is_spoilt_is_named(path: Path) -> None:
    journalled(path, seed=None)
    content = path.read_bytes()
    for number, fields in SPOILT:
        lines = content.splitlines(keepends=True)
        changed = {**json.loads(lines[number - 1]), **fields}
        lines[number - 1] = json.dumps(changed).encode() + b"\n"
        path.write_bytes(b"".join(lines))
        with pytest.raises(ValueError, match=f"as its line {number} shows"):
            journalled(path, seed=None)
        assert path.read_bytes() == b"".join(lines)
    # An episode that stands there twice, and an endless line.
    for line in (content.splitlines(keepends=True)[2], b"[" * 100_000 + b"\n"):
        path.write_bytes(content + line)
        with pytest.raises(ValueError, match="as its line 8 shows"):
            journalled(path, seed=None)


def test_another_file_is_refused_and_left_alone(path: Path) -> None:
    for content in (b"step,reward\n", b"x", b'{"journal": "other"}\n', b"\n", b"{}\n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is no journal of evaluate, as its line 1 shows"):
            journalled(path)
        assert path.read_bytes() == content
    path.write_bytes(b'{"journal"')  # the beginning of a journal
    journalled(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, words in ((Path(os.devnull), "which is no file"), (tmp_path, "a folder")):
        with pytest.raises(ValueError, match=f"journal: expected a file or a new name.* {words}"):
            journalled(path)


class Unbounded(Errand):
    def step(self, action: Any) -> Any:
        observation, _, *_ = super().step(action)
        return observation, np.inf if self.seed in (1, 3) else -np.inf, True, False, {}


def test_numbers_that_are_not_finite_survive(path: Path) -> None:
    play = partial(evaluate, "random", Unbounded, seed=[1, 2, 3], backend="sync", journal=path)
    first = play(episodes=3)
    assert first.returns.tolist() == [np.inf, -np.inf, np.inf]
    again = play(episodes=3)
    assert_same(again, first)
    assert [episode["return"] for episode in again.as_json()["episodes"]] == [None] * 3
    path.unlink()
    for _ in range(2):
        Journal(path, {"gravity": float("nan")}, [1]).close()


def test_one_journal_has_one_writer(path: Path) -> None:
    def check(finished: int, episodes: int) -> None:
        content = path.read_bytes()
        assert content.count(b"\n") == finished + 1
        with pytest.raises(ValueError, match=r"another evaluation writes .*runs\.jsonl: wait"):
            journalled(path)
        assert path.read_bytes() == content

    first = journalled(path, progress=check)
    assert_same(journalled(path), first)


HOLDER = """
import sys
from vecspaces.evaluation.journal import Journal

journal = Journal(sys.argv[1], {}, [1])
try:
    Journal(sys.argv[1], {}, [1])
except ValueError:  # which leaves the lock of the first one
    print("open", flush=True)
sys.stdin.read()
"""


@posix
def test_one_of_another_process_is_refused_until_that_has_ended(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        env=environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        for _ in range(2):
            with pytest.raises(ValueError, match="another evaluation writes"):
                Journal(path, {}, [1])
        process.kill()
    Journal(path, {}, [1]).close()


class Checkpoint:
    """A policy with parameters, as PyTorch has them."""

    def __init__(self, weight: float) -> None:
        self.weight = np.full((2, 2), weight)

    def state_dict(self) -> dict[str, Any]:
        return {"layer": {"weight": self.weight}, "steps": 3}

    def act(self, observations: Any) -> Any:
        return errand_policy(observations)


def test_another_checkpoint_of_the_same_class_is_another_policy(path: Path) -> None:
    named: Any = {"episodes": 6, "seed": 3, "backend": "sync", "journal": path}
    first = evaluate(Checkpoint(1.0).act, Errand, **named)
    with pytest.raises(ValueError, match="policy"):
        evaluate(Checkpoint(2.0).act, Errand, **named)
    assert evaluate(Checkpoint(1.0).act, Errand, **named).returns.tolist() == first.returns.tolist()
