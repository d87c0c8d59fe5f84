"""README and docs: links lead somewhere, the README stays short, words are those of the field."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_LINES = 150
PRIVATE_WORDS = re.compile(r"yardstick|by halves|\btwins?\b|likeness", re.IGNORECASE)
# The name of a format on disk, which stays.
ALLOWED = {'KIND = "likeness"  # the name of the format, as the first release wrote it'}


def links(page: Path) -> list[str]:
    """Return the targets of all links and images of a page that lead into the repository."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<img[^>]* src="([^"]+)"', text)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_are_pages_with_links() -> None:
    assert len(PAGES) > 10
    assert "docs/method.svg" in links(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


def test_every_page_is_listed() -> None:
    listed = set(links(ROOT / "docs" / "README.md"))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


def test_the_readme_is_a_welcome() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_no_private_words() -> None:
    endings = {".py", ".md", ".toml", ".html", ".js", ".css"}
    files = [file for folder in ("docs", "src") for file in (ROOT / folder).rglob("*") if file.suffix in endings]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in [ROOT / "README.md", ROOT / "CHANGELOG.md", *files]
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if PRIVATE_WORDS.search(line) and line.strip() not in ALLOWED
    ]
    assert not found, "\n".join(found)


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    def pins(file: str) -> dict[str, str]:
        lines = [line.split(" ")[0] for line in (ROOT / file).read_text().splitlines() if "==" in line]
        pairs = (line.split("==") for line in lines if not line.startswith("#"))
        return {name.lower().replace("_", "-"): version.split("+")[0] for name, version in pairs}

    assert pins("requirements.lock") == pins("constraints.txt")
    assert (ROOT / "requirements.lock").read_text().count("--hash=sha256:") == len(pins("constraints.txt"))
