"""The code of a Ray actor: a group of environments with its own rows."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle

from vecspaces.interop import require_extra
from vecspaces.vector.backends.backend import pack_part, pack_result
from vecspaces.vector.backends.ray.cluster import name_node
from vecspaces.vector.backends.worker_setup import WorkerSetup
from vecspaces.vector.exchange.buffers import Buffers, index_of
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.messages import Op, Starts, Written
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.groups import Groups

#: The kind of a reply; its payload, pickled, so that the sender of a payload that cannot be
#: unpickled is known; and the written rows, as arrays that Ray sends without pickling.
Answer = tuple[Op, "bytes | None", Any]


class GroupActor:
    """A worker of a cluster: executes one command after the other."""

    def __init__(self) -> None:
        self._group: Group | Groups | None = None

    def here(self) -> Answer:
        """Return the node of the actor; the first call of every actor."""
        return Op.DONE, None, name_node(require_extra("ray", "ray"))

    def build(self, packed: bytes, factories: range) -> Answer:
        """Build the environments, and describe them."""
        try:
            setup: WorkerSetup = pickle.loads(packed)
            self._index, self._group = setup.index, setup.build()
            return Op.BUILT, cloudpickle.dumps(self._group.describe()), None
        except BaseException as error:
            failure = Failure.of(error, factories, "build")
        return Op.FAILED, cloudpickle.dumps(failure), None

    def bind(self, packed_plan: bytes, low: int, restart: Starts | None) -> Answer:
        """Make the rows."""
        group = self._group
        if group is not None:
            try:
                self._buffers = Buffers(pickle.loads(packed_plan))
                group.bind(self._buffers, low, self._index, restart)
            except BaseException as error:
                failure = Failure.of(error, group.rows, "build")
                return Op.FAILED, cloudpickle.dumps(failure), None
        return Op.BOUND, None, None

    def execute(self, number: int, slot: int, packed: bytes) -> Answer:
        """Execute a command; return its reply and the written rows."""
        op = Op(number)
        group = self._group
        if group is None:  # `build` failed, and its reply told the caller
            return Op.DONE, None, None
        rows = group.rows
        try:
            payload, actions = pickle.loads(packed)
            if actions is not None:
                self._buffers.actions.load(index_of(group.rows), actions)
            result = group.execute(op, slot, payload)
            dumps = cloudpickle.dumps
            if not isinstance(result, Written):
                packed = pack_result(result, result, dumps, group, op) if result else b""
                return Op.DONE, packed or None, None
            exported = self._buffers.export(slot, result.rows, op)
            if op is Op.STEP_ROWS:
                # As a worker process sends it, without spilled values and with the rows beside it.
                return Op.PART, pack_part(result, (None, None), dumps, dumps), exported
            if not result.infos:
                return Op.DONE, None, exported
            written = result.infos, None, None
            return Op.DONE, pack_result(written, result, dumps, group, op), exported
        except BaseException as error:
            failure = Failure.of(error, rows, op.verb)
        return Op.FAILED, cloudpickle.dumps(failure), None

    def close(self) -> Answer:
        """Close the environments."""
        failure = None if self._group is None else self._group.close()
        return Op.DONE, cloudpickle.dumps(failure), None
