"""How Sphinx builds these pages: `sphinx-build -W docs docs/_build`."""

from vecspaces import __version__

project = "vecspaces"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"vecspaces {__version__}"

default_role = "code"  # what docstrings mean by single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings tell types, shapes, dtypes and units
autodoc_mock_imports = ["stable_baselines3"]  # would bring gigabytes for the sake of a base class
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_attr_annotations = False
napoleon_use_ivar = True  # else an attribute that is annotated too would be listed twice
suppress_warnings = ["ref.python"]  # attributes of two classes may have one name

myst_heading_anchors = 3
