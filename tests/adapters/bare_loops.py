"""Bare loops over parallel environments, and what both layouts must show of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.envs.agents import Crowd
from vecspaces import spaces
from vecspaces.vector import AutoresetMode

Record = dict[str, Any]


class Bare:
    """One environment in a bare loop; it returns what must be shown of it, by agent.

    In SAME_STEP mode, `last` is what a step returned, and `begun` the beginning of the next episode
    if it ended the episode.
    """

    def __init__(self, crowd: Any, mode: AutoresetMode) -> None:
        self.crowd, self.agents, self.mode = crowd, crowd.possible_agents, mode

    def show(
        self, seen: Any, infos: Any, rewards: Any = None, ends: Any = None, **more: Any
    ) -> Any:
        crowd, agents = self.crowd, self.agents
        return {
            "seen": copy.deepcopy(seen),  # an environment may use its arrays again
            "infos": {agent: dict(infos.get(agent, {})) for agent in agents},
            "rewards": {agent: (rewards or {}).get(agent, 0.0) for agent in agents},
            "ends": {agent: (ends or {}).get(agent, (False, False)) for agent in agents},
            "alive": list(crowd.agents),
            "over": not crowd.agents,
            "state": crowd.state() if isinstance(crowd, Crowd) else None,
            "finals": {},
            **more,
        }

    def begin(self, **arguments: Any) -> Record:
        self.returns = dict.fromkeys(self.agents, 0.0)
        # The agents of this episode whose last flag is a truncation.
        self.truncated: set[str] = set()
        return self.show(*self.crowd.reset(**arguments))

    def step(self, action: Any) -> Record:
        crowd, agents = self.crowd, self.agents
        if not crowd.agents:
            return self.begin()
        acts = {agent: action[n] for n, agent in enumerate(agents) if agent in crowd.agents}
        seen, rewards, terminations, truncations, infos = crowd.step(acts)
        ends = {agent: (terminations[agent], truncations[agent]) for agent in acts}
        for agent, reward in rewards.items():
            self.returns[agent] += reward
        for agent in acts:
            if any(ends[agent]):
                change = self.truncated.add if truncations[agent] else self.truncated.discard
                change(agent)
        totals = {"truncated": bool(self.truncated), "returns": dict(self.returns)}
        last = self.show(seen, infos, rewards, ends, **totals)
        if self.mode is not AutoresetMode.SAME_STEP:
            return last
        seen = last["seen"]
        finals = {agent: (seen[agent], infos.get(agent, {})) for agent in acts if any(ends[agent])}
        if crowd.agents:
            shown = {agent: seen[agent] for agent in crowd.agents}
            return self.show(shown, infos, rewards, ends, finals=finals, last=last)
        begun = self.begin()
        ended = {"rewards": last["rewards"], "ends": last["ends"], "over": True}
        return {**begun, **ended, "finals": finals, "last": last, "begun": begun}


def row(batch: Any, number: int) -> Any:
    """Return one row of a batch."""
    if isinstance(batch, dict):
        return {key: row(part, number) for key, part in batch.items()}
    return batch[number]


def observation_of(crowd: Any, expected: Record, agent: str) -> Any:
    """Return what an agent observes; zeros, with every action allowed, of one that is gone."""
    if agent in expected["seen"]:
        return expected["seen"][agent]
    space = crowd.observation_space(agent)
    if getattr(crowd, "masks", "") == "observations":
        return {"observation": np.zeros(4), "action_mask": np.ones(3, np.int8)}
    return np.zeros(space.shape)


def mask_of(crowd: Any, expected: Record, agent: str) -> Any:
    """Return the mask of an agent's actions."""
    shown = expected["seen" if crowd.masks == "observations" else "infos"].get(agent, {})
    is_alive = agent in expected["alive"] and "action_mask" in shown
    return shown["action_mask"] if is_alive else np.ones(3)


def check_rows(crowd: Any, expected: Record, number: int, result: Any) -> None:
    """Compare the rows of an environment's agents."""
    observations, rewards, terminations, truncations, infos = result
    agents = crowd.possible_agents
    for place, agent in enumerate(agents, number * len(agents)):
        seen = observation_of(crowd, expected, agent)
        np.testing.assert_equal(row(observations, place), seen)
        assert infos["alive"][place] == (agent in expected["alive"])
        assert infos["episode_over"][place] == expected["over"]
        if "state" in infos:
            np.testing.assert_array_equal(infos["state"][place], expected["state"])
        if rewards is not None:
            assert rewards[place] == expected["rewards"][agent]
            assert (terminations[place], truncations[place]) == expected["ends"][agent]
        if getattr(crowd, "masks", ""):
            mask = mask_of(crowd, expected, agent)
            np.testing.assert_array_equal(infos["action_mask"][place], mask)
        info = expected["infos"][agent]
        assert ("_age" in infos and bool(infos["_age"][place])) == ("age" in info)
        if "age" in info:
            assert infos["age"][place] == info["age"]
        final = expected["finals"].get(agent)
        has_final = "_final_obs" in infos and bool(infos["_final_obs"][place])
        assert has_final == (final is not None)
        if final is not None:
            np.testing.assert_equal(infos["final_obs"][place], final[0])
            if "age" in final[1]:
                assert infos["final_info"]["age"][place] == final[1]["age"]


