"""The example in CleanRL's style trains the same network on Gymnasium's vector envs and on ours."""

from __future__ import annotations

from types import ModuleType

import gymnasium
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

EXAMPLE = "cleanrl_style_ppo"
BRIEFLY = ["--num-envs", "4", "--num-steps", "64", "--total-timesteps", "1024"]


def test_one_import_changes_no_weight(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modes = [["--vectorization-mode", mode] for mode in ("sync", "async")]
    ours = [example.train(example.parse(BRIEFLY + mode)) for mode in modes]
    assert capsys.readouterr().out.count("mean return") == 8
    monkeypatch.setattr(example, "make_vec", gymnasium.make_vec)
    mean, agent = example.train(example.parse(BRIEFLY))
    assert mean > 0
    for our_mean, our_agent in ours:
        assert our_mean == mean
        for name, weights in agent.state_dict().items():
            assert torch.equal(our_agent.state_dict()[name], weights), name
