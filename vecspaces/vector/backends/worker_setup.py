"""The environments of each worker, and its first actions: variables, threads, seeds."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import itertools
import pickle
import random
import sys
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, TypeVar

import numpy as np

from vecspaces.cores import count_usable_cores
from vecspaces.interop import pack_registrations, unpack_registrations
from vecspaces.pickling import ValuePickler, unpicklable
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.process.startup import Surroundings
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.group.building import GroupDescription
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.groups import Groups, build_group

T = TypeVar("T")


#: What `WorkerSetup.build` notes during `worker_init_fn`; for factories it notes their numbers.
INIT_FN = -2


class Late(Generic[T]):
    """A value that is pickled by value, and unpickled when it is called; its name is for errors.

    It may contain what multiprocessing pickles while it starts a process.
    """

    def __init__(self, name: str, value: T) -> None:
        self._name, self._value = name, value

    def __call__(self) -> T:
        """Return the value."""
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return partial, (pickle.loads, _dumps(self._value))
        except Exception as error:
            advice = "make it inside of the function, or make the vector env with context='fork'"
            raise unpicklable(self._value, self._name, _dumps, error, advice) from error


class _Pickler(ValuePickler):
    """Pickles by value, with what multiprocessing adds to its own pickler."""

    @property
    def dispatch_table(self) -> ChainMap[Any, Any]:
        """How values of a type are pickled."""
        additions = ForkingPickler(io.BytesIO()).dispatch_table
        return ChainMap(super().dispatch_table, additions)


def _dumps(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


@dataclass(frozen=True)
class WorkerSetup:
    """The arguments of a worker.

    Attributes:
        first: The index of its first factory; `count` is the number of its factories.
        env_fns: Returns the factories, by their indices.
        init_fn: Returns `worker_init_fn`.
        threads: The number of threads for native libraries; None: unchanged.
        entropy: The seed of the global generators: the caller's state, the index, the generation.
        registrations: The caller's Gymnasium ids.
        spins: Whether it polls before it sleeps: no process of this vector env needs its core.
        surroundings: The caller's environment variables and paths; None on another machine.
    """

    index: int
    first: int
    count: int
    env_fns: Callable[[], dict[int, Callable[[], Any]]]
    init_fn: Callable[[], Callable[[int], Any] | None]
    autoreset_mode: AutoresetMode
    threads: int | None
    entropy: tuple[int, ...]
    registrations: bytes
    spins: bool
    validate: bool
    surroundings: Surroundings | None = None

    @property
    def factories(self) -> range:
        """The indices of its factories."""
        return range(self.first, self.first + self.count)

    def respawned(self) -> WorkerSetup:
        """The setup of the worker that replaces this worker, with other random generators."""
        return replace(self, entropy=(*self.entropy[:-1], self.entropy[-1] + 1))

    def build(self, note_building: Callable[..., None] | None = None) -> Group | Groups:
        """Set up this process as a worker, and build its environments."""
        (self.surroundings or Surroundings.here(self.threads)).adopt()
        _limit_threads(self.threads)
        _seed_globals(self.entropy)
        try:
            init_fn = self.init_fn()
            if init_fn is not None:
                note = note_building or (lambda number: None)
                note(INIT_FN)
                init_fn(self.index)
                note(-1)
        except BaseException as error:
            raise Failure.of(error, self.factories, "worker_init_fn") from None
        unpack_registrations(self.registrations)
        return build_group(
            list(self.env_fns().values()),
            self.autoreset_mode,
            self.first,
            validate=self.validate,
            note_building=note_building,
        )


def cut(total: int, parts: int) -> list[range]:
    """Divide `total` items into contiguous parts whose sizes differ by at most 1.

    Example:
        >>> cut(7, 3)
        [range(0, 2), range(2, 4), range(4, 7)]
    """
    bounds = [total * part // parts for part in range(parts + 1)]
    return [range(low, high) for low, high in itertools.pairwise(bounds)]


def plan_workers(
    env_fns: Sequence[Callable[[], Any]],
    num_workers: int,
    autoreset_mode: AutoresetMode,
    threads: int | None,
    by_value: bool,
    validate: bool = False,
    init_fn: Callable[[int], Any] | None = None,
) -> list[WorkerSetup]:
    """Divide the factories into slices, one per worker; `by_value`: for a new interpreter."""
    # The state is only read, so that the caller's own random numbers do not change.
    state = hashlib.sha256(pickle.dumps((random.getstate(), np.random.get_state()))).digest()
    entropy = np.frombuffer(state, dtype=np.uint32).tolist()
    registrations = pack_registrations() if by_value else b""
    cores = count_usable_cores()
    return [
        WorkerSetup(
            index,
            part.start,
            len(part),
            Late("env_fns", {number: env_fns[number] for number in part}),
            Late("worker_init_fn", init_fn),
            autoreset_mode,
            threads,
            (*entropy, index, 0),
            registrations,
            # One core remains for the caller.
            num_workers <= cores and index + 1 < cores,
            validate,
        )
        for index, part in enumerate(cut(len(env_fns), num_workers))
    ]


def assign_rows(descriptions: Sequence[GroupDescription]) -> list[range]:
    """Return the rows of each worker, in order."""
    ends = list(itertools.accumulate(sum(description.counts) for description in descriptions))
    return [range(low, high) for low, high in itertools.pairwise([0, *ends])]


def _limit_threads(threads: int | None) -> None:
    """Prevent native libraries from starting threads; the variables are for later imports."""
    if threads is None:
        return
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    if importlib.util.find_spec("threadpoolctl") is not None:
        importlib.import_module("threadpoolctl").threadpool_limits(threads)


def _seed_globals(entropy: tuple[int, ...]) -> None:
    """Seed this worker's own global generators: forked ones would share the caller's stream."""
    sequence = np.random.SeedSequence(entropy)
    for_random, for_numpy, for_torch = sequence.spawn(3)
    random.seed(int.from_bytes(for_random.generate_state(8).tobytes(), "little"))
    np.random.seed(for_numpy.generate_state(8))
    torch = sys.modules.get("torch")  # it is not imported for this
    if torch is not None:
        torch.manual_seed(int(for_torch.generate_state(1)[0]))
