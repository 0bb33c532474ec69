"""The pages of the documentation: links lead somewhere, and repeated figures are the measured ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASUREMENTS = ROOT / "docs/measurements"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "services/**/*.md", "deploy/**/*.md", "clients/*/*.md")
    for page in ROOT.glob(pattern)
)
SOURCES = sorted(
    file
    for room in ("kbqa", "services", "benchmarks", "scripts")
    for suffix in ("py", "yaml")
    for file in ROOT.glob(f"{room}/**/*.{suffix}")
)

_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PAGE_IN_SOURCE = re.compile(r"docs/[\w/.-]+\.md")
_FIGURE = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*\.\d+(?!\w|\.\w)|(?<![\w.,])\d+(?:,\d{3})+(?!\w|\.\w)")


def anchors(page: Path) -> set[str]:
    """The fragments that GitHub makes of a page's headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text())):
        words = re.sub(r"[^\w\- ]", "", _LINK.sub("", heading).lower())
        found.add(words.strip().replace(" ", "-"))
    return found


def broken(page: Path) -> Iterator[str]:
    """The page's links to files or headings that do not exist."""
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            yield link


def figures(text: str) -> set[str]:
    """Numbers with a decimal point or a comma, except those in the targets of links."""
    return set(_FIGURE.findall(_LINK.sub("", text)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    assert list(broken(page)) == []


def test_a_link_to_a_heading_that_does_not_exist_is_broken(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One, `two`\n\n[a](#one-two) [b](page.md#three) [c](none.md) [d](https://example.org/#e) `[f](g)`\n"
    )
    assert list(broken(page)) == ["page.md#three", "none.md"]


def test_the_pages_that_comments_name_exist():
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in SOURCES
        for name in _PAGE_IN_SOURCE.findall(file.read_text())
        if not (ROOT / name).exists()
    ]
    assert missing == []


def sections() -> Iterator[tuple[str, str]]:
    """The titles and texts of the sections of docs/benchmarks.md."""
    _, *parts = re.split(r"^## ", (ROOT / "docs/benchmarks.md").read_text(), flags=re.MULTILINE)
    for part in parts:
        title, _, text = part.partition("\n")
        yield title, text


@pytest.mark.parametrize("title", dict(sections()))
def test_a_figure_of_the_benchmarks_stands_on_the_pages_that_its_section_links_to(title):
    text = dict(sections())[title]
    linked = {Path(link).name for link in re.findall(r"measurements/([\w-]+\.md)", text)}
    pages = [MEASUREMENTS / name for name in sorted(linked)] or MEASUREMENTS.glob("*.md")
    measured = {figure for page in pages for figure in figures(page.read_text())}
    assert figures(text) - measured == set(), title


def test_every_page_of_measurements_is_listed():
    text = dict(sections())["All measurements"]
    assert {f"measurements/{page.name}" for page in MEASUREMENTS.glob("*.md")} == set(_LINK.findall(text))
