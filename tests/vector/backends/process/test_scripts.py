"""Programs of every kind: what they define reaches workers, and what cannot start is named."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import struct
import sys
import threading
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crosses import ordinarily
from tests.envs import Unlike
from tests.envs.faulty import Unloadable
from tests.programs import environ, run_python
from vecspaces import Env, Space, spaces
from vecspaces.errors import CustomSpaceError
from vecspaces.layout import Variable, describe
from vecspaces.vector import AsyncVectorEnv

METHODS = [
    pytest.param(name, marks=[pytest.mark.full] if name == "forkserver" else [])
    for name in multiprocessing.get_all_start_methods()
]
FRESH = [method for method in METHODS if method.values[0] != "fork"]
SPAWN_OR_FULL = ordinarily(
    lambda method: method == "spawn", zip(multiprocessing.get_all_start_methods(), strict=True)
)
run = partial(run_python, code=None)


# ---------------------------------------------------------------------- processes that cannot start


UNGUARDED = """
from vecspaces.vector import AsyncVectorEnv
from tests.envs import ledgers

envs = AsyncVectorEnv(ledgers(2), num_workers=1, context="{method}")
print("made")
envs.close()
"""


@pytest.mark.parametrize("method", FRESH)
def test_a_script_without_a_guard_reads_what_to_do(method: str, tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED.format(method=method))
    done = run(script)
    assert (done.returncode, done.stdout) == (1, "")
    # The worker prints why it cannot start; the error of the caller, which comes last, has advice.
    before, _, last = done.stderr.rpartition("vecspaces.errors.WorkerDiedError: ")
    assert "RuntimeError: the script makes an AsyncVectorEnv while a new process" in before
    assert last.startswith("worker ") and "exited with code 1 during build" in last
    assert 'put what a script runs below `if __name__ == "__main__":`' in last


PRELOADS = """
import multiprocessing
from vecspaces.vector import AsyncVectorEnv
from tests.envs import ledgers

if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["breaks"])
    AsyncVectorEnv(ledgers(2), num_workers=1, context="forkserver")
"""


@pytest.mark.full
@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="no server")
def test_a_fork_server_that_cannot_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "breaks.py").write_text("raise LookupError('of the server')")
    script = tmp_path / "preloads.py"
    script.write_text(PRELOADS)
    done = run(script, env=environ(tmp_path))
    assert "LookupError: of the server" in done.stderr
    assert "RuntimeError: multiprocessing's fork server ended, as what it printed" in done.stderr


def test_a_factory_that_a_worker_cannot_import_raises_its_own_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("only_in_the_caller")
    exec("from tests.envs import Ledger\ndef make(): return Ledger()", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(ModuleNotFoundError, match="only_in_the_caller") as caught:
        AsyncVectorEnv([module.make] * 3, num_workers=1, context="spawn")
    assert "environments 0 to 2 (worker 0) failed in build" in str(caught.value.__cause__)


# ---------------------------------------------------------------------- what programs define

DEFINES = """
import sys
import gymnasium
import numpy as np
from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


class Note:
    def __init__(self, text):
        self.text = text
        self.read = lambda: text

    class Inner(Exception):
        pass


class Counter(Env):
    observation_space = spaces.Discrete(9)
    action_space = spaces.Discrete(2)
    note = None

    def reset(self, *, seed=None, options=None):
        note = (options or {}).get("note", self.note)
        assert note is None or type(note) is Note and isinstance(note, Note), type(note)
        return 3 if note is None else 4, {"note": Note("from the worker")}

    def step(self, action):
        return 1, 0.0, False, False, {}

    def fail(self):
        raise Note.Inner("of my own kind")


def shout(env, note):
    assert isinstance(note, Note)
    return Note(note.text.upper())


class Registered(gymnasium.Env, Counter):
    observation_space = gymnasium.spaces.Discrete(9)
    action_space = gymnasium.spaces.Discrete(2)
    reset = Counter.reset


gymnasium.register("Main-v0", entry_point="__main__:Registered")

