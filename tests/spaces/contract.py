"""The contract of a space: the same tests for each kind, over examples that its class lists.

What holds for spaces of all kinds, nested at random, is a property in test_parity, test_json,
test_description, test_batching and test_flattening; messages, with the paths of nested values and
the differences of spaces, are in golden/messages.txt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium.error
import gymnasium.spaces
import numpy as np

from tests.compare import assert_identical
from vecspaces import errors, spaces
from vecspaces.spaces import difference

LIBRARIES = (spaces, gymnasium.spaces)


def outcome(do: Callable[[], Any]) -> Any:
    """Return what a call returns, or the type of what it raises: `Error` is alike in both."""
    try:
        return do()
    except Exception as error:
        if isinstance(error, (gymnasium.error.Error, errors.VecspacesError)):
            return "Error"
        return type(error)


def assert_same_samples(ours: Any, theirs: Any, n: int = 5, **limit: Any) -> None:
    """Assert that two spaces draw the same values, and that ours contains them."""
    for _ in range(n):
        value = ours.sample(**limit)
        assert_identical(value, theirs.sample(**limit))
        assert ours.contains(value), ours.explain(value)


class SpaceContract:
    """The contract; a subclass makes one space in either library, and lists examples.

    Attributes:
        seeds: Seeds that `make` takes, and that lead to the same samples in both libraries.
        wrong_seeds: Seeds that both refuse.
        limits: Masks, and by "probability" probabilities, that lead to the same samples.
        wrong_limits: Those that both refuse.
        refused: Calls of constructors that both refuse.
        inside: Values that `make` contains, in both libraries.
        outside: Values that it does not contain, in both libraries.
        outside_here: Values that it does not contain; Gymnasium does, or raises.
        equal: Spaces that equal `make`.
        unequal: What looks like `make` and is not equal. Spaces with one other field are in
            golden/messages.txt, "Comparison".
    """

    seeds: ClassVar[tuple[Any, ...]] = (7,)
    wrong_seeds: ClassVar[tuple[Any, ...]] = ("1", np.int64(1), [1, 2], b"x", object)
    limits: ClassVar[dict[str, tuple[Any, ...]]] = {}
    wrong_limits: ClassVar[dict[str, tuple[Any, ...]]] = {}
    refused: ClassVar[tuple[Callable[[Any], Any], ...]] = ()
    inside: ClassVar[tuple[Any, ...]] = ()
    outside: ClassVar[tuple[Any, ...]] = ()
    outside_here: ClassVar[tuple[Any, ...]] = ()
    equal: ClassVar[tuple[Any, ...]] = ()
    unequal: ClassVar[tuple[Any, ...]] = ()

    def make(self, lib: Any) -> Any:
        """Return the space of the examples, not seeded."""
        raise NotImplementedError

    def test_attributes_are_gymnasiums(self) -> None:
        ours, theirs = map(self.make, LIBRARIES)
        for name, value in vars(theirs).items():
            if not name.startswith("_"):
                assert repr(getattr(ours, name)) == repr(value)

    def test_the_same_seed_gives_gymnasiums_samples(self) -> None:
        for seed in self.seeds:
            ours, theirs = map(self.make, LIBRARIES)
            assert_identical(ours.seed(seed), theirs.seed(seed))
            assert_same_samples(ours, theirs, 10)

    def test_the_returned_seeds_repeat_the_samples(self) -> None:
        space = self.make(spaces)
        for seed in (None, 3):
            used = space.seed(seed)
            first = [space.sample() for _ in range(5)]
            assert_identical(space.seed(used), used)
            assert_identical([space.sample() for _ in range(5)], first)
        assert space.seed() != space.seed()

    def test_a_wrong_seed_is_gymnasiums_error(self) -> None:
        for seed in (-1, 1.0, *self.wrong_seeds):
            ours, theirs = (outcome(lambda: self.make(lib).seed(seed)) for lib in LIBRARIES)  # noqa: B023
            assert ours == theirs, seed
            assert ours == "Error" or issubclass(ours, Exception), seed

    def test_masks_and_probabilities_give_gymnasiums_samples(self) -> None:
        for word, limits in self.limits.items():
            for limit in limits:
                ours, theirs = map(self.make, LIBRARIES)
                ours.seed(5), theirs.seed(5)
                assert_same_samples(ours, theirs, **{word: limit})

    def test_a_wrong_limit_is_gymnasiums_error(self) -> None:
        for word, limits in self.wrong_limits.items():
            for limit in limits:
                ours, theirs = (
                    outcome(lambda: self.make(lib).sample(**{word: limit}))  # noqa: B023
                    for lib in LIBRARIES
                )
                assert ours == theirs, (word, limit)
                assert ours == "Error" or issubclass(ours, Exception), (word, limit)

    def test_a_wrong_argument_is_gymnasiums_error(self) -> None:
        for construct in self.refused:
            ours, theirs = (outcome(lambda: construct(lib)) for lib in LIBRARIES)  # noqa: B023
            assert isinstance(ours, type) and issubclass(ours, Exception), ours
            assert issubclass(ours, theirs), (ours, theirs)

    def test_values_are_contained_as_in_gymnasium(self) -> None:
        ours, theirs = map(self.make, LIBRARIES)
        for values, expected in ((self.inside, True), (self.outside, False)):
            for value in values:
                assert ours.contains(value) is expected, value
                assert (ours.explain(value) is None) is expected, value
                native = value
                if isinstance(value, spaces.GraphInstance):
                    native = gymnasium.spaces.GraphInstance(*value)
                assert outcome(lambda: bool(theirs.contains(native))) is expected, value  # noqa: B023
        for value in self.outside_here:
            assert ours.contains(value) is False, value
            assert ours.explain(value) is not None, value

    def test_equal_spaces_have_no_difference(self) -> None:
        space = self.make(spaces)
        for other in (self.make(spaces), *self.equal):
            other.seed(1)
            assert space == other and other == space
            assert difference(space, other) is None
        for other in (*self.unequal, 3):
            assert space != other and other != space
