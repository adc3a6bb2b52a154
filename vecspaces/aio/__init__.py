"""Environments for coroutines: a pool of them in worker processes, whose calls are awaited."""

from vecspaces.aio.env import PoolEnv
from vecspaces.aio.pool import Pool, PoolStats

__all__ = ["Pool", "PoolEnv", "PoolStats"]


def __dir__() -> list[str]:
    return __all__
