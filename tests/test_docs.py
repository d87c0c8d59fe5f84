"""README and docs: links lead somewhere, code blocks work, the README stays short, words are those of the field."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
import typer

import vcr_graphormer as vcr
from vcr_graphormer.cli.main import app

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
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
    names = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md", "index.md"}
    stubs = {page for page in names if (ROOT / "docs" / page).read_text(encoding="utf-8").startswith("<!-- the file")}
    assert stubs == {"changelog.md", "security.md", "contributing.md", "conduct.md"}
    assert names - stubs <= set(links(ROOT / "docs" / "README.md"))
    site = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").splitlines()
    assert {name.removesuffix(".md") for name in names} <= set(site)
    notebooks = {page.stem for page in (ROOT / "docs" / "notebooks").glob("*.md")} - {"index"}
    assert notebooks <= set((ROOT / "docs" / "notebooks" / "index.md").read_text(encoding="utf-8").splitlines())


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(set(vcr.__all__) - set(re.findall(r"\w+", text)) - {"__version__"}) == []


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the code blocks of a page in one of these languages."""
    text = page.read_text(encoding="utf-8")
    return [code for language, code in re.findall(r"```(\S+)\n(.*?)```", text, re.DOTALL) if language in languages]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_are_valid(page: Path) -> None:
    for code in blocks(page, "python", "{code-cell}"):
        ast.parse(re.sub(r"^:tags:.*\n", "", code))
        assert sorted(set(re.findall(r"\bvcr\.(\w+)", code)) - set(vcr.__all__)) == []
    for code in blocks(page, "toml"):
        tomllib.loads(code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = re.findall(r"\$ vcr-graphormer (\w+)((?:[^\n\\]|\\\n)*)", "".join(blocks(page, "console", "sh")))
    for name, words in shown:
        assert name in commands
        known = {option for parameter in commands[name].params for option in parameter.opts}
        asked = re.findall(r"(?<=\s)--[\w-]+", words.split("#")[0])
        assert sorted(set(asked) - known - {"--help"}) == []


@pytest.mark.parametrize("name", ["start", "scikit-learn", "pyg"])
def test_first_pages_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = vcr.generate(nodes=150, edges=500, classes=3, features=6, homophily=0.9, seed=0)
    monkeypatch.setattr(vcr, "digits", lambda: small)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in blocks(ROOT / "docs" / f"{name}.md", "python"):
        exec(compile(code, f"docs/{name}.md", "exec"), names)


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