def check_dicts(crowd: Any, expected: Record, number: int, result: Any) -> None:
    """Compare the Dicts by agent of an environment."""
    observations, rewards, terminations, truncations, infos = result
    last = expected.get("last", expected)
    shown = expected.get("begun", last)  # an agent that is gone alone shows what it saw last
    seen = {agent: observation_of(crowd, shown, agent) for agent in crowd.possible_agents}
    np.testing.assert_equal(row(observations, number), seen)
    check_infos(crowd, shown, number, infos)
    if rewards is None:
        return
    assert rewards[number] == sum(last["rewards"].values())
    truncated = last["over"] and last["truncated"]
    assert truncations[number] == truncated
    assert terminations[number] == (last["over"] and not truncated)
    if last["over"]:
        ended = infos["final_info"] if "begun" in expected else infos
        for agent, total in last["returns"].items():
            assert ended[f"return/{agent}"][number] == total
    if "begun" in expected:
        seen = {agent: observation_of(crowd, last, agent) for agent in crowd.possible_agents}
        np.testing.assert_equal(infos["final_obs"][number], seen)
        check_infos(crowd, last, number, infos["final_info"])


def check_infos(crowd: Any, expected: Record, number: int, infos: Any) -> None:
    """Compare the infos of an environment's agents."""
    by_agent = infos["agents"]
    has_masks = bool(getattr(crowd, "masks", ""))
    assert ("action_mask" in by_agent) == has_masks
    for agent in crowd.possible_agents:
        kinds = {
            "rewards": expected["rewards"][agent],
            "terminations": expected["ends"][agent][0],
            "truncations": expected["ends"][agent][1],
            "alive": agent in expected["alive"],
        }
        if has_masks:
            kinds["action_mask"] = mask_of(crowd, expected, agent)
        for kind, value in kinds.items():
            values = by_agent[kind][agent]
            assert values.dtype != object and values.shape[1:] == np.shape(value)
            np.testing.assert_array_equal(values[number], value)
        mine, age = by_agent.get("infos", {}).get(agent, {}), expected["infos"][agent].get("age")
        assert bool(mine.get("_age", np.zeros(99))[number]) == (age is not None)
        assert age is None or mine["age"][number] == age
    if "state" in infos:
        np.testing.assert_array_equal(infos["state"][number], expected["state"])


def play(envs: Any, make: Callable[[], Any], mode: AutoresetMode, steps: int = 25) -> int:
    """Compare each step of all environments, in either layout, with bare loops over them.

    Returns:
        How many agents ended before the other ones of their environment.
    """
    is_dict = isinstance(envs.single_action_space, spaces.Dict)
    check = check_dicts if is_dict else check_rows
    names = make().possible_agents
    rows_per_env = 1 if is_dict else len(names)
    crowds = [make() for _ in range(envs.num_envs // rows_per_env)]
    envs.action_space.seed(5)
    # By time, environment and agent: one that is reset by itself does not act at that time.
    drawn = [envs.action_space.sample() for _ in range(2 * steps)]
    actions = [
        [
            [pair[name][n] if is_dict else pair[n * len(names) + k] for k, name in enumerate(names)]
            for n in range(len(crowds))
        ]
        for pair in drawn
    ]
    loops = [Bare(crowd, mode) for crowd in crowds]
    shown = [loop.begin(seed=7 + n) for n, loop in enumerate(loops)]
    cursor = np.zeros(len(crowds), int)

    def compare(chosen: Any, result: Any) -> None:
        for n in chosen:
            check(crowds[n], shown[n], n, result)

    observations, infos = envs.reset(seed=7)
    compare(range(len(crowds)), (observations, None, None, None, infos))
    ended = left = 0
    for _ in range(steps):
        over = np.array([record["over"] for record in shown])
        if mode is AutoresetMode.DISABLED and over.any():
            mask = np.repeat(over, rows_per_env)
            observations, infos = envs.reset(options={"reset_mask": mask})
            for n in np.flatnonzero(over):
                shown[n] = loops[n].begin()
            compare(np.flatnonzero(over), (observations, None, None, None, infos))
            cursor += over
        chosen = [actions[time][n] for n, time in enumerate(cursor)]
        if is_dict:
            batch: Any = {
                name: np.array([acts[k] for acts in chosen]) for k, name in enumerate(names)
            }
        else:
            batch = np.array([action for acts in chosen for action in acts])
        result = envs.step(batch)
        shown = [loop.step(acts) for loop, acts in zip(loops, chosen, strict=True)]
        compare(range(len(crowds)), result)
        for record in shown:
            ended += record["over"]
            left += sum(map(any, record["ends"].values())) * (not record["over"])
        cursor += 1
    for crowd in crowds:
        crowd.close()
    assert ended > steps // 9 or not isinstance(crowds[0], Crowd)
    return left
