"""The backend of a Ray cluster: each actor holds a group, and sends its rows as a few large arrays.

::

    caller                                     actor (one of many, on any node)
    RayBackend ── execute.remote(...) ───────▶ GroupActor ── EnvGroup
        │       ◀── a few arrays per command ──    │
     Storage                                    Storage (its own; memory is not shared)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vecspaces.errors import StepTimeoutError
from vecspaces.foreign import require_extra
from vecspaces.vector.backends.backend import Planner, Reply, execute, written_rows
from vecspaces.vector.backends.birth import WorkerSetup, assign_rows
from vecspaces.vector.env_group import EnvGroup
from vecspaces.vector.failures import EnvironmentFailed, Failure
from vecspaces.vector.faults import Death, died
from vecspaces.vector.members import GroupDescription
from vecspaces.vector.protocol import Op
from vecspaces.vector.storage import Storage, StoragePlan

PLACEMENTS = {"spread": "SPREAD", "pack": "DEFAULT"}

# What `ray.remote` takes by name; other resources are the user's own.
_OPTIONS = ("num_cpus", "num_gpus", "memory")


class RayConnection:
    """This process's way to a cluster; a Ray that we started ends with the last of its users.

    Args:
        address: The cluster; None: the one that this process is connected to, or a local one.
    """

    _users = 0

    def __init__(self, address: str | None) -> None:
        self.ray = require_extra("ray", "ray")
        # A Ray that was there before us is not ours to end.
        self._ours = bool(RayConnection._users) or not self.ray.is_initialized()
        if not self.ray.is_initialized():
            self.ray.init(
                **({"include_dashboard": False} if address is None else {"address": address})
            )
        RayConnection._users += self._ours

    def cpus(self) -> int:
        """The CPUs of the whole cluster."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """Leave the cluster; a second call does nothing."""
        if self._ours:
            self._ours = False
            RayConnection._users -= 1
            if not RayConnection._users:
                self.ray.shutdown()


class GroupActor:
    """What runs in an actor: a group, and rows of its own.

    Args:
        setup: What to build.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._group: EnvGroup | None = None

    def build(self) -> tuple[Op, Any, str]:
        """Build the environments; tell of them, and on which node."""
        ray = require_extra("ray", "ray")
        node: str = ray.util.get_node_ip_address()
        self._setup.settle()
        try:
            self._group = EnvGroup(
                self._setup.env_fns(), self._setup.autoreset_mode, self._setup.first
            )
            return Op.BUILT, self._group.describe(), node
        except EnvironmentFailed as error:
            return Op.FAILED, error.failure, node

    def bind(self, plan: StoragePlan, low: int, lost: Mapping[int, int | None] | None) -> None:
        """Make the rows."""
        if self._group is not None:
            self._storage = Storage(plan)
            self._group.bind(self._storage, low, self._setup.index, lost)

    def execute(self, op: Op, slot: int, payload: Any, actions: Any) -> tuple[Op, Any, Any]:
        """Do what a command asks for; give the answer and what it wrote."""
        group = self._group
        assert group is not None
        try:
            if actions is not None:
                self._storage.actions.load(group.low, group.high, actions)
            result = execute(group, op, slot, payload)
        except EnvironmentFailed as error:
            return Op.FAILED, error.failure, None
        except BaseException as error:
            everyone = range(group.low, group.high)
            return Op.FAILED, Failure.of(error, everyone, op.verb), None
        written = written_rows(group, op, payload)
        if written is None:
            return Op.DONE, result, None
        exported = self._storage.export(slot, written)
        if op is Op.STEP_ROWS:
            return Op.PART, (payload, result), exported
        return Op.DONE, result, exported

    def close(self) -> Failure | None:
        """Close the environments."""
        return None if self._group is None else self._group.close()


