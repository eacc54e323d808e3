"""The README's file tree names every file once, with a phrase, and nothing that is not there."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TREE = re.search(r"<!-- tree -->\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
FOLDERS = ("trainer/scenarios/", "trainer/warm/", "benchmarks/", "tests/", "docs/")
"Named as a whole."
UNNAMED = re.compile(r"__init__\.py$|^\.|^(README|CONTRIBUTING|CHANGELOG)\.md$|^LICENSE$|py\.typed$")


def entries():
    """path -> phrase, folders with a slash at the end; a file's folder is the last less indented line."""
    assert TREE, "README.md has no tree between <!-- tree --> and ```"
    found, parents = {}, []
    for line in TREE[1].splitlines():
        name, _, phrase = line.strip().partition("  ")
        depth = (len(line) - len(line.lstrip())) // 2
        parents = parents[:depth]
        path = "".join(parents) + name
        if name.endswith("/"):
            parents.append(name)
        assert path not in found, f"{path} stands twice"
        found[path] = phrase.strip()
    return found


def tracked():
    out = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    links = ("src/regimescope/trainer", "src/regimescope/monitor", "src/regimescope/detectors")
    return {p for p in out if not UNNAMED.search(p) and p not in links and not p.startswith(FOLDERS)}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the list of tracked files")
def test_tree_is_what_is_there():
    named = {path for path in entries() if not path.endswith("/")}
    assert named == tracked()


def test_every_entry_has_a_phrase():
    bare = [path for path, phrase in entries().items() if not phrase]
    assert not bare


def test_folders_and_links_exist():
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(((?!https?:)[^)#]+)\)", text)
    assert targets and not [t for t in targets if not (ROOT / t).exists()]
    assert not [path for path in entries() if not (ROOT / path).exists()]
