"""How Sphinx builds these pages: `sphinx-build -n -W docs docs/_build`."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import os
import pydoc
import re
import socket
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command

from vecspaces import __version__
from vecspaces.cli.app import app as command_line

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_PACKAGE = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
REPOSITORY = _PACKAGE["project"]["urls"]["Repository"]

project = "vecspaces"
copyright = "2026, the vecspaces authors"
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
copybutton_prompt_text = r">>> |\.\.\. |\$ "  # of doctests and shells, which are not copied
copybutton_prompt_is_regexp = True
exclude_patterns = ["_build"]
templates_path = ["_templates"]

python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"vecspaces {__version__}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
# `.ci/site` builds several versions side by side, and says which there are.
html_context = {"versions": os.environ.get("DOCS_VERSIONS", "").split()}
html_sidebars = {
    "**": [
        f"sidebar/{part}.html"
        for part in ("brand", "search", "scroll-start", "navigation", "versions", "scroll-end")
    ]
}
html_theme_options = {
    "source_view_link": f"{REPOSITORY}/blob/main/docs/{{filename}}",
    "source_edit_link": f"{REPOSITORY}/edit/main/docs/{{filename}}",
    "footer_icons": [
        {"name": "Repository", "url": REPOSITORY, "html": "Repository", "class": "repository"}
    ],
}

autosummary_ignore_module_all = False  # what is public is what `__all__` says
autosummary_imported_members = True  # `__dir__` of modules hides `__all__` from autosummary
default_role = "code"  # what docstrings mean by single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"npt.DTypeLike": "numpy.typing.DTypeLike"}
autodoc_mock_imports = ["stable_baselines3", "tianshou"]  # gigabytes for one base class each
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_attr_annotations = False
napoleon_use_ivar = True  # otherwise an attribute that is annotated too would be listed twice
suppress_warnings = ["ref.python"]  # attributes of two classes may have one name

myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]  # for the buttons of the home page

_INVENTORIES = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "gymnasium": "https://gymnasium.farama.org",
}


def _is_reachable(url: str) -> bool:
    """Whether a site answers; without a network, links to it are left out and the build goes on."""
    try:
        socket.create_connection((url.split("/")[2], 443), timeout=3).close()
    except OSError:
        return False
    return True


intersphinx_mapping = {
    name: (url, None) for name, url in _INVENTORIES.items() if _is_reachable(url)
}
intersphinx_timeout = 10
nitpick_ignore_regex = [
    (r"py:.*", r"stable_baselines3\..*"),
    (r"py:.*", r"tianshou\..*"),
    (r"py:.*", r"(Vector)?Env\.\w+"),  # in docstrings of methods that Gymnasium's classes pass on
    (r"py:class", r"TypeAliasForwardRef"),  # what Sphinx makes of an alias in a union
    (r"py:class", r"tuple\[Any, \.\.\.\] \| Any"),  # a base of GraphInstance
]


_MODULES = (
    "vecspaces",
    "vecspaces.spaces",
    "vecspaces.vector",
    "vecspaces.vector.utils",
    "vecspaces.wrappers",
    "vecspaces.errors",
    "vecspaces.layout",
    "vecspaces.adapters.gymnasium",
)


def _import_types() -> None:
    """Import what the modules import for type checkers alone, so that signatures can be read."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("vecspaces"):
            continue
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                body = ast.Module(node.body, type_ignores=[])
                exec(compile(body, module.__file__ or name, "exec"), vars(module))


@functools.cache
def _public_names() -> dict[str, str]:
    """Return where a class is documented, by where it is defined."""
    names: dict[str, str] = {}
    for module in map(importlib.import_module, _MODULES):
        public = getattr(module, "__all__", None) or vars(module)
        for name in public:
            member = getattr(module, name)
            defined = getattr(member, "__module__", None) or ""
            if defined.startswith("vecspaces") and not inspect.ismodule(member):
                names[f"{defined}.{name}"] = f"{module.__name__}.{name}"
    return names


def _exists(name: str) -> bool:
    """Whether a dotted name can be imported, or a bare one stands in a module of the package."""
    if "." in name:
        return pydoc.locate(name) is not None
    modules = [module for key, module in sys.modules.items() if key.startswith("vecspaces")]
    return name in vars(builtins) or any(hasattr(module, name) for module in modules)


