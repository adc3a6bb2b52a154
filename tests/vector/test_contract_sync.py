"""SyncVectorEnv keeps the contract."""

from __future__ import annotations

from typing import Any

from vecspaces.testing.contract import RefusalContract, VectorEnvContract
from vecspaces.vector import SyncVectorEnv


class TestSync(VectorEnvContract, RefusalContract):
    def make(self, env_fns: Any, **arguments: Any) -> Any:
        return SyncVectorEnv(env_fns, **arguments)
