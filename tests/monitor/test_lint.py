"""What frameworks make of their clip settings. The windows are those of the table in docs/import.md, read from the
frameworks' sources."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.cli import main
from regimescope.monitor.errors import LintError
from regimescope.monitor.framework_windows import effective, frameworks
from regimescope.monitor.lint import nearest, risks
from regimescope.monitor.windows import windows

CISPO = {
    "trl": {"loss_type": "cispo"}, "ms-swift": {"loss_type": "cispo"}, "verl": {"loss_mode": "cispo"},
    "slime": {"advantage_estimator": "cispo"}, "nemo-rl": {"use_cispo": True}, "skyrl": {"policy_loss_type": "cispo"},
    "tinker": {"loss_fn": "cispo"},
}  # fmt: skip


def window(framework, settings):
    bounds = effective(framework, settings).bounds
    assert bounds.pos == bounds.neg
    return [bounds.neg.w_min, bounds.neg.w_max]


@pytest.mark.parametrize(
    ("framework", "default", "settings", "documented"),
    [
        ("trl", [0, 0.2], {"epsilon_high": 5.0}, [0, 5]),
        ("ms-swift", [0, 0.2], {"epsilon_high": "5.0"}, [0, 5]),
        ("verl", [0.8, 1.2], {"clip_ratio_low": 10, "clip_ratio_high": 0.2}, [0, 1.2]),
        ("slime", [0.8, 1.2], {"--eps-clip": 1.0, "--eps-clip-high": 4.0}, [0, 5]),
        ("nemo-rl", [0.8, 1.2], {"loss_fn.ratio_clip_min": 1.0, "loss_fn.ratio_clip_max": 5.0}, [0, 6]),
        ("skyrl", [0, 5], {"cispo_eps_clip_low": 0, "cispo_eps_clip_high": 5}, [1, 6]),
        ("tinker", [0, 4], {}, [0, 4]),
    ],
)
def test_cispo_by_default_and_as_documented(framework, default, settings, documented):
    assert window(framework, CISPO[framework]) == default
    assert window(framework, {**CISPO[framework], **settings}) == documented


def test_ppos_clip_drops_one_side_of_each_sign():
    found = effective("verl", {})
    assert not found.caps and found.rule.pos.drop_above == 1.2 and found.rule.neg.drop_below == 0.8
    assert (found.bounds.pos.w_min, found.bounds.neg.w_max) == (0.0, 3.0)
    assert math.isinf(effective("trl", {}).bounds.neg.w_max)
    assert effective("trl", {"delta": 4.0}).bounds.neg.w_max == 4.0


def test_a_setting_is_known_by_its_last_part_and_the_first_key_that_is_set_counts():
    path = "actor_rollout_ref.actor."
    assert effective("verl", {path + "clip_ratio": 0.3}).bounds.pos.w_max == 1.3
    both = {path + "clip_ratio": 0.3, path + "clip_ratio_high": 0.28}
    assert effective("verl", both).bounds.pos.w_max == 1.28


def said(framework, settings):
    return {(risk.severity, risk.side) for risk in risks(effective(framework, settings))}


def test_the_failures_that_defaults_court():
    assert said("verl", {"loss_mode": "cispo"}) >= {("warning", "neg_max"), ("warning", "neg_min")}
    assert ("warning", "pos_max") in said("trl", {"loss_type": "cispo"})
    assert said("skyrl", {"policy_loss_type": "cispo", "cispo_eps_clip_low": 0}) >= {("warning", "neg_min")}
    assert not any(severity == "warning" for severity, _ in said("verl", {}))
    wide = {"loss_mode": "cispo", "clip_ratio_low": 1.0, "clip_ratio_high": 100.0}
    assert said("verl", wide) == {("note", "pos_min")}


@pytest.mark.parametrize("framework", frameworks())
def test_the_settings_that_are_advised_make_the_window_that_is_promised(framework):
    for published in windows():
        if published.name not in ("dispo", "cispo"):
            continue
        made, settings, missed = nearest(framework, published.bounds)
        assert made.bounds.neg == published.bounds.neg, "the negative side goes first"
        assert bool(missed) == (made.bounds != published.bounds)
        assert not any(risk.severity == "warning" for risk in risks(made)) and settings


@given(st.sampled_from(sorted(CISPO)), st.floats(0, 1), st.floats(1, 200))
def test_a_window_that_can_be_written_is_read_back(framework, low, high):
    made = effective(framework, CISPO[framework])
    settings = dict(CISPO[framework])
    for side, value in (("neg_min", low), ("neg_max", high)):
        if made.sides[side].key:
            settings[made.sides[side].key] = made.sides[side].spelt(value)
    found = effective(framework, settings).bounds.neg
    assert math.isclose(found.w_max, high, abs_tol=1e-8)
    assert math.isclose(found.w_min, low if made.sides["neg_min"].key else 0.0, abs_tol=1e-8)


@pytest.mark.parametrize(
    ("framework", "settings", "reason"),
    [
        ("trl", {"loss_type": "cipso"}, "did you mean 'cispo'"),
        ("verl", {"clip_ratio": "often"}, "want a number"),
        ("ppo", {}, "no framework 'ppo'"),
    ],
)
def test_a_mistake_is_named(framework, settings, reason):
    with pytest.raises(LintError, match=reason):
        effective(framework, settings)


def test_a_window_upside_down_is_refused():
    with pytest.raises(LintError, match="epsilon_high"):
        _ = effective("trl", {"loss_type": "cispo", "epsilon_high": -1}).bounds


def test_the_command_reads_files_and_words_and_its_exit_code_tells(tmp_path, capsys):
    yaml = tmp_path / "a.yaml"
    yaml.write_text("actor:\n  policy_loss:\n    loss_mode: cispo   # the loss alone\n")
    assert main(["lint", "--framework", "verl", str(yaml)]) == 1
    assert "A<0: [0.8, 1.2]" in capsys.readouterr().out
    script = tmp_path / "a.sh"
    script.write_text("python -m verl \\\n  a.loss_mode=cispo a.clip_ratio_low=1 \\\n  a.clip_ratio_high=100\n")
    assert main(["lint", "--framework", "verl", str(script), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["window"] == {"pos_min": 0.0, "pos_max": 101.0, "neg_min": 0.0, "neg_max": 101.0}
    assert main(["lint", "--framework", "verl", "clip_ratio_hgh=3"]) == 0
    assert "did you mean clip_ratio_high?" in capsys.readouterr().out
    assert main(["lint", "--framework", "verl", str(tmp_path / "none.toml")]) == 2


def test_an_import_whose_settings_are_known_is_linted(tmp_path, capsys):
    log = tmp_path / "a.log"
    rows = [f"{{'loss': 0.1, 'reward': 0.{i}, 'completions/mean_length': 90.0, 'epoch': 0.{i}}}" for i in range(1, 6)]
    log.write_text("\n".join(rows))
    assert main(["check", str(log), "--config", "loss_type=cispo", "--json"]) == 0
    lint = json.loads(capsys.readouterr().out)["lint"]
    assert [(alert["rule"], alert["severity"]) for alert in lint] == [("bounds_r3", "warning")]