if __name__ == "__main__":
    method = sys.argv[1]
    with AsyncVectorEnv([Counter] * 2, num_workers=1, context=method) as envs:
        infos = envs.reset()[1]
        assert all(type(note) is Note for note in infos["note"]), infos
        said = envs.call(shout, Note("a"))
        assert [type(note) for note in said] == [Note, Note], said
        assert [note.text for note in said] == ["A", "A"]
        assert envs.call(lambda env: Note("b").text) == ("b", "b")
        envs.set_attr("note", Note("c"))
        assert envs.reset()[0].tolist() == [4, 4]
        assert envs.reset(options={"note": Note("d")})[0].tolist() == [4, 4]
        assert envs.reset(options=[{"note": Note("d")}, None])[0].tolist() == [4, 4]

        class Later:
            text = "later"

        def later(env):
            return Later()

        globals().update(Later=Later, later=later)
        Later.__qualname__, later.__qualname__ = "Later", "later"
        assert [type(value) for value in envs.call(later)] == [Later, Later]

        def shout(env, note):
            return "redefined"

        globals()["shout"] = shout
        shout.__qualname__ = "shout"
        assert envs.call(shout, Note("a")) == ("redefined", "redefined")
        try:
            envs.call("fail")
        except Note.Inner as error:
            assert str(error) == "of my own kind"
        else:
            raise AssertionError("nothing was raised")
    if FILE:
        make = lambda: gymnasium.make("Main-v0", disable_env_checker=True)
        with AsyncVectorEnv([make] * 2, num_workers=1, context=method) as envs:
            assert [type(note) for note in envs.reset()[1]["note"]] == [Note, Note]
    print("done")
"""


@pytest.mark.parametrize(
    ("kind", "method"),
    ordinarily(
        lambda kind, method: (kind, method) == ("script", "spawn"),
        itertools.product(["script", "command line"], multiprocessing.get_all_start_methods()),
    ),
)
def test_what_a_program_defines_is_the_same_in_workers(
    kind: str, method: str, tmp_path: Path
) -> None:
    if kind == "script":
        script = tmp_path / "defines.py"
        script.write_text(DEFINES.replace("FILE", "True"))
        done = run(script, method)
    else:
        done = run("-c", DEFINES.replace("FILE", "False"), method)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


ON_STANDARD_INPUT = """
import logging
import os
from vecspaces.vector import AsyncVectorEnv
from tests.envs import Ledger

class Mine(Ledger):
    def who(self):
        return type(self).__name__

logging.disable()  # each restart is a line
options = dict(num_workers=1, context="{method}", on_worker_death="restart")
with AsyncVectorEnv([Mine] * 2, **options) as envs:
    assert envs.call("who") == ("Mine", "Mine")
    envs.processes[0].kill()
    envs.reset(seed=0)
    assert envs.call("who") == ("Mine", "Mine")
print(os.path.basename(__file__))
"""


@pytest.mark.parametrize(
    ("how", "method"),
    ordinarily(
        lambda how, method: (how, method) == ("stdin", "spawn"),
        itertools.product(["stdin", "deleted"], multiprocessing.get_all_start_methods()),
    ),
)
def test_a_program_without_a_file_needs_no_guard(how: str, method: str, tmp_path: Path) -> None:
    program = ON_STANDARD_INPUT.format(method=method)
    if how == "stdin":
        done = run("-", input=program)
    else:
        script = tmp_path / "deleted.py"
        script.write_text(f"import os\nos.unlink(__file__)\n{program}")
        done = run(script)
    said = {"stdin": "<stdin>\n", "deleted": "deleted.py\n"}[how]
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


# ---------------------------------------------------------------------- what is around it

SURROUNDINGS = """
import logging
import os
import sys
from tests.envs import Ledger
from vecspaces.vector import AsyncVectorEnv

NAMES = ("CHOSEN", "GONE", "OMPI_RANK", "OMP_NUM_THREADS")
SEEN = [*map(os.environ.get, NAMES)]


class Looking(Ledger):
    def look(self):
        seen = sys.modules["__mp_main__"].SEEN
        return [*map(os.environ.get, NAMES)], seen, sys.path[-1], os.getcwd()


if __name__ == "__main__":
    method, folder = sys.argv[1:]
    logging.disable()  # each restart is a line
    os.environ.pop("OMP_NUM_THREADS", None)
    os.environ.update(CHOSEN="old", GONE="1", OMPI_RANK="1", PYTHONUNBUFFERED="1")
    options = dict(num_workers=1, context=method, on_worker_death="restart")
    if method == "forkserver":
        AsyncVectorEnv([Looking], **options).close()  # starts a server, which knows these
    os.environ["CHOSEN"] = "new"
    del os.environ["GONE"]
    sys.path.append("/extra")
    os.chdir(folder)
    seen = expected = ["new", None, None, "1"]
    if method == "fork":
        seen = SEEN
    elif method == "forkserver" and sys.version_info >= (3, 14):
        seen = ["old", "1", None, "1"]  # the server has imported this module, once
    with AsyncVectorEnv([Looking] * 2, **options) as envs:
        both = ((expected, seen, "/extra", folder),) * 2
        assert envs.call("look") == both, envs.call("look")
        os.environ.update(CHOSEN="later", GONE="back")
        sys.path.pop()
        os.chdir("/")
        envs.processes[0].kill()
        envs.reset(seed=0)
        assert envs.call("look") == both, envs.call("look")
        assert os.environ["CHOSEN"] == "later" and os.environ["OMPI_RANK"] == "1"
    print("done")
