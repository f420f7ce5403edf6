"""Configuration of the site: ``make docs`` builds it, without a network."""

import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from reference_pages import write_pages  # noqa: E402

from uncurse.version import __version__  # noqa: E402

project = "uncurse"
author = "The uncurse maintainers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "llms",
]
# Commands.md, which is written below, includes logs.md.
exclude_patterns = [
    "_build",
    "gallery/**/*.md",
    "**/sg_execution_times.rst",
    "reference/logs.md",
]
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = True
smartquotes = False  # options such as --top, and types in braces, are code
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
highlight_language = (
    "none"  # a block without a language holds commands or output, not Python
)

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# The reference pages are written before anything is read.
write_pages(HERE / "reference")
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
toc_object_entries_show_parents = "hide"  # long names do not fit beside a page
default_role = "literal"  # docstrings quote names with single backticks


def format_warning(message, category, filename, lineno, line=None):
    """Name the file of a warning without the folders of this machine."""
    return f"{Path(filename).name}:{lineno}: {category.__name__}: {message}\n"


warnings.formatwarning = format_warning
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("uncurse",),
    "exclude_implicit_doc": {r"uncurse\.links\."},
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "remove_config_comments": True,
    "image_srcset": ["2x"],
    "reset_modules": ("matplotlib", "gallery_style.apply"),
    "copyfile_regex": r"index\.rst",
    "matplotlib_animations": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "uncurse: predictions that stay true after selection"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {"text": "uncurse"},
    "navbar_align": "left",
    "navbar_end": ["version", "theme-switcher", "navbar-icon-links"],
    "icon_links": [
        {
            "name": "Source",
            "url": "https://github.com/uncurse/uncurse",
            "icon": "fa-brands fa-github",
        },
    ],
    "navbar_persistent": [
        "search-button"
    ],  # the field has a name that differs from its text
    "collapse_navigation": True,
    "header_links_before_dropdown": 8,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def skip_member(app, what, name, member, skip, options):
    """Leave out what scikit-learn adds to every estimator."""
    return (
        True
        if name.endswith("_request") or name == "get_metadata_routing"
        else None
    )


def setup(app):
    """Register a hook."""
    app.connect("autodoc-skip-member", skip_member)
