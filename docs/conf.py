"""How `make docs` makes a site of the pages of this directory, which stay plain Markdown, readable on a code host.

Two things are made here: the navigation, from the lists of `index.md`, and the reference, by autodoc from docstrings.
Nothing in the site is loaded from elsewhere.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

import lockstep

project = "Lockstep"
author = "the authors of Lockstep"
release = lockstep.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
nitpicky = True
# Names of other projects: their documentation is elsewhere, and this site needs no network.
nitpick_ignore_regex = [
    ("py:.*", r"(torch|numpy|nn|npt|pathlib|collections|typing)\..*"),
    ("py:class", r"Path|Tensor|Image\.Image"),  # as signatures have them that name what only type checkers import
    ("py:.*", r"lockstep\.(report|supervisor)\..*"),  # not for others
]

myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["wide.css"]
pygments_style = "default"  # shows what is added and removed in a diff
pygments_dark_style = "monokai"
html_title = f"Lockstep {release}"
html_show_copyright = False
html_copy_source = False
smartquotes = False  # options begin with two dashes
maximum_signature_line_length = 80

default_role = "literal"  # docstrings have one backtick around code
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
autodoc_type_aliases = {"Columns": "dict[str, list[Any]]"}

OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[\w./-]+\.md)\)")
LINK = re.compile(r"\]\(([\w-]+)\.md\)")


def with_files(app: Sphinx, name: str, source: list[str]) -> None:
    """Markdown outside of this directory, such as the README, is no page of the site: it goes along as a file."""
    source[0] = OUTSIDE.sub(r"{download}`\1 <\2>`", source[0])


def with_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Each list of links in `index.md` becomes a part of the navigation: it is written once, and nobody sees syntax."""
    if name != "index":
        return
    _, *parts = re.split(r"^## ", source[0], flags=re.MULTILINE)
    for part in parts:
        caption, _, body = part.partition("\n")
        if pages := dict.fromkeys(LINK.findall(body)):
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", with_files)
    app.connect("source-read", with_navigation)
