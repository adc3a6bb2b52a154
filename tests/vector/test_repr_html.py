"""The table that notebooks show for a vector env: what it says, and that it stays small."""

from __future__ import annotations

import re
from functools import partial
from html import unescape
from typing import Any

import pytest

from tests.envs import Failing, Ledger, Sampler, ledgers
from vecspaces import make_vec, spaces
from vecspaces.adapters.gymnasium import as_gymnasium
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from vecspaces.wrappers import ClipReward, RecordEpisodeStatistics


def table(envs: Any) -> dict[str, str]:
    """The cells by the name of their row, and the caption."""
    text = envs._repr_html_()
    assert text.startswith("<table><caption>") and text.endswith("</table>")
    cells = re.findall(r"<tr><th>([^<]*)</th><td>([^<]*)</td></tr>", text)
    (caption,) = re.findall(r"<caption>([^<]*)</caption>", text)
    return {"caption": unescape(caption), **{key: unescape(value) for key, value in cells}}


def test_it_shows_environments_workers_spaces_mode_and_state() -> None:
    with make_vec("CartPole-v1", 3, num_workers=2, autoreset_mode="SameStep") as envs:
        shown = table(envs)
        assert shown.pop("observation").startswith("Box([-4.8")
        assert shown == {
            "caption": "AsyncVectorEnv",
            "environments": "3 of CartPole-v1",
            "workers": "2",
            "action": "Discrete(2)",
            "autoreset mode": "SameStep",
            "state": "new",
        }


def test_the_state_is_that_of_the_moment() -> None:
    seen = []
    envs = AsyncVectorEnv(ledgers(2), num_workers=1)
    with envs:
        envs.reset()
        seen.append(table(envs)["state"])
        envs.step_async([0, 1])
        seen.append(table(envs)["state"])
        envs.step_wait()
        envs.send([0], [0])
        seen.append(table(envs)["state"])
        envs.recv(1)
    seen.append(table(envs)["state"])
    assert seen == ["ready", "step pending", "send pending", "closed"]
    with SyncVectorEnv([Failing, Ledger]) as envs:
        envs.reset()
        with pytest.raises(FloatingPointError):
            envs.step([4, 1])
        assert table(envs)["state"] == "broken until reset()"


def test_wrappers_and_adapters_show_what_is_inside() -> None:
    with ClipReward(RecordEpisodeStatistics(SyncVectorEnv(ledgers(2))), 0, 1) as envs:
        shown = table(envs)
        assert shown["caption"] == "ClipReward(RecordEpisodeStatistics(SyncVectorEnv))"
        assert shown["workers"] == "none: in this process"
        assert table(as_gymnasium(envs)) == shown


def test_text_of_spaces_is_escaped_and_cut() -> None:
    many = spaces.Dict({f"<b>{number}</b>": spaces.Discrete(2) for number in range(500)})
    with SyncVectorEnv([partial(Sampler, many, spaces.Text(3, charset="<&"))] * 2) as envs:
        text = envs._repr_html_()
        assert "<b>" not in text and "&lt;b&gt;0" in text
        shown = table(envs)
        assert len(shown["observation"]) == 120 and shown["observation"].endswith("…")
        assert "<" in shown["action"]
    assert len(text) < 2_000


class Simulator(VectorEnv[Any, Any, Any]):
    """Has what the interface asks for, and no more."""

    num_envs = 2
    single_observation_space = spaces.Discrete(3)
    single_action_space = spaces.Discrete(2)


def test_a_vector_env_of_a_users_own_is_shown_too() -> None:
    assert table(Simulator()) == {
        "caption": "Simulator",
        "environments": "2",
        "workers": "none: in this process",
        "observation": "Discrete(3)",
        "action": "Discrete(2)",
        "state": "open",
    }
