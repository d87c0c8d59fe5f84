"""Run a benchmark by its name: `python -m benchmarks NAME …`; without a name, list them all."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def scripts() -> dict[str, tuple[str, str]]:
    """Name → module and first sentence of every file here that has a function `main`."""
    found = {}
    for file in sorted(FOLDER.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        has_main = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if has_main and not file.stem.startswith("_"):
            module = ".".join(("benchmarks", *file.relative_to(FOLDER).with_suffix("").parts))
            found[file.stem] = module, (ast.get_docstring(tree) or "").split("\n")[0]
    return found


def main() -> None:
    """Hand the remaining words to the benchmark that is named first."""
    known = scripts()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in known:
        lines = [f"  {key:<14} {about}" for key, (_, about) in known.items()]
        unknown = f"unknown benchmark '{name}'\n\n" if name and not name.startswith("-") else ""
        sys.stderr.write(f"{unknown}usage: python -m benchmarks NAME …\n\n" + "\n".join(lines) + "\n")
        sys.exit(2 if unknown else 0)
    sys.argv = [f"python -m benchmarks {name}", *sys.argv[2:]]
    importlib.import_module(known[name][0]).main()


if __name__ == "__main__":
    main()
