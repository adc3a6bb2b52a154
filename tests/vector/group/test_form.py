"""The form of results: errors name the environment that returned another one."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.envs import Echo
from vecspaces import spaces
from vecspaces.errors import InvalidInfoError, InvalidObservationError, InvalidRewardError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.exchange.failures import Failure

MAKERS = [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)]


class Tensor:
    """Refuses to become an array or a number, as a torch tensor that requires grad does."""

    dtype = np.dtype(np.float32)
    error: BaseException = RuntimeError("detach it first")

    def __init__(self, *shape: int) -> None:
        self.shape, self.ndim = shape, len(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise self.error

    __array__ = __float__ = __getitem__ = _refuse


PAIR, ZEROS = spaces.Box(-1, 1, (2,)), np.zeros(2, np.float32)
# A space, a value of it, and one that refuses to be read.
REFUSING: dict[str, tuple[Any, Any, Any]] = {
    "vector": (PAIR, ZEROS, Tensor(2)),
    "image": (spaces.Box(-1, 1, (2, 2)), np.zeros((2, 2), np.float32), Tensor(2, 2)),
    "large": (spaces.Box(-1, 1, (20000,)), np.zeros(20000, np.float32), Tensor(20000)),
    "number": (spaces.Box(-1, 1, ()), np.float32(0), Tensor()),
    "in a dict": (spaces.Dict(x=PAIR), {"x": ZEROS}, {"x": Tensor(2)}),
    "for a dict": (spaces.Dict(x=PAIR, y=PAIR), {"x": ZEROS, "y": ZEROS}, Tensor(2)),
    "in a tuple": (spaces.Tuple((PAIR,)), (ZEROS,), (Tensor(2),)),
    "in a sequence": (spaces.Sequence(PAIR), (ZEROS,), (Tensor(2),)),
    "choice": (spaces.OneOf((PAIR,)), (0, ZEROS), (Tensor(2), ZEROS)),
}


NAMES = [*REFUSING, "reward", "declared info"]
ERRORS = [Tensor.error, SystemExit("detach it first")]


@pytest.mark.parametrize(
    ("make", "name", "error"),
    [
        *product(MAKERS[:1], NAMES, ERRORS),
        *((MAKERS[1], name, ERRORS[number % 2]) for number, name in enumerate(NAMES[-3:])),
    ],
)
def test_step_names_the_row_of_an_object_that_refuses_to_be_an_array(
    make: Any, name: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tensor, "error", error)
    space, good, bad = REFUSING.get(name, (PAIR, ZEROS, ZEROS))
    step = [good, 0.0, False, False, {}]
    wrong, kind = [bad, *step[1:]], InvalidObservationError
    info_space = None
    if name == "reward":
        wrong[1], kind = Tensor(2), InvalidRewardError
    elif name == "declared info":
        info_space = spaces.Dict(x=PAIR)
        step[4], wrong[4], kind = {"x": ZEROS}, {"x": Tensor(2)}, InvalidInfoError
    env_fns = [
        partial(Echo, space, [(good, {})], [tuple(wrong if row == 2 else step)]) for row in range(3)
    ]
    with make(env_fns, info_space=info_space) as envs:
        for stepping in (partial(envs.step, [0] * 3), partial(envs.step, [0] * 2, [2, 0])):
            envs.reset(seed=0)
            with pytest.raises(kind, match=r"^environment 2 returned") as caught:
                stepping()
            cause = caught.value.__cause__
            assert isinstance(cause, Failure) and cause.env_ids == (2,)
