"""What each rule can see of a log."""

import tomllib
from importlib import resources

import pytest

from regimescope.detectors import Event, Suite
from regimescope.detectors.blind import inputs
from regimescope.detectors.sources import source_line

FULL = {
    "response_length_mean": 400.0, "accuracy": 0.5, "accuracy.n": 256.0, "entropy_mean": 0.5, "grad_norm": 1.0,
    "kl_step": 0.01, "rep4_mean": 0.05, "repetition_frac": 0.01, "truncated_frac": 0.02, "zero_variance_frac": 0.2,
    "all_wrong_frac": 0.1, "loss": 0.1, "infra_failed_frac": 0.0, "infra_failed_frac.n": 64.0, "mismatch_k1": 0.001,
    "mismatch_logp_abs": 0.01, "mismatch_k3": 0.001, "R4.clip_low_frac": 0.0, "R3.clip_high_frac": 0.0,
    "R4.ratio_mean": 0.95, "R4.dispo_gap": 0.0,
    "R1.clip_high_frac": 0.0,
    "R1.entropy_effect": 0.1, "R4.token_frac": 0.2, "R4.log_ratio_mean": -0.1,
    "eval.accuracy": 0.5, "eval.accuracy.n": 200.0,
}  # fmt: skip
BOUNDS = {"ratio_source": "behaviour", "neg.w_min": 0.0, "neg.w_max": 101.0}


def blind(rows, declared=BOUNDS):
    suite = Suite()
    for step, row in enumerate(rows):
        suite.update(step, row, [Event(kind="start", step=0, data=declared)] if step == 0 else ())
    return {b.rule: b for b in suite.blind()}


def test_a_full_log_sees_everything(rules):
    report = blind([FULL] * 12)
    assert list(report) == [rule.name for rule in rules if rule.enabled]
    assert {b.status for b in report.values()} == {"ok"} and not any(b.reason or b.help for b in report.values())


def test_warming_up_counts():
    report = blind([FULL] * 4)
    assert (report["length_collapse"].status, report["length_collapse"].reason) == ("warming", "warming up 4/10")
    assert report["repetition_collapse"].status == "warming" and report["exploration_decay"].reason == "warming up 4/8"
    assert report["length_floor"].status == "ok"


@pytest.mark.parametrize("name", ["rep4_mean", "accuracy", "infra_failed_frac", "R4.ratio_mean", "mismatch_k3"])
def test_a_missing_input_makes_its_rules_blind_and_says_what_to_log(rules, name):
    report = blind([{k: v for k, v in FULL.items() if k != name}] * 12)
    for rule in rules:
        if rule.metric == name and rule.enabled:
            assert report[rule.name].status == "blind" and f"{name} is not logged" in report[rule.name].reason
            assert report[rule.name].help == rule.help != ""


def test_a_missing_optional_input_degrades():
    report = blind([{k: v for k, v in FULL.items() if not k.startswith("R")}] * 12)
    assert report["repetition_collapse"].status == "degraded" and report["length_collapse"].status == "degraded"


def test_one_of_several_alternatives_is_enough():
    one = {k: v for k, v in FULL.items() if k not in ("grad_norm", "kl_step", "zero_variance_frac", "loss")}
    assert blind([one] * 12)["length_collapse"].status == "ok" and blind([one] * 12)["nonfinite"].status == "ok"


def test_a_metric_that_falls_silent():
    silent = {k: v for k, v in FULL.items() if k != "rep4_mean"}
    assert blind([FULL] * 12 + [silent] * 3)["repetition_level"].status == "ok"
    report = blind([FULL] * 12 + [silent] * 5)["repetition_level"]
    assert report.status == "blind" and report.reason == "rep4_mean is silent for 5 points"


def test_a_sparse_metric_has_its_own_interval():
    rest = {k: v for k, v in FULL.items() if k != "accuracy"}
    rows = [FULL if step % 10 == 0 else rest for step in range(60)]
    assert blind(rows + [rest] * 5)["accuracy_floor"].status == "ok"
    assert blind(rows + [rest] * 40)["accuracy_floor"].status == "blind"


FRAMEWORKS = ("trl", "verl", "openrlhf", "prime-rl", "slime", "regimescope")


@pytest.mark.parametrize(
    ("framework", "missing", "rule", "help"),
    [
        ("TRL 1.16.0", "zero_variance_frac", "zero_signal", "TRL logs it as frac_reward_zero_std."),
        ("verl 0.9.1", "entropy_mean", "entropy_collapse", "verl logs it as actor/entropy."),
        ("OpenRLHF 0.11.2", "mismatch_k1", "mismatch_k1", "OpenRLHF logs it as vllm_kl."),
        ("regimescope 0.1", "eval.accuracy", "heldout_gap", "Set evaluation.every above 0"),
    ],
)
def test_the_help_is_that_of_the_run_s_framework(rules, framework, missing, rule, help):
    log = [{name: value for name, value in FULL.items() if name != missing}] * 12
    assert blind(log, BOUNDS | {"framework": framework})[rule].help.startswith(help)
    for other in ({}, {"framework": "my own loop"}):
        assert blind(log, BOUNDS | other)[rule].help == rules[rule].help


def test_a_metric_that_fell_silent_is_not_explained_by_the_framework(rules):
    silent = {name: value for name, value in FULL.items() if name != "entropy_mean"}
    report = blind([FULL] * 12 + [silent] * 9, BOUNDS | {"framework": "verl"})["entropy_collapse"]
    assert (report.status, report.help) == ("blind", rules["entropy_collapse"].help)


def test_buckets_that_a_framework_does_not_log_are_explained_by_its_line(rules):
    log = [{name: value for name, value in FULL.items() if not name.startswith("R")}] * 12
    report = blind(log, BOUNDS | {"framework": "TRL 1.16"})
    assert report["early_r4"].help == rules.texts["log_trl"] == report["repetition_collapse"].help


def test_the_table_of_frameworks_names_metrics_that_some_rule_reads(rules):
    read = {name for rule in rules for name in inputs(rule)}
    for framework in FRAMEWORKS:
        known = {name for name in read if source_line(framework, name)}
        assert known, framework
    tables = tomllib.loads(resources.files("regimescope.detectors").joinpath("sources.toml").read_text("utf-8"))
    assert set(tables) == set(FRAMEWORKS)
    assert {name for table in tables.values() for name in table} <= read
    for framework in ("trl", "verl", "openrlhf"):  # the inputs of section 9 of the design
        assert {"rep4_mean", "entropy_mean", "zero_variance_frac", "truncated_frac", "grad_norm", "accuracy",
                "eval.accuracy", "infra_failed_frac"} <= set(tables[framework])  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "row", "reason"),
    [
        ({"ratio_source": "proximal"}, {}, "clip signals inert"),
        ({"ratio_source": "infer"}, {}, "buckets noisy"),
        ({}, {f"R{i}.token_frac": 0.0 for i in (1, 2, 3, 4)}, "on-policy"),
    ],
)
def test_inputs_that_are_there_and_say_nothing(declared, row, reason):
    report = blind([FULL | row] * 12, BOUNDS | declared)["repetition_collapse"]
    assert report.status == "degraded" and report.reason.startswith(reason)
