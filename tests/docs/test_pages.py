"""The examples of every page run, and its links to files lead somewhere."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from benchmarks import gallery
from vecspaces import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
FLAGS = re.MULTILINE | re.DOTALL
BLOCK = re.compile(r"^```python\n(.*?)^```", FLAGS)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


@pytest.mark.usefixtures("start_method")
@pytest.mark.parametrize(
    "path",
    [path for path in PAGES if ">>>" in path.read_text(encoding="utf-8")],
    ids=lambda path: path.stem,
)
def test_the_examples_of_a_page_run(path: Path) -> None:
    blocks = BLOCK.findall(path.read_text(encoding="utf-8"))
    source = "\n".join(block for block in blocks if ">>>" in block)
    test = doctest.DocTestParser().get_doctest(source, {}, path.name, str(path), 0)
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
    )
    output: list[str] = []
    runner.run(test, out=output.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)


def test_code_is_as_wide_as_the_column_of_a_page_at_most() -> None:
    for path in PAGES:
        for kind, code in re.findall(
            r"^```(python|text)\n(.*?)^```", path.read_text("utf-8"), FLAGS
        ):
            widest = max(code.splitlines(), key=len)
            assert len(widest) <= 100, f"{path.name}, {kind}: {widest}"


def test_the_programs_of_pages_compile_and_their_links_lead_to_files() -> None:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for block in BLOCK.findall(text):
            if ">>>" not in block:
                compile(block, str(path), "exec")
        for target in LINK.findall(text):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_files_that_a_page_names_are_there() -> None:
    folders = [ROOT / "vecspaces", ROOT / "tests" / "vector"]
    inner = [path for folder in folders for path in folder.rglob("*") if path.is_dir()]
    for name in ("design", "reliability"):
        named = re.findall(r"`([\w/]+\.py)`", (DOCS / f"{name}.md").read_text(encoding="utf-8"))
        assert len(named) > 10
        for file in named:
            exists = any((root / file).exists() for root in (ROOT, *folders, *inner))
            assert exists, f"{name}.md names {file}"


def test_every_example_is_shown_and_has_a_picture_in_the_gallery() -> None:
    page = (DOCS / "examples.md").read_text(encoding="utf-8")
    row = re.compile(
        r"^\| !\[[^]]+\]\((.+)\) \| \[(\w+\.py)\]\(\.\./examples/(.+)\) \| .+ \| \d+ (?:s|min) \|$",
        re.M,
    )
    rows = row.findall(page)
    assert "```{examples}" in page  # docs/conf.py has the programs and their anchors
    assert all(name == file for _, name, file in rows)
    pictures = {name: DOCS / picture for picture, name, _ in rows}
    assert pictures.keys() == {example.name for example in (ROOT / "examples").glob("*.py")}
    for picture in pictures.values():
        assert picture.suffix == ".gif" or picture.stat().st_size < 60_000
    drawn = {picture.stem for picture in pictures.values() if picture.parent == gallery.PICTURES}
    assert drawn == gallery.DRAW.keys() == {path.stem for path in gallery.PICTURES.iterdir()}


def test_a_group_of_the_navigation_has_at_most_eight_pages() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    groups = re.findall(
        r"^```{toctree}\n:hidden:\n:caption: [^\n]+\n\n(.*?)\n```", index, re.M | re.S
    )
    assert len(groups) == 7
    assert max(len(group.splitlines()) for group in groups) <= 8


def test_each_error_has_causes_and_remedies() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    for name in errors.__all__:
        entry = re.search(
            rf"^(### {name}$.*?^#|- \*\*{name}\*\*: .*?^-)", page, re.MULTILINE | re.DOTALL
        )
        assert name == "VecspacesError" or (entry and "**Remedy:**" in entry[0]), name
