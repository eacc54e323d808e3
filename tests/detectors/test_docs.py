"""Every rule and every signature is in the docs; the package exports what it says, and its examples run."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import regimescope.detectors as detectors

DOCS = Path(__file__).parents[2] / "docs"
MODULES = [m.name for m in pkgutil.walk_packages(detectors.__path__, "regimescope.detectors.")]


def test_every_rule_is_documented(rules):
    text = (DOCS / "detectors.md").read_text(encoding="utf-8")
    assert [rule.name for rule in rules if f"`{rule.name}`" not in text] == []


def test_every_number_of_the_core_is_documented(rules):
    text = (DOCS / "detectors.md").read_text(encoding="utf-8")
    assert [name for name in rules.core if f"`{name}`" not in text] == []


def test_every_signature_has_its_runbook(rules):
    """And nothing else has one, but the alert of the monitor's clock."""
    signatures = {rule.signature for rule in rules} | {"telemetry_gap"}
    assert {path.stem for path in (DOCS / "signatures").iterdir()} == signatures
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    for signature in signatures:
        text = (DOCS / "signatures" / f"{signature}.md").read_text(encoding="utf-8")
        for heading in ("What it looks like", "Why", "What to check", "Which bound to move"):
            assert f"## {heading}" in text, signature
        assert all(f"`{rule.name}`" in text for rule in rules if rule.signature == signature), signature
        assert f"(docs/signatures/{signature}.md)" in readme, signature


def test_a_runbook_says_that_its_rule_is_off(rules):
    for rule in rules:
        text = (DOCS / "signatures" / f"{rule.signature}.md").read_text(encoding="utf-8")
        off = re.search(rf"`{rule.name}`[^.]*off until measured", text) is not None
        assert off == (not rule.enabled), rule.name


def test_links_of_the_runbooks_lead_somewhere():
    for path in (DOCS / "signatures").iterdir():
        for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), (path.name, target)


def test_every_signature_has_an_example_that_runs(rules):
    """A doctest that names the signature or a rule of it, in what it calls or in what it prints."""
    finder = doctest.DocTestFinder()
    examples = [
        example.source + example.want
        for name in MODULES
        for found in finder.find(importlib.import_module(name))
        for example in found.examples
    ]
    names = {rule.signature: {rule.signature} for rule in rules}
    for rule in rules:
        names[rule.signature].add(rule.name)
    shown = {signature for signature, of in names.items() if any(name in text for text in examples for name in of)}
    assert set(names) == shown


def test_exports():
    assert sorted(detectors.__all__) == [
        "Blind", "DetectorError", "Event", "Finding", "Remedy", "Rules", "RulesError", "Slices", "Suite", "load_rules",
        "slice_inputs",
    ]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_an_example_ends_in_a_finding():
    assert "length_collapse critical firing" in (detectors.Suite.__doc__ or "")
