"""Configuration of the documentation build (`make docs`)."""

import contextlib
import functools
import importlib
import inspect
import pydoc
import re
import shutil
import sys
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import formulas  # noqa: E402
import reference_pages  # noqa: E402

import discrete_vae  # noqa: E402
from discrete_vae.config import Record  # noqa: E402

project = "discrete-vae"
author = "The discrete-vae developers"
copyright = "the discrete-vae developers"
release = version = discrete_vae.__version__
quick = tags.has("without_sources")  # noqa: F821 (of Sphinx): what the tests build

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # brings MathJax along, so formulas show without a network
    "sphinx_copybutton",
    "sphinx_design",
]
if not quick:
    extensions.append("sphinx.ext.viewcode")
exclude_patterns = ["_build", "reference/settings.md", "reference/verbs.md"]  # which pages include
templates_path = ["_templates"]
nb_execution_mode = "off" if quick else "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_in_temp = True  # notebooks write runs and files
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "substitution"]
myst_heading_anchors = 3
# Each name of the package itself, with a link to the page of the module that the stub takes it from.
_STUB = Path(discrete_vae.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_NAMES = re.findall(r"^from \.(\w+) import (\w+) as", _STUB, re.MULTILINE)
PATHS = reference_pages.paths_of_names()
CLASSES = {path.rpartition(".")[2]: pydoc.locate(path) for path in PATHS.values()}
myst_substitutions = {
    "names": ", ".join(
        f"{{py:obj}}`{name} <discrete_vae.{module}.{name}>`"
        for module, name in sorted(_NAMES, key=lambda n: n[1])
    )
}

html_theme = "furo"
html_title = "discrete-vae"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_theme_options = {"light_css_variables": {"sidebar-item-spacing-vertical": "0.3rem"}}
html_show_sphinx = False
copybutton_prompt_text = "$ "

# `name` in a docstring is code, and a link where the name is documented.
default_role = "py:obj"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False  # types stand in the signature; a colon in Returns: is only a colon
autosummary_generate = False  # reference_pages writes the pages
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
toc_object_entries_show_parents = "hide"
nitpicky = True
python_use_unqualified_type_names = True


def set_formulas(app, what, name, obj, options, lines):
    """Set the main formulas in TeX, and put numbers before the paper's labels."""
    text = formulas.with_numbers("\n".join(lines))
    lines[:] = [
        line if line.lstrip().startswith((">>>", "...")) else formulas.in_tex(line)
        for line in text.split("\n")
    ]


def check_formulas(app, env):
    """Warn of formulas that no docstring has any more."""
    if gone := set(formulas.TEX) - formulas.used:
        logging.getLogger(__name__).warning("docs/formulas.py: no docstring has %s", ", ".join(sorted(gone)))


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


def _is_record(obj):
    return isinstance(obj, type) and issubclass(obj, Record)


def describe_fields(app, what, name, obj, options, lines):
    """List the fields of a config class with type, meaning and default."""
    if not _is_record(obj):
        return
    for field in obj.model_fields:
        kind, meaning, default = reference_pages.described(obj, field)
        if meaning:
            shown = f" Default: ``{default}``." if default else ""
            lines.extend(["", f":param {field}: {meaning} Takes: {kind}.{shown}"])


def hide_signature(app, what, name, obj, options, signature, annotation):
    """Leave out the signatures of config classes, whose fields are listed."""
    return ("", None) if _is_record(obj) else None


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out what matplotlib, scikit-learn and pydantic add to classes, with docstrings of their own."""
    return True if re.fullmatch(r"set|set_\w+_request|model_config", name) else None


# Names of other libraries in signatures, with the page of each; a fixed list, so that a build needs no network.
_TORCH, _NUMPY = "https://docs.pytorch.org/docs/stable/", "https://numpy.org/doc/stable/reference/"
_PYTHON = "https://docs.python.org/3/library/"
FOREIGN = {
    "torch.Tensor": _TORCH + "tensors.html#torch.Tensor",
    "Tensor": _TORCH + "tensors.html#torch.Tensor",
    "torch._C.Generator": _TORCH + "generated/torch.Generator.html#torch.Generator",
    "torch.dtype": _TORCH + "tensor_attributes.html#torch.dtype",
    "torch.device": _TORCH + "tensor_attributes.html#torch.device",
    "torch.nn.modules.module.Module": _TORCH + "generated/torch.nn.Module.html#torch.nn.Module",
    "torch.nn.parameter.Parameter": _TORCH + "generated/torch.nn.parameter.Parameter.html",
    "torch.optim.Adam": _TORCH + "generated/torch.optim.Adam.html#torch.optim.Adam",
    "torch.no_grad": _TORCH + "generated/torch.no_grad.html#torch.no_grad",
    "torch.distributions.distribution.Distribution": _TORCH + "distributions.html#distribution",
    "torch.distributions.Distribution": _TORCH + "distributions.html#distribution",
    "torch.distributions.Independent": _TORCH + "distributions.html#independent",
    "numpy.ndarray": _NUMPY + "generated/numpy.ndarray.html#numpy.ndarray",
    "collections.abc.Sequence": _PYTHON + "collections.abc.html#collections.abc.Sequence",
    "collections.abc.Mapping": _PYTHON + "collections.abc.html#collections.abc.Mapping",
    "collections.abc.Callable": _PYTHON + "collections.abc.html#collections.abc.Callable",
    "collections.abc.Iterable": _PYTHON + "collections.abc.html#collections.abc.Iterable",
    "pathlib.Path": _PYTHON + "pathlib.html#pathlib.Path",
    "matplotlib.figure.Figure": "https://matplotlib.org/stable/api/figure_api.html#matplotlib.figure.Figure",
}


def find_name(app, env, node, contnode):
    """Link a name that Sphinx does not find: of another library, or of ours by another path than the documented one.

    A dotted name of ours that does not exist stays unresolved, which is a warning. Other words are code, not links.
    """
    target = node["reftarget"]
    if node.get("refdomain") != "py":
        return None
    if target in FOREIGN:
        return nodes.reference("", "", contnode, refuri=FOREIGN[target], internal=False)
    objects = env.domains.python_domain.objects
    ends = {name for name in objects if name == target or name.endswith(f".{target}")}
    path = PATHS.get(target) or (ends.pop() if len(ends) == 1 else None)
    if path in objects:
        entry = objects[path]
        page = node.get("refdoc", env.docname)
        return make_refnode(app.builder, page, entry.docname, entry.node_id, contnode, path)
    return contnode if _exists(target.partition("(")[0]) else None


def _exists(target):
    """Whether a dotted name of ours is there; True for a name that is not dotted, or of nobody's in particular."""
    head, *rest = parts = target.split(".")
    if head in CLASSES and rest:
        own = {*dir(CLASSES[head]), *getattr(CLASSES[head], "model_fields", ())}
        return rest[0] in own or f"self.{rest[0]}" in inspect.getsource(CLASSES[head])
    for length in range(len(parts), 0, -1) if head == "discrete_vae" else ():
        with contextlib.suppress(ImportError):
            module = importlib.import_module(".".join(parts[:length]))
            return (
                functools.reduce(lambda at, part: getattr(at, part, None), parts[length:], module) is not None
            )
    return head != "discrete_vae"


def bring_examples(folder):
    """Copy the notebooks of examples/ to where Sphinx looks for pages; their links lead to pages of docs/."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for notebook in sorted(DOCS.parent.glob("examples/*.md")):
        text = notebook.read_text(encoding="utf-8").replace("](../docs/", "](../")
        (folder / notebook.name).write_text(text, encoding="utf-8")


# Words that people search for, with the page that should come first.
SOUGHT = {
    "your-own-data": ["csv", "parquet", "data frame", "own data"],
    "impute": ["missing values", "nan", "imputation"],
    "own-loop": ["own loop", "training loop", "custom encoder"],
    "citing": ["citation", "cite", "bibtex"],
    "faq": ["gpu", "cuda", "loss is nan"],
    "which-settings": ["learning rate", "hyperparameters"],
    "install": ["windows", "pip install"],
}


def add_sought_words(app, docname, source):
    """Put the words that a page should be found by into its index entries, which the search ranks first."""
    if docname in SOUGHT:
        entries = ", ".join(f"! {words}" for words in SOUGHT[docname])
        source[0] = re.sub(
            r"^# .*$", rf"\g<0>\n\n```{{index}} {entries}\n```", source[0], count=1, flags=re.MULTILINE
        )


def setup(app):
    shutil.rmtree(DOCS / "reference", ignore_errors=True)  # pages of what is gone
    reference_pages.write(DOCS / "reference", page_per_name=not quick)
    bring_examples(DOCS / "examples")
    app.connect("autodoc-process-docstring", set_formulas)
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("autodoc-process-docstring", keep_stars)
    app.connect("autodoc-process-docstring", describe_fields)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("missing-reference", find_name)
    app.connect("env-check-consistency", check_formulas)
    app.connect("source-read", add_sought_words)
