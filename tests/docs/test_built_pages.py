"""The built pages contain what they must: `.ci/docs` builds them and names their folder."""

from __future__ import annotations

import ast
import html
import importlib
import importlib.util
import inspect
import json
import os
import re
from pathlib import Path
from types import FunctionType

import pytest

ROOT = Path(__file__).parents[2]
BUILT = Path(os.environ.get("BUILT_PAGES", "not built"))
GENERATED = BUILT / "api" / "generated"
MODULES = re.findall(
    r"^   (vecspaces[\w.]*)$", (ROOT / "docs/api/index.md").read_text("utf-8"), re.MULTILINE
)
# Names with a page in the module that they belong to.
ELSEWHERE = {"vecspaces.Space": "vecspaces.spaces.Space"}
# The bases whose methods have no entry, in the template of classes.
FOREIGN = ("builtins", "typing", "collections.abc", "enum", "abc")

pytestmark = pytest.mark.skipif("BUILT_PAGES" not in os.environ, reason="the pages are not built")


def public_names(module: str) -> list[str]:
    """Return `__all__`, also of a module whose libraries are not installed."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [*map(str, ast.literal_eval(node.value))]
    raise AssertionError(f"{module} has no __all__")


def read(page: Path) -> str:
    """Return a page's main part as text, with the anchors of its entries as `#name`."""
    text = (
        page.read_text("utf-8").partition('id="furo-main-content">')[2].partition("</article>")[0]
    )
    text = re.sub(r'<dt [^>]*id="([^"]+)"[^>]*>', r" #\1 ", text)
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def test_the_reference_lists_each_public_module() -> None:
    package = ROOT / "vecspaces"
    public = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in package.rglob("*.py")
        if "\n__all__ = [" in path.read_text("utf-8")
    }
    assert public - {"vecspaces.evaluation", "vecspaces.cli"} == {*MODULES}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_lists_and_documents_its_public_names(module: str) -> None:
    listed = read(GENERATED / f"{module}.html")
    for name in public_names(module):
        path = ELSEWHERE.get(f"{module}.{name}", f"{module}.{name}")
        if path in MODULES or name == "__version__":
            continue
        assert re.search(rf"\b{name}\b", listed), f"{module}.html does not list {name}"
        page = read(GENERATED / f"{path}.html")
        assert f"#{path} " in page, f"{path} has no entry"
        assert len(page.split()) > 12, f"{path}.html is empty"


@pytest.mark.parametrize("module", MODULES)
def test_the_page_of_a_class_has_its_public_methods(module: str) -> None:
    if not module.startswith("vecspaces.adapters"):
        for name, value in vars(importlib.import_module(module)).items():
            if name not in public_names(module) or f"{module}.{name}" in ELSEWHERE:
                continue
            if inspect.isclass(value):
                page = read(GENERATED / f"{module}.{name}.html")
                for method in dir(value):
                    owner = next((base for base in value.__mro__ if method in vars(base)), object)
                    listed = isinstance(vars(owner).get(method), (FunctionType, property))
                    if listed and method[0] != "_" and owner.__module__ not in FOREIGN:
                        assert f"#{module}.{name}.{method} " in page, f"{name}.{method}"


def test_links_lead_to_anchors_and_entries_have_prose() -> None:
    shown = (path for path in BUILT.resolve().rglob("*.html") if "_modules" not in path.parts)
    pages = {path: path.read_text("utf-8") for path in shown}
    anchors = {path: {*re.findall(r' id="([^"]+)"', text)} for path, text in pages.items()}
    wrong = []
    for path, text in pages.items():
        main = text.partition('id="furo-main-content">')[2].partition("</article>")[0]
        for link in re.findall(r'href="(?!\w+:|//)([^"]+)"', main):
            name, _, anchor = html.unescape(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.exists() or (anchor and anchor not in anchors.get(target, {anchor})):
                wrong.append(f"{path}: link to {link}")
        wrong += [f"{path}: {image}" for image in re.findall(r'<img [^>]*alt=""', main)]
        prose = re.sub(r"(?s)<(pre|code)\b.*?</\1>|<[^>]+>", " ", main)
        markup = r":(?:class|meth|func|mod|attr|exc):|``|\]\(|Alias for field number"
        wrong += [f"{path}: {piece}" for piece in re.findall(markup, prose)]
        for name, entry in re.findall(r'(?s)<dt [^>]*id="(\S+)".*?</dt>\s*<dd>(.*?)</dd>', main):
            if not re.sub(r"<[^>]+>", "", entry).strip():
                wrong.append(f"{name} has no prose")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("daemonic processes are not allowed to have children", "troubleshooting"),
        ("Cannot re-initialize CUDA in forked subprocess", "troubleshooting"),
        ("cannot pickle '_thread.lock' object", "troubleshooting"),
        ("current process has finished its bootstrapping phase", "troubleshooting"),
        ("Too many open files", "troubleshooting"),
        ("finished an episode, and autoreset is DISABLED", "troubleshooting"),
        ("was ended by SIGKILL out-of-memory", "troubleshooting"),
        ("resume", "saving"),
        ("options per episode", "evaluation"),
        ("threads or processes", "threads"),
        ("process takes 150 MB", "performance"),
        ("GrayScaleObservation", "cleanrl"),
    ],
)
def test_a_search_finds_the_page(query: str, page: str) -> None:
    """As the search of the built pages does: a page has every word that is not a stop word."""
    english = pytest.importorskip("sphinx.search.en").SearchEnglish({})
    text = (BUILT / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    pages = {*range(len(index["docnames"]))}
    for word in english.split(query):
        if english.word_filter(word.lower()):
            matches = [
                index[terms].get(english.stem(word.lower()), [])
                for terms in ("terms", "titleterms")
            ]
            pages &= {n for hits in matches for n in ([hits] if isinstance(hits, int) else hits)}
    assert page in [index["docnames"][n] for n in pages]
