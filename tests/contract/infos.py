"""Tests: merged infos, and those of an `info_space`."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.comparing import (
    MODES,
    Part,
    assert_same_infos,
    assert_same_run,
    assert_same_step,
    infos_of,
    samples,
)
from tests.envs import INFO_SPACE, informing
from vecspaces.vector import AutoresetMode, SyncVectorEnv


class InfosContract(Part):
    """Merged infos, and those of an `info_space`."""

    def test_declared_infos_of_some_environments(self) -> None:
        with (
            self.make(informing(4, True), autoreset_mode="SameStep") as envs,
            SyncVectorEnv(informing(4, False), autoreset_mode="SameStep") as reference,
        ):
            assert_same_step(envs.reset(seed=2), reference.reset(seed=2))
            for ids in ([3, 1], [0], [2, 3, 0], [1, 0, 2, 3], [3], [1, 2]):
                actions = np.arange(len(ids))
                assert_same_step(envs.step(actions, ids), reference.step(actions, ids))
            mask = np.array([True, False, False, True])
            for number in (2, 1):
                for vector_env in (envs, reference):
                    vector_env.send([number], [number])
                assert_same_infos(envs.recv(1).infos, reference.recv(1).infos)
            options = {"reset_mask": mask}
            assert_same_step(
                envs.reset(seed=7, options=options), reference.reset(seed=7, options=options)
            )
            assert_same_infos(envs.recv(2).infos, reference.recv(2).infos)

    @pytest.mark.parametrize("mode", MODES)
    def test_declared_infos_are_those_of_no_info_space(self, mode: AutoresetMode) -> None:
        def factories(declares: bool) -> list[Any]:
            first, other, _ = three = informing(3, declares)
            return [partial(SyncVectorEnv, three, autoreset_mode=mode), first, other]

        with (
            self.make(factories(True), autoreset_mode=mode) as envs,
            SyncVectorEnv(factories(False), autoreset_mode=mode) as reference,
        ):
            assert envs.info_space == INFO_SPACE
            assert reference.info_space is None
            assert_same_run(envs, reference)
            _, infos = envs.reset(seed=0)
            before = copy.deepcopy(infos)
            infos_of(envs)
            assert_same_infos(infos, before)

    def test_declared_infos_of_a_rollout(self) -> None:
        with (
            self.make(informing(3, True), copy=False, buffers=4) as envs,
            SyncVectorEnv(informing(3, False)) as reference,
        ):
            infos = [reference.reset(seed=0)[1]]
            envs.reset(seed=0)
            for _ in range(2):
                for actions in samples(reference, 1, 3):
                    step_infos = envs.step(actions)[4]
                    infos.append(reference.step(actions)[4])
                    assert_same_infos(step_infos, infos[-1])
                rollout = envs.rollout_view()
                assert set(rollout.infos) == {*INFO_SPACE, *(f"_{key}" for key in INFO_SPACE)}
                for key in INFO_SPACE:
                    for time, info in enumerate(infos):
                        zeros = np.zeros(3, np.bool_)
                        assert_identical(rollout.infos[f"_{key}"][time], info.get(f"_{key}", zeros))
                        if key in info:
                            assert_identical(rollout.infos[key][time], info[key])
                        else:
                            assert not rollout.infos[key][time].any()
                infos = infos[-1:]
            step_infos = envs.step([1, 1, 1])[4]
            while "mask" not in step_infos:
                step_infos = envs.step([1, 1, 1])[4]
            assert any(np.shares_memory(row, step_infos["mask"]) for row in rollout.infos["mask"])
