"""Third-party spaces are converted, and registered ids are sent to workers."""

from __future__ import annotations

import importlib
import re
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.crosses import diagonal
from vecspaces import make_vec, spaces
from vecspaces.errors import CustomSpaceError, VecspacesError
from vecspaces.interop import (
    _OLDEST,
    foreign_values,
    is_foreign_vector_env,
    native_space,
    pack_registrations,
    require_extra,
    unpack_registrations,
)


def test_a_space_of_ours_comes_through_as_it_is_and_gymnasiums_becomes_ours() -> None:
    for space in (spaces.Discrete(3), type("Mine", (spaces.Space,), {})()):
        assert native_space(space) is space
    assert native_space(gymnasium.spaces.Box(0, 1, (2,))) == spaces.Box(0, 1, (2,))


def test_a_space_derived_from_gymnasiums_is_carried() -> None:
    class Quaternion(gymnasium.Space[Any]):
        pass

    space = native_space(Quaternion())
    assert isinstance(space, spaces.Space)
    assert "Quaternion" in repr(space)


def test_foreign_values_ignores_whether_a_space_is_true() -> None:
    nvec = np.array([[2, 3]])  # its `len` warns, and that of a Dict is 0
    for space in (gymnasium.spaces.MultiDiscrete(nvec), gymnasium.spaces.Dict()):
        assert foreign_values(space, native_space(space)) is None


@pytest.mark.parametrize("wrong", [None, 3, "Discrete(2)", spaces.Discrete])
def test_what_is_no_space_is_refused(wrong: Any) -> None:
    with pytest.raises(CustomSpaceError, match="expected a space of vecspaces or of gymnasium"):
        native_space(wrong)


def test_gymnasiums_vector_envs_are_known() -> None:
    with closing(gymnasium.make_vec("CartPole-v1", 2, "sync")) as envs:
        assert is_foreign_vector_env(envs)
    assert not is_foreign_vector_env(gymnasium.make("CartPole-v1"))
    assert not is_foreign_vector_env(3)


def test_asking_for_a_vector_env_or_for_ids_does_not_import_gymnasium(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "gymnasium"]:
        monkeypatch.delitem(sys.modules, name)
    assert not is_foreign_vector_env(3) and pack_registrations() == b""
    assert "gymnasium" not in sys.modules


class Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("holds a socket")

    def __call__(self) -> None: ...


def test_an_id_that_cannot_be_pickled_says_so_when_it_is_made(
    registrations: dict[str, Any],
) -> None:
    gymnasium.register("Socket-v0", Unpicklable())
    gymnasium.register("Other-v0", "nowhere:Other")
    data = pack_registrations()
    del registrations["Socket-v0"], registrations["Other-v0"]
    unpack_registrations(data)
    assert "Other-v0" in registrations
    with pytest.raises(VecspacesError, match=r"Socket-v0.*RuntimeError: holds a socket"):
        gymnasium.make("Socket-v0")


def test_an_id_that_cannot_be_unpickled_says_so_when_it_is_made(
    registrations: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("only_here")
    exec("def build(): ...", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    gymnasium.register("OnlyHere-v0", module.build)
    data = pack_registrations()
    del registrations["OnlyHere-v0"]
    monkeypatch.delitem(sys.modules, "only_here")
    unpack_registrations(data)
    with pytest.raises(VecspacesError, match=r"OnlyHere-v0.*only_here"):
        gymnasium.make("OnlyHere-v0")


@diagonal(
    version=["0.29.1", "1.0.0a2", None],
    use={
        "an id": lambda: make_vec("CartPole-v1", 2, backend="sync"),
        # A class that was not converted before, whose adapter would be known.
        "a space": lambda: native_space(type("Own", (gymnasium.spaces.Discrete,), {})(3)),
        "the adapter": lambda: importlib.import_module("vecspaces.adapters.gymnasium"),
    },
)
def test_an_old_gymnasium_is_named_with_its_version(
    use: Any, version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where it was never imported.
    monkeypatch.delitem(sys.modules, "vecspaces.adapters.gymnasium.spaces")
    monkeypatch.delitem(sys.modules, "vecspaces.adapters.gymnasium")
    monkeypatch.setattr(gymnasium, "__version__", version)
    with pytest.raises(ImportError) as caught:
        use()
    text = (
        rf"needs gymnasium 1\.1 or newer, found version {version or 'unknown'} in .*gymnasium: pip"
    )
    assert re.search(text, str(caught.value))


def test_the_oldest_gymnasium_is_that_of_the_project() -> None:
    oldest = ".".join(map(str, _OLDEST["gymnasium"]))
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'gymnasium = ["gymnasium[classic-control]>={oldest}"]' in text


def test_a_library_that_lacks_a_part_of_its_own_tells_its_own_story(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_library.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_dependency'$"):
        require_extra("broken_library", "x")
