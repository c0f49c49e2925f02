"""The documentation as a site: it builds without a warning, leads nowhere dead, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import lockstep
from tests.conftest import REPOSITORY

WITH_DIRECTIVES = {"reference.md"}
"""What is made of docstrings; all other pages are plain Markdown."""

STYLE_LOAD = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")


class Page(HTMLParser):
    """What a page can be linked to, what it links to, and what a browser loads for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.anchors.add(found.get("id", ""))
        self.loads += [found[name] for name in ("src", "srcset", "data", "poster") if name in found]
        self.loads += [found["href"]] if tag == "link" and "href" in found else []
        self.links += [found["href"]] if tag == "a" and "href" in found else []


def is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def dead_links(site: Path) -> list[str]:
    """Relative links of all pages that name no file, or a place that the page does not have."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for address in [*page.links, *page.loads]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            place = unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].anchors):
                dead.append(f"{path.name}: {address}")
    return dead


def foreign_loads(site: Path) -> list[str]:
    """What a browser would fetch from another host to show the site."""
    loads = [address for path in site.rglob("*.html") for address in Page(path).loads]
    for path in site.rglob("*.css"):
        loads += [one or two for one, two in STYLE_LOAD.findall(path.read_text())]
    return [address for address in loads if is_elsewhere(address)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of `make docs`, into another directory."""
    directory = tmp_path_factory.mktemp("site")
    line = re.search(r"^\t\$\(BIN\)/python (-m sphinx .*) docs site$", (REPOSITORY / "Makefile").read_text(), re.M)
    assert line is not None
    options = line[1].split()
    assert "-W" in options
    command = [sys.executable, *options, "-d", str(directory / "doctrees"), "docs", str(directory / "html")]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return directory / "html"


def test_the_site_has_every_page_and_no_dead_link(site: Path) -> None:
    pages = {path.stem for path in (REPOSITORY / "docs").glob("*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")}
    assert dead_links(site) == []


def test_the_navigation_has_the_four_parts_on_every_page(site: Path) -> None:
    text = (site / "failures.html").read_text()
    captions = re.findall(r'class="caption-text">([^<:]+)', text)
    assert list(dict.fromkeys(captions)) == ["Tutorial", "How-to", "Reference", "Explanation"]
    assert 'href="why-the-bits-agree.html"' in text


def test_the_reference_has_all_public_names_and_their_docstrings(site: Path) -> None:
    page = Page(site / "reference.html")
    elsewhere = {
        "Recipe": "lockstep.config.Recipe",
        "runs": "module-lockstep.runs",
        "weights": "module-lockstep.weights",
    }
    assert {elsewhere.get(name, f"lockstep.{name}") for name in lockstep.__all__} <= page.anchors
    assert {"lockstep.Run.load_model", "lockstep.weights.get_flat", "lockstep.config.Schedule.peak"} <= page.anchors
    assert "parts into which the global batch is cut" in (site / "reference.html").read_text()


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    assert (site / "_static").is_dir()
    assert foreign_loads(site) == []


def test_dead_links_and_foreign_loads_would_be_found(tmp_path: Path) -> None:
    """A control for the two tests above."""
    (tmp_path / "a.html").write_text(
        '<link href="https://example.org/a.css"><img src="gone.png"><p id="here"><a href="#here">x</a>'
        '<a href="b.html#there">x</a><a href="c.html">x</a><a href="https://example.org/">x</a>'
    )
    (tmp_path / "b.html").write_text('<script src="//example.org/b.js"></script>')
    (tmp_path / "c.css").write_text(
        "@import 'https://example.org/c.css'; p { background: url(data:image/png;base64,) }"
    )
    assert dead_links(tmp_path) == ["a.html: b.html#there", "a.html: c.html", "a.html: gone.png"]
    assert len(foreign_loads(tmp_path)) == 3


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda page: page.name)
def test_pages_stay_readable_on_a_code_host(page: Path) -> None:
    """No syntax that only Sphinx knows, but where the docstrings go."""
    directives = re.findall(r"^(?:```|:::)\{.*|^\([\w-]+\)=$|\{\w+\}`", page.read_text(), re.MULTILINE)
    assert bool(directives) == (page.name in WITH_DIRECTIVES)
