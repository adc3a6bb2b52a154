"""CarriedSpace: a space of another library that is derived from Gymnasium's `Space`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vecspaces.spaces import Space
from vecspaces.spaces.equivalence import is_space_dtype_shape_equiv, is_twin

if TYPE_CHECKING:
    from collections.abc import Iterable

    import gymnasium
    import numpy as np


class CarriedSpace(Space[Any]):
    """A Gymnasium space of a kind that vecspaces does not have; its methods call that space.

    Its values are pickled, and a batch is a tuple of them, as for any space of another library.

    Args:
        space: The space; it is not copied.

    Attributes:
        space: The argument.

    Example:
        >>> import gymnasium
        >>> class Mission(gymnasium.Space):
        ...     def sample(self, mask=None):
        ...         return "open the door"
        ...     def contains(self, x):
        ...         return isinstance(x, str)
        >>> space = CarriedSpace(Mission())
        >>> space.sample(), 3 in space
        ('open the door', False)
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__(space.shape, space.dtype)
        self.space = space

    @property
    def is_np_flattenable(self) -> bool:
        """Whether every value can be flattened into a vector of a fixed length."""
        return self.space.is_np_flattenable

    @property
    def np_random(self) -> np.random.Generator:
        """The generator of the carried space."""
        return self.space.np_random

    def seed(self, seed: Any = None) -> Any:
        """Seed the generator of the carried space."""
        return self.space.seed(seed)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> Any:
        """Draw a value; `mask` and `probability` are passed on unless they are None."""
        limits = {"mask": mask, "probability": probability}
        # Many spaces take no such arguments.
        return self.space.sample(**{key: x for key, x in limits.items() if x is not None})

    def contains(self, x: Any) -> bool:
        """Whether `x` is a value of the carried space; no, if that raises an `Exception`."""
        try:
            return bool(self.space.contains(x))
        except Exception:  # a third party's test may raise anything
            return False

    def to_jsonable(self, sample_n: Iterable[Any]) -> Any:
        """Convert values for `json.dumps`, as the carried space does."""
        return self.space.to_jsonable(list(sample_n))

    def from_jsonable(self, sample_n: Any) -> list[Any]:
        """Convert the result of `to_jsonable` back into values."""
        return list(self.space.from_jsonable(sample_n))

    def __repr__(self) -> str:
        return repr(self.space)

    def __eq__(self, other: object) -> bool:
        """Whether `other` carries an equal space; without `==`, one with equal attributes."""
        if not isinstance(other, CarriedSpace):
            return False
        mine, its = self.space, other.space
        if type(mine) is type(its) and type(mine).__eq__ is object.__eq__:
            return mine is its or is_twin(mine, its)
        return bool(mine == its)


@is_space_dtype_shape_equiv.register(CarriedSpace)
def _(space_1: CarriedSpace, space_2: Space[Any]) -> bool:
    return space_1 == space_2
