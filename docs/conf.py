"""How the site is built: `make docs`, offline, with warnings as errors."""

import socket
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "_ext")]

import prepare  # noqa: E402

import ardvark  # noqa: E402

project = "Ardvark"
author = "The Ardvark contributors"
project_copyright = "The Ardvark contributors"
version = release = ardvark.__version__
language = "en_GB"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "mathml",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinxcontrib.bibtex",
    "results",
    "examples",
    "how_to_read",
    "methods_of",
    "optional_pages",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_ext", "_templates", "**/.ipynb_checkpoints"]
prepare.write(HERE / "_generated")

# Notebooks are executed by `make notebooks`, never here.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]
bibtex_reference_style = "author_year"

default_role = "literal"  # `name` in a docstring is code
autosummary_generate = True
autosummary_filename_map = {"ardvark.evidence": "ardvark.evidence_function"}  # beside Evidence
autodoc_typehints = "none"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# Names of other projects are linked where their sites can be reached, and left alone elsewhere.
PEERS = {
    "pymc": "www.pymc.io/projects/docs/en/stable/",
    "arviz": "python.arviz.org/en/stable/",
    "xarray": "docs.xarray.dev/en/stable/",
}


def reachable(host: str) -> bool:
    """Whether a host answers within a second."""
    try:
        socket.create_connection((host, 443), timeout=1).close()
    except OSError:
        return False
    return True


intersphinx_mapping = (
    {name: (f"https://{place}", None) for name, place in PEERS.items()}
    if all(reachable(place.partition("/")[0]) for place in PEERS.values())
    else {}
)

html_theme = "pydata_sphinx_theme"
html_title = f"Ardvark {release}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "Ardvark"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "install": [], "five_minutes": [], "choose": []}
