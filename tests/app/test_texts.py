"""Numbers, spans and labels as people read them; every signature of the rules has its texts."""

import math
from pathlib import Path

import pytest

from regimescope.detectors import load_rules
from regimescope.monitor.ui import palette, texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.0, "0"),
        (3.2, "3.2"),
        (0.0585, "0.0585"),
        (34.56, "34.6"),
        (412.0, "412"),
        (1240332.0, "1,240,332"),
        (0.00012, "1.2e-04"),
        (-0.88, "-0.88"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
    ],
)
def test_number(value, text):
    assert texts.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 %"), (0.004, "0.4 %"), (0.62, "62 %"), (None, "\N{EN DASH}"), (math.nan, "NaN")]
)
def test_percent(value, text):
    assert texts.percent(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (1.4, "1.4 s"), (38, "38 s"), (240, "4 min"), (9000, "2.5 h"), (259_200, "3 d"), (-5, "0 s")],
)
def test_span(seconds, text):
    assert texts.span(seconds) == text


def test_ago_has_whole_seconds():
    assert (texts.ago(1.4), texts.ago(-1), texts.ago(89.2), texts.ago(240)) == ("1 s", "0 s", "89 s", "4 min")


def test_eps_is_a_view_of_the_weight():
    assert texts.eps_label("neg.w_min", 0.0) == "eps_low 1"
    assert texts.eps_label("pos.w_max", 11.0) == "eps_high 10"
    assert texts.eps_label("pos.w_min", 0.8) == "eps_low 0.2"


def test_every_bound_has_a_regime_and_a_label():
    assert {texts.REGIME_OF[name] for name in texts.BOUNDS} == {"R1", "R2", "R3", "R4"}
    assert texts.bound_label("neg.w_min") == "w_min of A<0"
    assert all(texts.driver_text(regime) for regime in ("R1", "R2", "R3", "R4"))


def test_every_signature_of_the_rules_has_a_title_and_a_reason():
    for rule in load_rules():
        found = texts.signature_text(rule.signature)
        assert found.title and found.why, rule.signature


def test_an_unknown_signature_keeps_its_name():
    assert texts.signature_text("some_new_thing").title == "Some new thing"


def test_the_palette_names_the_same_colours_in_both_themes():
    tables = palette.palette()
    assert set(tables["light"]) == set(tables["dark"])
    assert palette.faded("#A63603", 0.5) == "rgba(166,54,3,0.5)"


def test_no_folder_named_pages_lies_beside_the_page_script():
    assert not (Path(texts.__file__).parent / "pages").exists()  # Streamlit would run its files bare
