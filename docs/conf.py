"""Settings of the documentation site; `make docs` builds it without a network."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# For the kernels of notebooks: threads that wait for each other spin, which is slow beside other work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
os.environ["PYTHONPATH"] = str(ROOT / "src")

import vcr_graphormer  # noqa: E402
from vcr_graphormer.runs.config import Config, shown  # noqa: E402

project = "VCR-Graphormer"
author = "The VCR-Graphormer developers"
copyright = f"2026, {author}"
release = version = vcr_graphormer.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["README.md", "method_figure.py", "pictures.py", "diagrams.py"]
templates_path: list[str] = []

html_theme = "furo"
html_title = f"VCR-Graphormer {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "github-dark"

myst_enable_extensions = ["colon_fence", "deflist", "html_image"]
myst_heading_anchors = 4
# What notebooks printed is kept until the package changes.
_SOURCES = b"".join(file.read_bytes() for file in sorted((ROOT / "src").rglob("*.py")))
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / f"notebooks-{hashlib.sha256(_SOURCES).hexdigest()[:12]}")
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
suppress_warnings = ["myst.header"]  # a page that includes another one

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
nitpick_ignore_regex = [("py:.*", ".*")]  # types of NumPy, torch and Python have no pages here

mathjax_path = "no-formulas.js"  # no page has any; the library would come from a network

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

# Pages outside of this folder, and the pages of the site that include them.
_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "README.md": "index.md",
    "docs/README.md": "index.md",
}
_LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def _relink(page: Path, text: str) -> str:
    """Return a page whose links into the repository lead to pages of the site, or to files to download."""

    def target(match: re.Match[str]) -> str:
        label, path, anchor = match[1], match[2], match[3] or ""
        file = (page.parent / path).resolve()
        try:
            inside = file.relative_to(ROOT).as_posix()
        except ValueError:
            return match[0]
        depth = "../" * (len(page.relative_to(ROOT).parts) - 2)
        if inside in _PAGES:
            if inside == "README.md" and anchor:
                return f"{label}({depth}inside.md)"
            return f"{label}({depth}{_PAGES[inside]}{anchor})"
        if inside.startswith("docs/"):
            return f"{label}({depth}{inside.removeprefix('docs/')}{anchor})"
        if file.is_dir():
            return f"{label[1:-1]} (`{inside}`)"
        up = "../" * len(page.relative_to(ROOT).parts[:-1]) if page.is_relative_to(ROOT / "docs") else "../"
        return f"{label}({up}{inside})" if label.startswith("!") else f"{label}(path:{up}{inside})"

    return _LINK.sub(target, text)


def _read_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn links into the repository into links of the site; put pages from outside in their place."""
    page = ROOT / "docs" / f"{name}.md"
    text = source[0]
    included = re.fullmatch(r"\s*<!-- the file (\S+) -->\s*", text)
    if included:
        page = ROOT / included[1]
        text = page.read_text(encoding="utf-8")
        if page.parent == ROOT:
            text = _relink(ROOT / "docs" / "x.md", re.sub(r"\]\((?!https?:|#|/)", "](../", text))
            source[0] = text
            return
    source[0] = _relink(page, text)


def _process_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn `Name` into a link if it is a public name, and into code if it is not."""

    def role(match: re.Match[str]) -> str:
        word = match[1]
        return f":py:obj:`~vcr_graphormer.{word}`" if word in vcr_graphormer.__all__ else f"``{word}``"

    for number, line in enumerate(lines):
        plain = line if "``" in line else line.replace("|", "\\|")  # bars would be substitutions
        lines[number] = re.sub(r"(?<![`:])`([^`\n]+)`(?!`)", role, plain)


_ARRAY = re.compile(r"~?[\w.]*ndarray\[.*?, ~?[\w.]*dtype\[[^\]]*\]+")


def _process_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write arrays as arrays: shapes and types are in the text."""
    signature, returns = (_ARRAY.sub("array", text) if text else text for text in (signature, returns))
    return ("", None) if what == "class" and is_dataclass(obj) else (signature, returns)


_INHERITED = {"TokenStore", "VCRClassifier", "VCRRegressor"}  # whose methods are those of a base class


def _skip_member(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn's and torch's base classes have: it is theirs to document."""
    module = str(getattr(obj, "__module__", ""))
    theirs = module.startswith(("sklearn", "torch")) or name.endswith("_request") or name == "get_metadata_routing"
    return True if theirs else None


class Settings(SphinxDirective):  # type: ignore[misc]
    """Write a table with name, default and meaning of every setting of a section."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table of the section that the directive names."""
        section = self.arguments[0]
        values = getattr(Config(), section) if section in get_type_hints(Config) else None
        kind = getattr(vcr_graphormer, section, None) if values is None else type(values)
        rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
        for item in fields(kind):  # type: ignore[arg-type]
            default = _default(values, item.name) if values is not None else _field_default(item)
            help_text = str(item.metadata.get("help", "")).replace("|", "\\|")
            rows.append(f"| `{item.name}` | {default} | {help_text} |")
        table: list[nodes.Node] = self.parse_text_to_nodes(StringList(rows, source=section))
        return table


def _default(values: Any, name: str) -> str:
    value = shown(values, name)
    return "none" if value in ("", ()) else f"`{value}`"


def _field_default(item: Any) -> str:
    return (
        "none" if item.default in ("", ()) or not isinstance(item.default, str | int | float) else f"`{item.default}`"
    )


class PublicNames(SphinxDirective):  # type: ignore[misc]
    """Write a list of public names, given in the body, with links and the first sentences of their docstrings."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return one documented object after another."""
        lines: list[str] = []
        for entry in self.content:
            name = entry.strip()
            value = getattr(vcr_graphormer, name)
            kind = "autoclass" if isinstance(value, type) else "autofunction"
            lines += [f"### {name}", "", "```{eval-rst}", f".. {kind}:: vcr_graphormer.{name}"]
            if kind == "autoclass":
                lines += [
                    "   :members:",
                    "   :inherited-members: BaseEstimator, RuntimeError, ValueError, Module, tuple",
                ]
            lines += ["```", ""]
        source = StringList(lines, source="api")
        sections: list[nodes.Node] = self.parse_text_to_nodes(source, allow_section_headings=True)
        return sections


def setup(app: Sphinx) -> None:
    """Add the directives and the rewriting of links and docstrings."""
    app.add_directive("settings-of", Settings)
    app.add_directive("public-names", PublicNames)
    app.connect("source-read", _read_page)
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("autodoc-skip-member", _skip_member)
    app.connect("autodoc-process-docstring", _process_docstring)
