"""Configuration of the documentation build (`make docs`)."""

import re
import shutil
from pathlib import Path

import discrete_vae
from discrete_vae import __version__

project = "discrete-vae"
author = "The discrete-vae developers"
copyright = "the discrete-vae developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # brings MathJax along, so formulas show without a network
]
if not tags.has("without_sources"):  # noqa: F821 (of Sphinx): the tests need no pages of sources
    extensions.append("sphinx.ext.viewcode")
exclude_patterns = ["_build"]
templates_path = ["_templates"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "substitution"]
# Each name of the package itself, with a link to the page of the module that the stub takes it from.
_STUB = Path(discrete_vae.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_NAMES = re.findall(r"^from \.(\w+) import (\w+) as", _STUB, re.MULTILINE)
myst_substitutions = {
    "names": ", ".join(
        f"{{py:obj}}`{name} <discrete_vae.{module}.{name}>`"
        for module, name in sorted(_NAMES, key=lambda n: n[1])
    )
}
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"discrete-vae {version}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sphinx = False

# `name` in a docstring is code, and a link where the name is documented.
default_role = "py:obj"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False  # types stand in the signature; a colon in Returns: is only a colon
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True


def keep_bars(app, what, name, obj, options, lines):
    """Keep |l| in a docstring an absolute value; reStructuredText would look for a substitution."""
    lines[:] = [
        line if line.lstrip().startswith((">>>", "...")) else line.replace("|", r"\|") for line in lines
    ]


def keep_stars(app, what, name, obj, options, lines):
    """Keep shapes such as (batch, *event), which are no emphasis."""
    lines[:] = [
        line
        if line.lstrip().startswith((">>>", "..."))
        else re.sub(r"(?<![\w*\\`])\*(?=[a-z_]+[][,).])", r"\*", line)
        for line in lines
    ]


def skip_requests(app, what, name, obj, skip, options):
    """Leave out set_fit_request and the like, whose docstrings link to pages of scikit-learn."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app):
    shutil.rmtree(Path(__file__).with_name("reference"), ignore_errors=True)  # pages of modules that are gone
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("autodoc-process-docstring", keep_stars)
    app.connect("autodoc-skip-member", skip_requests)
