"""Every rule and every signature is in the docs; the package exports what it says, and its examples run."""

import doctest
import importlib
import pkgutil
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


@pytest.mark.parametrize(
    "signature",
    [
        "length_collapse", "repetition_collapse", "exploration_decay", "engine_mismatch", "heldout_gap",
        "negative_push", "entropy_collapse", "length_runaway", "zero_signal",
    ],
)  # fmt: skip
def test_every_signature_has_its_runbook(rules, signature):
    text = (DOCS / "signatures" / f"{signature}.md").read_text(encoding="utf-8")
    for heading in ("What it looks like", "Why", "What to check", "Which bound to move"):
        assert f"## {heading}" in text
    assert all(f"`{rule.name}`" in text for rule in rules if rule.signature == signature)


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
