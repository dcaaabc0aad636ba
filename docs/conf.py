"""How the documentation is built: ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

import sys
from pathlib import Path

import mlsysim

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "mlsysim"
author = "the mlsysim authors"
version = release = mlsysim.__version__
html_title = f"mlsysim {release}"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "reference_keys",
    "glossary_check",
    "scenario_pages",
    "drawn_figures",
]
exclude_patterns = ["_build", "_ext"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
add_module_names = False

html_theme = "furo"
html_copy_source = False
html_show_copyright = False
