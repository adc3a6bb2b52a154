"""The time of moving values into batches and between processes, next to Gymnasium, in one run.

    python -m benchmarks.transport

A row is one call for each of 64 environments, or one call for their batch; a time is the median of
its rounds, in microseconds, and the two take turns, so that a busy machine slows both. The ratio
is the speed-up of vecspaces. Graphs go from one process to another: each pickled and
sent over a multiprocessing pipe, or through shared memory, with one message over the pipe when all
are written; a pipe alone, of one graph, is mostly the time that it takes to wake the other process.
The last rows compare the bound form that workers use with NumPy's own `a[i] = b`, for each leaf.
"""

from __future__ import annotations

import multiprocessing
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import gymnasium.spaces
import gymnasium.vector.utils
import numpy as np
import typer

import vecspaces.spaces
import vecspaces.vector.utils
from benchmarks.common import Call, make_table, show, time_in_turns
from vecspaces.layout import Layout
from vecspaces.memory import Arena

N = 64
LIBRARIES = (
    (vecspaces.spaces, vecspaces.vector.utils),
    (gymnasium.spaces, gymnasium.vector.utils),
)
Row = tuple[str, str, float, float, float | None]


def robot(lib: Any) -> Any:
    """A camera, an arm, a mode and buttons."""
    arm = lib.Dict(position=lib.Box(-1, 1, (7,)), velocity=lib.Box(-1, 1, (7,)))
    return lib.Dict(
        camera=lib.Box(0, 255, (64, 64, 3), np.uint8),
        arm=arm,
        mode=lib.Discrete(5),
        buttons=lib.MultiBinary(8),
        seed=0,
    )


SPACES: dict[str, Callable[[Any], Any]] = {
    "Box(4,)": lambda lib: lib.Box(-1, 1, (4,), seed=0),
    "Discrete(5)": lambda lib: lib.Discrete(5, seed=0),
    "Text(10)": lambda lib: lib.Text(10, seed=0),
    "robot Dict": robot,
}


def writing(lib: Any, utils: Any, make: Callable[[Any], Any]) -> Call:
    space = make(lib)
    memory = utils.create_shared_memory(space, N)
    values = [space.sample() for _ in range(N)]

    def write() -> None:
        for i, value in enumerate(values):
            utils.write_to_shared_memory(space, i, value, memory)

    return write


def reading(lib: Any, utils: Any, make: Callable[[Any], Any]) -> Call:
    space = make(lib)
    memory = utils.create_shared_memory(space, N)
    for i in range(N):
        utils.write_to_shared_memory(space, i, space.sample(), memory)
    return lambda: utils.read_from_shared_memory(space, memory, N)


def concatenating(lib: Any, utils: Any, make: Callable[[Any], Any]) -> Call:
    space = make(lib)
    items = [space.sample() for _ in range(N)]
    out = utils.create_empty_array(space, N)
    return lambda: utils.concatenate(space, items, out)


# The operation, the space, and the targeted speed-up.
CASES: list[tuple[str, Callable[..., Call], str, float | None]] = [
    ("write_to_shared_memory", writing, "Box(4,)", 4),
    ("write_to_shared_memory", writing, "robot Dict", 4),
    ("write_to_shared_memory", writing, "Discrete(5)", None),
    ("write_to_shared_memory", writing, "Text(10)", None),
    ("read_from_shared_memory", reading, "Text(10)", 5),
    ("read_from_shared_memory", reading, "robot Dict", None),
    ("concatenate", concatenating, "robot Dict", 2),
    ("concatenate", concatenating, "Discrete(5)", 4),
    ("concatenate", concatenating, "Box(4,)", None),
]


def compare_libraries(rounds: int) -> Iterator[Row]:
    for name, make_call, space, goal in CASES:
        calls = tuple(make_call(lib, utils, SPACES[space]) for lib, utils in LIBRARIES)
        yield (name, space, *time_in_turns(calls, rounds), goal)


def _send_graphs(space: Any, memory: Any, graphs: list[Any], pipe: Connection) -> None:
    with pipe:
        for through in iter(pipe.recv_bytes, b""):
            if through == b"pipe":
                for graph in graphs:
                    pipe.send(graph)
                continue
            for i, graph in enumerate(graphs):
                vecspaces.vector.utils.write_to_shared_memory(space, i, graph, memory)
            pipe.send_bytes(b"!")


@contextmanager
def graphs_from_another_process(n: int) -> Iterator[tuple[Call, Call]]:
    """Yield two calls that fetch n graphs: through shared memory, and over the pipe.

    A graph has 100 nodes of 16 float32 and 300 edges.
    """
    lib = vecspaces.spaces
    space = lib.Graph(lib.Box(-1, 1, (16,)), lib.Discrete(5), seed=0)
    graphs = [space.sample(num_nodes=100, num_edges=300) for _ in range(n)]
    memory = vecspaces.vector.utils.create_shared_memory(space, n)
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_send_graphs, args=(space, memory, graphs, its))
    process.start()
    its.close()

    def through_memory() -> Any:
        ours.send_bytes(b"memory")
        ours.recv_bytes()
        return vecspaces.vector.utils.read_from_shared_memory(space, memory, n)

    def over_the_pipe() -> Any:
        ours.send_bytes(b"pipe")
        return [ours.recv() for _ in range(n)]

    with ours:
        yield through_memory, over_the_pipe
        ours.send_bytes(b"")
    process.join()


def compare_with_pipe(rounds: int) -> Iterator[Row]:
    for n, goal in ((N, 3), (1, None)):
        with graphs_from_another_process(n) as calls:
            times = time_in_turns(calls, rounds)
        yield (f"{n} of it between processes; pipe", "Graph", *times, goal)


def compare_with_assignment(rounds: int) -> Iterator[Row]:
    """Time the bound form against assignments of the same arrays, for one leaf."""
    box = vecspaces.spaces.Box(-1, 1, (7,), seed=0)
    for leaves in (1, 8):
        space: Any = box
        if leaves > 1:
            space = vecspaces.spaces.Dict({str(i): box for i in range(leaves)})
        layout = Layout.compile(space, N)
        (rows,) = layout.bind(Arena(layout.size))
        write, value = rows.write, space.sample()
        array, part = np.zeros((N, 7), np.float32), box.sample()

        def bound(write: Any = write, value: Any = value) -> None:
            for i in range(N):
                write(i, value)

        def plain(array: Any = array, part: Any = part) -> None:
            for i in range(N):
                array[i] = part

        ours, numpys = time_in_turns((bound, plain), rounds)
        name = f"{leaves} x Box(7,)"
        yield "rows.write, one leaf; NumPy", name, ours / N / leaves, numpys / N, 0.5


def main(rounds: int = 31) -> None:
    """Time everything, in so many rounds."""
    columns = ("operation", "space", "vecspaces, µs", "other, µs", "ratio", "goal")
    table = make_table(f"n = {N}, {platform.machine()}", *columns, left=2)
    for measure in (compare_libraries, compare_with_pipe, compare_with_assignment):
        for operation, space, *times, goal in measure(rounds):
            ratio = times[1] / times[0]
            style = "" if goal is None else "green" if ratio >= goal else "red"
            shown = "" if goal is None else f"{goal:g}x"
            figures = (f"{times[0]:.2f}", f"{times[1]:.2f}", f"{ratio:.2f}x")
            table.add_row(operation, space, *figures, shown, style=style)
        table.add_section()
    show(table)


if __name__ == "__main__":
    typer.run(main)