def _resolve(app: Sphinx, env: Any, node: Any, content: Any) -> Any:
    """Link a name to the page of the module that exports it.

    Names that exist but have no page (internal bases, type variables, other libraries without an
    inventory) become plain text; those that do not exist stay, as a warning.
    """
    name = re.sub(r"^npt\.", "numpy.typing.", node.get("reftarget", ""))
    name = re.sub(r"^np\.", "numpy.", name)
    public = _public_names().get(name)
    if public is None:
        return content if _exists(name) else None
    domain = env.get_domain("py")
    link = domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], public, node, content
    )
    return link or content  # a public name without a page is plain text too


class CommandReference(SphinxDirective):
    """The commands and their options, as the command line itself describes them."""

    def run(self) -> list[nodes.Node]:
        """Return one section per command, with a table of its arguments and options."""
        group: Any = get_command(command_line)
        lines: list[str] = []
        for name, command in group.commands.items():
            arguments = [param for param in command.params if param.param_type_name == "argument"]
            usage = " ".join(param.metavar or param.name.upper() for param in arguments)
            lines += [f"## vecspaces {name}", "", command.help, ""]
            lines += ["```text", f"vecspaces {name} {usage} [OPTIONS]", "```", ""]
            lines += ["| argument | meaning | default |", "| --- | --- | --- |"]
            for param in command.params:
                written = " ".join(param.opts) if param not in arguments else usage
                value = (
                    "" if param in arguments or param.default is False else param.metavar or "VALUE"
                )
                default = "" if param.default in (None, False) else f"`{param.default}`"
                default = param.show_default if isinstance(param.show_default, str) else default
                meaning, default = (
                    re.sub(r"(--\w\S*\w)", r"`\1`", text) for text in (param.help, default)
                )
                lines.append(f"| `{f'{written} {value}'.strip()}` | {meaning} | {default} |")
            lines.append("")
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class ExamplePrograms(SphinxDirective):
    """The programs of the folder `examples`, a section each, with the anchor `NAME-py`."""

    def run(self) -> list[nodes.Node]:
        """Return one section per program, with its code."""
        lines: list[str] = []
        for path in sorted(Path(__file__).parents[1].glob("examples/*.py")):
            lines += [f"({path.stem.replace('_', '-')}-py)=", f"## {path.name}", ""]
            lines += [f"```{{literalinclude}} ../examples/{path.name}", "```", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _adapt(app: Sphinx, page: str, source: list[str]) -> None:
    """Lead links to programs, files on GitHub, to their sections of the page of examples.

    The blank line that ends the output of a doctest is left out. Errors whose causes are an entry
    of a list get an anchor there, to which their page of the reference leads.
    """
    text = re.sub(
        r"\]\((?:\.\./)+examples/(\w+)\.py\)",
        lambda link: f"](#{link[1].replace('_', '-')}-py)",
        source[0],
    )
    for name in dict.fromkeys(re.findall(r"^- \*\*(\w+Error)\*\*:", text, re.MULTILINE)):
        text = text.replace(f"- **{name}**:", f"- [**{name}**]{{#{name.lower()}}}:", 1)
    source[0] = text.replace("\n\n```\n", "\n```\n")


def _label_cells(app: Sphinx, document: nodes.document) -> None:
    """Give the cells of tables of text their headings, which phones show instead of columns."""
    for table in document.findall(nodes.table):
        rows = [[*row.findall(nodes.entry)] for row in table.findall(nodes.row)]
        heads = rows.pop(0) if [*table.findall(nodes.thead)] else []
        if any("text-right" in entry["classes"] for row in rows for entry in row):
            continue  # numbers stay in columns
        table["classes"].append("cards")
        for row in rows:
            for head, entry in zip(heads, row, strict=False):
                if head.astext() and entry.astext():
                    label = nodes.inline("", f"{head.astext()}: ", classes=["label"])
                    entry[0].insert(0, label)


def _skips(app: Sphinx, kind: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of named tuples, which the class describes and Python does not."""
    return True if str(getattr(member, "__doc__", "")).startswith("Alias for field") else None


def setup(app: Sphinx) -> None:
    """Add the directives, and the links to public names."""
    _public_names()  # imports the modules
    _import_types()
    app.add_directive("commands", CommandReference)
    app.add_directive("examples", ExamplePrograms)
    app.connect("source-read", _adapt)
    app.connect("autodoc-skip-member", _skips)
    app.connect("doctree-read", _label_cells)
    app.connect("missing-reference", _resolve, priority=900)  # after intersphinx