"""


@pytest.mark.parametrize("method", SPAWN_OR_FULL)
def test_workers_have_the_surroundings_of_when_the_vector_env_was_made(
    method: str, tmp_path: Path
) -> None:
    """Variables also while they import the main module; all of them after a restart too."""
    script = tmp_path / "surroundings.py"
    script.write_text(SURROUNDINGS)
    done = run(script, method, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# ---------------------------------------------------------------------- how it stores values


class Pair:
    """Two numbers, and what pickle alone cannot send."""

    def __init__(self, first: int, second: int) -> None:
        self.numbers = first, second
        self.sum = lambda: first + second


class Pairs(Space[Any]):
    """A space of pairs."""

    def contains(self, x: Any) -> bool:
        return type(x) is Pair

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pairs)


class Doubling(Env[Any, Any]):
    """Doubles the pair of each action, and dies at 13."""

    observation_space = spaces.Dict(pair=Pairs())
    action_space = Pairs()

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return {"pair": Pair(0, 0)}, {}

    def step(self, action: Any) -> Any:
        first, second = action.numbers
        if first == 13:
            os._exit(13)
        pair = Pair(2 * first, 2 * second)
        return {"pair": pair}, 0.0, False, False, {}


@pytest.fixture
def storage(registered: bool) -> Iterator[None]:
    """Register how pairs are stored, in this process alone, or leave it to pickle."""
    if registered:
        node = Variable(
            lambda pair: struct.pack("ii", *pair.numbers),
            lambda data: Pair(*struct.unpack("ii", data)),
            most=8,
        )
        describe.register(Pairs, lambda space: node)
    yield
    describe.register(Pairs, describe.dispatch(Space))


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize(
    ("registered", "shares", "method"),
    ordinarily(
        lambda *cell: cell in ((True, True, "spawn"), (True, False, "fork"), (False, True, "fork")),
        itertools.product([True, False], [True, False], multiprocessing.get_all_start_methods()),
    ),
)
def test_how_a_program_stores_values_reaches_every_worker(shares: bool, method: str) -> None:
    """Also those that replace others."""
    options: dict[str, Any] = {"on_worker_death": "restart", "shared_memory": shares}
    with AsyncVectorEnv([Doubling] * 2, num_workers=1, context=method, **options) as envs:
        envs.reset(seed=0)
        for lost in (False, True):
            if lost:
                infos = envs.step([Pair(13, 0), Pair(1, -1)])[4]
                assert infos["worker_restarted"].all()
                envs.step([Pair(2, -2)] * 2)
            batch = envs.step([Pair(number, -number) for number in (3, 4)])[0]
            assert [pair.numbers for pair in batch["pair"]] == [(6, -6), (8, -8)]


class Stored(Space[Any]):
    """Stored as what `describe` was registered with says."""

    def __repr__(self) -> str:
        return "Stored()"


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return how an environment of such a space is made; its node's functions are the caller's."""

    def make(decode: Any) -> Any:
        node = Variable(str.encode, decode)
        describe.register(Stored, lambda space: node)
        return partial(Unlike, spaces.Dict(x=Stored()), {"x": 1})

    yield make
    describe.register(Stored, describe.dispatch(Space))


@pytest.mark.parametrize("method", METHODS)
def test_a_layout_that_a_worker_cannot_take_over_names_the_space(
    method: str, stored: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    module = types.ModuleType("only_in_the_caller")
    exec("def decode(block): return 1", vars(module))
    if method == "fork":  # which imports nothing
        vars(module)["decode"] = Unloadable()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    env_fn = stored(module.decode)
    with pytest.raises(
        CustomSpaceError, match=r"Dict\('x': Stored\(\)\): how .* arrived"
    ) as caught:
        AsyncVectorEnv([env_fn] * 3, num_workers=1, context=method)
    assert "environments 0 to 2 (worker 0) failed in build" in str(caught.value.__cause__)
    assert capfd.readouterr().err == ""


def test_a_layout_that_cannot_be_sent_names_the_space(stored: Any) -> None:
    with pytest.raises(CustomSpaceError, match=r"Dict\('x': Stored\(\)\): how .* cannot be sent"):
        AsyncVectorEnv([stored(partial(int, threading.Lock()))], num_workers=1)
