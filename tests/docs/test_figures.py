"""The figures of the pages are those of the runs that the benchmarks' `--write` kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import front_page
from benchmarks.contenders import LIMIT
from benchmarks.vector import RUN, TITLES, load, render_pages, replace_block

ROOT = Path(__file__).parents[2]
PAGES = ("docs/performance.md", "docs/when_not_to_use.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_are_made_from_the_run(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = render_pages(*load(RUN))[page]
    named = re.findall(r"<!-- (\w+): python -m benchmarks.vector --write -->", text)
    assert sorted(named) == sorted(blocks)
    for name, block in blocks.items():
        text = replace_block(text, name, block)
    assert text == (ROOT / page).read_text(encoding="utf-8")


def test_the_run_has_all_that_the_pages_compare() -> None:
    report, machine = load(RUN)
    for workload in TITLES:
        for backend in ("vecspaces sync", "gymnasium sync", "gymnasium async", "the limit"):
            entry = report.find(workload, 64, backend)
            assert entry is not None and entry.runs
    assert machine["libraries"]["gymnasium"]


@pytest.mark.parametrize("page", front_page.PAGES)
def test_the_block_of_the_front_page_is_made_from_its_run(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    block = front_page.render(*load(front_page.RUN))
    assert replace_block(text, "real", block, front_page.COMMAND) == text


def test_no_contender_of_the_front_page_is_faster_than_the_bound() -> None:
    report, _ = load(front_page.RUN)
    assert report.names("workload")
    for measurement in report.measurements:
        share = report.ratio(measurement, LIMIT.name)
        assert share is not None and share <= 1