class RayBackend:
    """Runs slices of the environments in actors.

    Args:
        setups: What each actor builds.
        connection: The way to the cluster; closed with the backend.
        resources: What an actor needs, as `ray.remote` takes it: `num_cpus`, `num_gpus`, names.
        placement: `"spread"` over the nodes, or `"pack"`.
        start_timeout: The longest wait for an actor that replaces another, in seconds.
    """

    slices: list[range]
    storage: Storage

    def __init__(
        self,
        setups: Sequence[WorkerSetup],
        connection: RayConnection,
        resources: Mapping[str, Any],
        placement: str,
        start_timeout: float,
    ) -> None:
        self._connection = connection
        self._ray = connection.ray
        self._setups = list(setups)
        self._resources = dict(resources)
        self._start_timeout = start_timeout
        known = {key: value for key, value in self._resources.items() if key in _OPTIONS}
        custom = {key: value for key, value in self._resources.items() if key not in _OPTIONS}
        self._class = self._ray.remote(GroupActor).options(
            scheduling_strategy=PLACEMENTS[placement], resources=custom or None, **known
        )
        self._actors: list[Any] = []
        self._nodes: list[str] = []
        # What each answer on its way will be an answer to: worker, sequence number, slot.
        self._expected: dict[Any, tuple[int, int, int]] = {}
        self._descriptions: list[GroupDescription] = []
        self._plan: StoragePlan | None = None

    def open(self, plan: Planner, timeout: float) -> None:
        """Start all actors at once, learn their spaces, and give them their rows."""
        try:
            for index in range(len(self._setups)):
                self._nodes.append("")
                self._actors.append(self._launch(index))
            self._await_built(time.monotonic() + timeout, timeout)
            self._plan = plan(self._descriptions)
            self.storage = Storage(self._plan)
            self.storage.progress[:] = -1
            self.slices = assign_rows(self._descriptions)
            for index in range(len(self._actors)):
                self._bind(index, None)
        except BaseException:
            self.close(0.0, terminate=True)
            raise

    def _launch(self, index: int) -> Any:
        actor = self._class.remote(self._setups[index])
        self._expected[actor.build.remote()] = index, 0, 0
        return actor

    def _bind(self, index: int, lost: Any) -> None:
        low = self.slices[index].start
        # The actor works in order, so nobody has to wait for this.
        self._actors[index].bind.remote(self._plan, low, lost)

    def _await_built(self, deadline: float, timeout: float) -> None:
        """Wait until every actor has built its environments."""
        described: dict[int, GroupDescription] = {}
        while len(described) < len(self._actors):
            replies = self.collect(max(0.0, deadline - time.monotonic()))
            if not replies and time.monotonic() >= deadline:
                self._raise_unplaced(set(range(len(self._actors))) - set(described), timeout)
            for worker, op, _, payload in replies:
                if op is Op.FAILED:
                    payload.throw()
                elif op is Op.DIED:
                    setup = self._setups[worker]
                    raise died(worker, setup.factories, "build", payload, -1, "see Ray's logs")
                else:
                    described[worker] = payload
        self._descriptions = [described[index] for index in range(len(self._actors))]

    def _raise_unplaced(self, late: set[int], timeout: float) -> None:
        """Say what was asked of the cluster, and what it has."""
        ids = [number for index in sorted(late) for number in self._setups[index].factories]
        there, free = self._ray.cluster_resources(), self._ray.available_resources()
        lines = []
        for key, amount in self._resources.items():
            name = {"num_cpus": "CPU", "num_gpus": "GPU"}.get(key, key)
            lines.append(
                f"{name}: {len(self._actors)} x {amount:g} asked for, "
                f"{there.get(name, 0):g} there, {free.get(name, 0):g} free"
            )
        raise StepTimeoutError(
            f"{len(late)} of {len(self._actors)} actors had not built their environments within "
            f"start_timeout ({timeout:g} s); {'; '.join(lines)}: use fewer workers, ask less in "
            "resources_per_worker, or add nodes",
            ids,
        )

    def submit(self, worker: int, op: Op, slot: int, seq: int, payload: Any = None) -> None:
        """Ask an actor for something."""
        if op is Op.BUILD:
            self._replace(worker, payload)
            return
        actions = None
        if op in (Op.STEP, Op.STEP_ROWS):
            rows = self.slices[worker]
            actions = self.storage.actions.export(rows.start, rows.stop)
        answer = self._actors[worker].execute.remote(op, slot, payload, actions)
        self._expected[answer] = worker, seq, slot

    def _replace(self, worker: int, lost: Any) -> None:
        """Put a new actor in the place of one that is dead, or too slow."""
        self._ray.kill(self._actors[worker])
        self._expected = {
            answer: what for answer, what in self._expected.items() if what[0] != worker
        }
        self._setups[worker] = self._setups[worker].reborn()
        self._actors[worker] = self._launch(worker)
        self._bind(worker, lost)

    def collect(self, timeout: float | None) -> list[Reply]:
        """Wait for answers and deaths."""
        waiting = list(self._expected)
        if not waiting:
            time.sleep(min(timeout or 0.0, 0.01))
            return []
        ready, rest = self._ray.wait(waiting, num_returns=1, timeout=timeout)
        if ready and rest:
            more, _ = self._ray.wait(rest, num_returns=len(rest), timeout=0)
            ready += more
        return [reply for answer in ready for reply in self._understand(answer)]

    def _understand(self, answer: Any) -> list[Reply]:
        """Take in an answer and what came with it."""
        if answer not in self._expected:
            return []  # its actor was found dead a moment ago
        worker, seq, slot = self._expected.pop(answer)
        try:
            op, payload, more = self._ray.get(answer)
        except self._ray.exceptions.RayActorError:
            self._expected = {
                other: what for other, what in self._expected.items() if what[0] != worker
            }
            return [Reply(worker, Op.DIED, 0, Death(None, self._nodes[worker]))]
        except Exception as error:  # an answer that cannot be pickled or unpickled
            rows = self.slices[worker] if self._descriptions else self._setups[worker].factories
            failure = Failure.of(error, rows, "call", worker)
            return [Reply(worker, Op.FAILED, seq, failure)]
        if seq == 0 and op in (Op.BUILT, Op.FAILED):
            self._nodes[worker] = more
        elif more is not None:
            self.storage.load(slot, more)
        if op is Op.FAILED:
            payload = replace(payload, worker=worker)
        return [Reply(worker, op, seq, payload)]

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """Ask every actor to close its environments, then end it; always ends."""
        wrong: list[Reply] = []
        asked: dict[Any, int] = {}
        if not terminate:
            asked = {actor.close.remote(): index for index, actor in enumerate(self._actors)}
        if asked:
            done, late = self._ray.wait(list(asked), num_returns=len(asked), timeout=timeout)
            wrong.extend(Reply(asked[answer], Op.CLOSE, 0, None) for answer in late)
            for answer in done:
                wrong.extend(self._closed(asked[answer], answer))
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        self._expected = {}
        self._connection.close()
        return wrong

    def _closed(self, worker: int, answer: Any) -> list[Reply]:
        try:
            failure = self._ray.get(answer)
        except self._ray.exceptions.RayActorError:
            return [Reply(worker, Op.DIED, 0, Death(None, self._nodes[worker]))]
        return [] if failure is None else [Reply(worker, Op.FAILED, 0, failure)]
