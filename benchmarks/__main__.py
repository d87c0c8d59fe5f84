"""Run a benchmark by its name: `python -m benchmarks NAME …`; without a name, list all of them."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

from vcr_graphormer.cli.output import say_error
from vcr_graphormer.errors import VCRError, unknown_name

FOLDER = Path(__file__).parent
USAGE = "usage: python -m benchmarks NAME [OPTIONS]; python -m benchmarks NAME --help lists the options\n"


class Script(NamedTuple):
    """A benchmark that can be run by name."""

    module: str
    group: str
    about: str

    def load(self) -> Any:
        """Import and return its module, which has `make_parser` and `main`."""
        return importlib.import_module(self.module)


def scripts() -> dict[str, Script]:
    """Return every file below this folder that has a function `main`, by name.

    The files are read, not imported: listing them takes no torch.
    """
    by_name: dict[str, Script] = {}
    for file in sorted(FOLDER.rglob("*.py"), key=lambda file: (len(file.parts), file)):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        has_main = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if has_main and not file.stem.startswith("_"):
            parts = ("benchmarks", *file.relative_to(FOLDER).with_suffix("").parts)
            about = (ast.get_docstring(tree) or "").split("\n")[0]
            by_name[file.stem] = Script(".".join(parts), parts[1] if len(parts) > 2 else "", about)
    return by_name


def listing(known: dict[str, Script]) -> str:
    """Return the names of all benchmarks by folder, each with its first sentence."""
    lines, group = [USAGE], ""
    for name, script in known.items():
        if script.group != group:
            lines.append(f"\n{script.group}/")
            group = script.group
        lines.append(f"  {name:<16} {script.about}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Hand the remaining words to the benchmark that is named first."""
    known = scripts()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if not name or name.startswith("-"):
        sys.stdout.write(listing(known))
        sys.exit(0)
    if name not in known:
        say_error(str(unknown_name("benchmark", name, known)))
        sys.exit(2)
    sys.argv = [f"python -m benchmarks {name}", *sys.argv[2:]]
    try:
        known[name].load().main()
    except VCRError as error:
        say_error(str(error))
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
