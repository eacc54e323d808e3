"""`./dev bench` lists the benchmarks, `./dev bench NAME [options]` runs one. Every figure in README and docs comes from
one of them.

A benchmark is a module of this folder with `main(argv) -> int`, or a folder whose `__main__` has it; names that begin
with an underscore are helpers.
"""

from __future__ import annotations

import ast
import pkgutil
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent


def benchmarks() -> dict[str, str]:
    """Name -> first line of its docstring."""
    found = {}
    for module in pkgutil.iter_modules([str(FOLDER)]):
        if module.name.startswith("_"):
            continue
        source = FOLDER / module.name / "__main__.py" if module.ispkg else FOLDER / f"{module.name}.py"
        text = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
        found[module.name] = text.partition("\n")[0]
    return found


def main(argv: list[str]) -> int:
    known = benchmarks()
    if not argv or argv[0] in ("-h", "--help"):
        width = max(map(len, known))
        print(
            "usage: ./dev bench NAME [options]\n\n"
            + "\n".join(f"  {name:<{width}}  {text}" for name, text in known.items())
        )
        return 0
    name = argv[0]
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known)}"
        print(f"bench: no benchmark {name!r}: {hint}", file=sys.stderr)
        return 2
    module = import_module(f"benchmarks.{name}.__main__" if (FOLDER / name).is_dir() else f"benchmarks.{name}")
    result: int = module.main(argv[1:])
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
