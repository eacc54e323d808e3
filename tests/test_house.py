"""The house rules that no other tool checks: links, exports, headings of files, commands named in the docs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from regimescope.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
PACKAGES = ("trainer", "monitor", "detectors")
FOLDERS = (*PACKAGES, "benchmarks", "tests")
FOUND = [ROOT / "app.py", *(p for name in FOLDERS for p in sorted((ROOT / name).rglob("*.py")))]
SOURCES = [p for p in FOUND if not any(part.startswith(".") for part in p.relative_to(ROOT).parts)]
"Not those of an environment that a benchmark has made."


@pytest.mark.parametrize("name", PACKAGES)
def test_package_is_a_relative_link(name):
    link = ROOT / "src" / "regimescope" / name
    assert link.is_symlink() and link.readlink() == Path(f"../../{name}")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_file_opens_with_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no module docstring"


def test_no_package_file_under_tests():
    """In importlib mode such a file makes its folder importable under a bare name."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_every_command_is_documented():
    docs = "\n".join(p.read_text() for p in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert not [name for name in COMMANDS if f"regimescope {name}" not in docs]


def test_help_and_unknown_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert main(["chek"]) == 2
    assert "Did you mean 'check'?" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["regimescope.detectors", "regimescope.monitor"])
def test_light_parts_stay_light(module):
    """A Recorder or a detector suite inside somebody's trainer must not drag our packages in."""
    code = f"import sys, {module}; print(*{{m.partition('.')[0] for m in sys.modules}} - sys.stdlib_module_names)"
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [m for m in out if not m.startswith(("_", "regimescope", "site", "distutils"))]
