"""The rooms of the package: a room imports only rooms above it."""

import ast
from pathlib import Path

import pytest

import vcr_graphormer

PACKAGE = Path(__file__).parent.parent / "src" / "vcr_graphormer"
ROOMS = ("base", "data", "ranking", "tokens", "model", "training", "explain", "runs", "report", "cli")
MOST_FILES = 14
FILES = sorted(PACKAGE.rglob("*.py"))


def imported_rooms(file: Path) -> set[str]:
    """The rooms a file imports from, at its top or inside its functions, for types or for use."""
    package = file.relative_to(PACKAGE.parent).parent.parts
    modules = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            modules.add((*above, *(node.module or "").split(".")))
            modules |= {(*above, *(node.module or "").split("."), name.name) for name in node.names}
        elif isinstance(node, ast.Import):
            modules |= {tuple(name.name.split(".")) for name in node.names}
    inside = [[part for part in module[1:] if part] for module in modules if module[:1] == ("vcr_graphormer",)]
    firsts = {parts[0] for parts in inside if parts}
    # A public name stands for its module: `from .. import write_report` reaches the room report.
    return {vcr_graphormer._HOMES.get(name, name).split(".")[0] for name in firsts} & set(ROOMS)


def test_the_rooms_are_these() -> None:
    folders = {file.parent.name for file in PACKAGE.glob("*/*.py")}
    assert folders == set(ROOMS)
    assert {file.name for file in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py", "errors.py", "pyg.py"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_above_it(room: str) -> None:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for file in (PACKAGE / room).rglob("*.py"):
        # `Run.report` is the one exception: users look for it there, and it is bound when it is called.
        late = {"report"} if file.relative_to(PACKAGE) == Path("runs/run.py") else set()
        assert imported_rooms(file) <= allowed | late, file


def test_the_test_would_notice() -> None:
    assert imported_rooms(PACKAGE / "cli" / "train.py") >= {"runs", "data"}
    assert imported_rooms(PACKAGE / "errors.py") == set()
    assert "report" in imported_rooms(PACKAGE / "runs" / "run.py")


@pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=lambda folder: folder.name)
def test_a_room_is_seen_at_a_glance(folder: Path) -> None:
    files = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
    assert len(files) <= MOST_FILES
    assert folder == PACKAGE or ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
