"""Starting processes: functions that can be pickled, and an environment without MPI variables."""

from __future__ import annotations

import os
import pickle

import pytest

from vecspaces.vector.utils import CloudpickleWrapper, clear_mpi_env_vars


def test_cloudpickle_wrapper_takes_a_closure() -> None:
    offset = 40
    wrapped: CloudpickleWrapper[int] = CloudpickleWrapper(lambda: offset + 2)
    assert wrapped() == 42
    assert pickle.loads(pickle.dumps(wrapped))() == 42


def test_clear_mpi_env_vars_hides_them_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_RANK", "PMI_SIZE", "OTHER_RANK"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(RuntimeError, match="inside"), clear_mpi_env_vars():
        assert "OMPI_RANK" not in os.environ
        assert "PMI_SIZE" not in os.environ
        assert os.environ["OTHER_RANK"] == "1"
        raise RuntimeError("inside")
    assert os.environ["OMPI_RANK"] == os.environ["PMI_SIZE"] == "1"
