"""Ray's column of the table of docs/features.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')

from tests.docs.test_features import check_cell
from tests.features import FAULTY, FEATURES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.usefixtures("two_actors")
@pytest.mark.parametrize("name", FEATURES)
def test_a_cell_is_what_the_page_says(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name not in FAULTY:
        request.getfixturevalue("lent_actors")
    check_cell(name, "Ray", tmp_path)
