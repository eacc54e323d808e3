"""What a run records: every published objective trains, and its rule, slices and measures are in the segment."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from regimescope.cli import main as cli
from regimescope.monitor.bounds import WeightRule
from regimescope.trainer import loop
from regimescope.trainer.answers.judge_process import JudgeProcess
from regimescope.trainer.answers.verifier import Verifier
from regimescope.trainer.loss.published import published_names, published_rule

KEYS = {
    "model.path": "warm:B",
    "rollout.prompts": 8,
    "rollout.group": 4,
    "rollout.max_tokens": 48,
    "update.batch": 8,
    "update.lr": 1e-3,
    "evaluation.every": 0,
    "checkpoint.every": 0,
}


def train(run_dir: Path, *options: str, **keys: object) -> list[dict[str, Any]]:
    """Lines of a run of a few steps."""
    settings = [word for key, value in {**KEYS, **keys}.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    assert cli(["train", "--run-dir", str(run_dir), "--steps", "2", *settings, *options]) == 0
    (path,) = (run_dir / "segments").glob("r*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_kind(lines: list[dict[str, Any]], kind: str, **where: object) -> list[dict[str, Any]]:
    return [line for line in lines if line["k"] == kind and all(line.get(key) == value for key, value in where.items())]


def column_sums(lines: list[dict[str, Any]], column: str) -> list[float]:
    return [sum(values) for values in zip(*(line[column] for line in lines), strict=True)]


def mean(line: dict[str, Any], name: str) -> float:
    value = line["m"][name]
    return float(value[0] if isinstance(value, list) else value)


@pytest.mark.parametrize("name", published_names())
def test_every_published_objective_trains(tmp_path: Path, name: str) -> None:
    lines = train(tmp_path / name, "--preset", name)
    header, steps = lines[0], of_kind(lines, "step")
    assert header["objective"] == name
    assert WeightRule.from_wire(header["rule"]) == published_rule(name)
    assert header["effect"] == {"every": 8, "seed": 17} and "entropy_effect" in header["can"]
    for sign in ("pos", "neg"):
        assert (header["limits"][sign] is None) == (header["rule"][sign]["base"] == "1")
    assert [line["s"] for line in steps] == [0, 1] and all(math.isfinite(mean(s, "grad_norm")) for s in steps)
    assert ("kl_ref" in steps[1]["m"]) == (name in ("grpo", "aspo"))
    first, *_, last = of_kind(lines, "buckets")
    regimes = slice(0, 4)
    assert sum(first["tokens"][regimes]) == 0  # on policy: every ratio is 1
    assert sum(last["tokens"][regimes]) > 0
    effects = [sum(line["entropy_effect_tokens"]) for line in of_kind(lines, "buckets")]
    tokens = [sum(line["tokens"]) for line in of_kind(lines, "buckets")]
    assert sum(effects) == pytest.approx(sum(tokens) / 8, rel=0.3)


def test_every_update_samples_other_tokens_for_the_entropy_effect(tmp_path: Path) -> None:
    """One response per update, in the same order of length in both passes: the same sample would give equal counts."""
    lines = train(tmp_path / "run", "--steps", "1", **{"update.batch": 1, "update.passes": 2, "record.effect_every": 2})
    updates = of_kind(lines, "buckets")
    counts = [(sum(x["tokens"]), sum(x["entropy_effect_tokens"])) for x in updates]
    first, second = sorted(counts[: len(counts) // 2]), sorted(counts[len(counts) // 2 :])
    assert [n for n, _ in first] == [n for n, _ in second]  # the same responses
    assert first != second


def test_positive_signs_alone_switch_the_negative_side_off(tmp_path: Path) -> None:
    lines = train(tmp_path / "run", "--preset", "dispo", **{"update.signs": "positive", "bounds.pos": [1.0, 11.0]})
    assert lines[0]["bounds"] == {"pos": [1.0, 11.0], "neg": [0.0, 0.0]} and lines[0]["limits"]["neg"] is None
    for line in of_kind(lines, "buckets"):
        assert [line["abs_adv_weight_sum"][i] for i in (2, 3, 5)] == [0, 0, 0]
        assert line["rev"] == 0 and line["bounds"] == lines[0]["bounds"]


def test_micro_batches_change_nothing_but_rounding(tmp_path: Path) -> None:
    whole, split = (train(tmp_path / str(n), "--steps", "1", **{"update.micro_batch": n}) for n in (0, 3))
    for one, other in zip(of_kind(whole, "buckets"), of_kind(split, "buckets"), strict=True):
        assert sum(one["tokens"]) == sum(other["tokens"]) and one["entropy_effect_tokens"][4:] != []
        assert sum(one["entropy_effect_tokens"]) == sum(other["entropy_effect_tokens"])
        assert sum(one["entropy_sum"]) == pytest.approx(sum(other["entropy_sum"]), rel=1e-3)
    (one,), (other,) = of_kind(whole, "step"), of_kind(split, "step")
    for name in ("grad_norm", "ratio_mean", "ess_frac", "logit_norm_mean"):
        assert mean(one, name) == pytest.approx(mean(other, name), rel=1e-3)


def test_several_tasks_are_slices_that_add_up(tmp_path: Path) -> None:
    data = tmp_path / "sums.jsonl"
    problems = [f"{a}+{b}-1=" for a in range(1, 10) for b in range(1, 10)]
    data.write_text("\n".join(json.dumps({"prompt": p, "answer": eval(p[:-1])}) for p in problems))
    options = {"task.sources": ["A", "B", str(data)], "evaluation.every": 1, "evaluation.prompts": 12}
    lines = train(tmp_path / "run", **options, **{"rollout.prompts": 9})
    envs = {line["sl"]["env"] for line in lines if "sl" in line}
    assert len(envs) == 3
    for step in (0, 1):
        updates = of_kind(lines, "buckets", s=step, sl=None)
        slices = [x for x in of_kind(lines, "buckets", s=step) if "sl" in x]
        assert len(updates) > 2 and 1 < len(slices) <= 3  # once a step, of tasks with something to learn from
        for column in ("tokens", "clip_high", "entropy_effect_tokens"):
            assert column_sums(updates, column) == column_sums(slices, column)
        for column in ("ratio_sum", "abs_adv_weight_sum", "entropy_sum", "log_ratio_sq_sum"):
            assert column_sums(updates, column) == pytest.approx(column_sums(slices, column), rel=1e-9, abs=1e-9)
    for step in of_kind(lines, "step"):
        own = [x for x in of_kind(lines, "scalars", s=step["s"]) if "accuracy" in x["m"]]
        assert sum(x["m"]["accuracy"][1] for x in own) == step["m"]["accuracy"][1]
        total = sum(x["m"]["accuracy"][0] * x["m"]["accuracy"][1] for x in own)
        assert total / step["m"]["accuracy"][1] == pytest.approx(step["m"]["accuracy"][0])
        held_out = [x for x in of_kind(lines, "scalars", s=step["s"]) if "eval.accuracy" in x["m"]]
        assert {x["sl"]["env"] for x in held_out} == envs
        assert len(of_kind(lines, "hist", s=step["s"])) == 4


def test_stale_rollouts_are_sliced_by_their_lag(tmp_path: Path) -> None:
    lines = train(tmp_path / "run", "--steps", "3", **{"rollout.stale": 1})
    trained = [line for line in of_kind(lines, "buckets") if "sl" in line]
    assert [line["sl"]["lag"] for line in trained] == ["0", "1"]  # step 0 fills the queue, step 1 makes version 1
    for line in trained:
        assert line["tokens"] == column_sums(of_kind(lines, "buckets", s=line["s"], sl=None), "tokens")


def test_dynamic_sampling_fills_the_batch_and_says_what_it_took(tmp_path: Path) -> None:
    lines = train(tmp_path / "run", **{"rollout.resample": 3})
    for step in of_kind(lines, "step"):
        prompts = mean(step, "sampled_prompts")
        assert prompts in (8, 16, 24, 32)
        assert step["m"]["accuracy"][1] == prompts * 4  # over all that were generated
        assert step["m"]["zero_variance_frac"][1] == prompts
        trained = sum(sum(line["tokens"]) for line in of_kind(lines, "buckets", s=step["s"]))
        assert trained == 2 * step["m"]["lag_mean"][1]  # two passes
        full = 2 * math.ceil(8 * 4 / 8)
        assert len(of_kind(lines, "buckets", s=step["s"])) == full or prompts == 32


def test_equal_groups_that_stay_are_zero_advantage_tokens(tmp_path: Path) -> None:
    lines = train(tmp_path / "run", **{"advantage.equal_groups": "keep"})
    step = of_kind(lines, "step")[0]
    zero = sum(line["tokens"][6] for line in of_kind(lines, "buckets", s=0))
    assert mean(step, "zero_variance_frac") > 0 and zero > 0
    assert step["m"]["lag_mean"][1] == step["m"]["tokens"]  # every response was trained on


def test_the_engine_of_this_trainer_has_no_mismatch_to_correct(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain")
    corrected = train(tmp_path / "corrected", **{"mismatch.correction": "token_mask", "mismatch.floor": 0.5})
    for one, other in zip(of_kind(plain, "step"), of_kind(corrected, "step"), strict=True):
        assert mean(one, "mismatch_logp_abs") < 1e-5 and abs(mean(one, "mismatch_ratio_mean") - 1) < 1e-5
        assert mean(other, "mismatch_factor_mean") == pytest.approx(1, abs=1e-4)
        assert mean(other, "mismatch_masked_frac") == 0 and "mismatch_factor_mean" not in one["m"]


def test_a_judge_that_fails_is_infrastructure_and_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker process dies at once; the references are no numbers, so every answer needs it."""
    data = tmp_path / "roots.jsonl"
    data.write_text("\n".join(json.dumps({"prompt": f"{a}+{a}=", "answer": rf"\sqrt{{{a}}}"}) for a in range(2, 8)))
    judge = JudgeProcess(command=(sys.executable, "-c", "raise SystemExit(3)"))
    monkeypatch.setattr(loop, "Verifier", lambda: Verifier(judge=judge))
    lines = train(tmp_path / "run", "--steps", "1", **{"task.sources": [str(data)], "rollout.prompts": 2})
    (step,) = of_kind(lines, "step")
    (event,) = [line for line in of_kind(lines, "event") if line["kind"] == "verifier_failed"]
    failed = mean(step, "infra_failed_frac") * step["m"]["infra_failed_frac"][1]
    assert failed > 0 and sum(event["data"].values()) >= failed
    assert mean(step, "accuracy") == 0
    if failed == 8:
        assert "reward_mean" not in step["m"]  # no verdict, no reward


def test_the_loss_is_the_same_without_the_statistics(tmp_path: Path) -> None:
    with_, without = (train(tmp_path / word, **{"record.statistics": word == "with"}) for word in ("with", "without"))
    names = ("grad_norm", "ratio_max", "entropy_mean", "response_length_mean", "ess_frac")
    for one, other in zip(of_kind(with_, "step"), of_kind(without, "step"), strict=True):
        assert [one["m"][name] for name in names] == [other["m"][name] for name in names]
    assert not of_kind(without, "buckets") and without[0]["effect"] is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "disp0"}, "objective 'disp0': did you mean 'dispo'"),
        ({"update.aggregation": "token-mean"}, "update.aggregation = 'token-mean': did you mean 'token_mean'"),
        ({"update.signs": "negative"}, "did you mean 'positive'"),
        ({"kl.estimator": "k4"}, "kl.estimator = 'k4'"),
        ({"kl.coef": -1}, "kl.coef = -1.0: must be finite and 0 or greater"),
        ({"advantage.ddof": 2}, "advantage.ddof = 2: want 0 or 1"),
        ({"rollout.resample": 4}, "rollout.resample = 4: at most 3 rounds"),
        ({"mismatch.correction": "token_mask", "mismatch.floor": 3}, "mismatch correction [3, 2]"),
        ({"objective": "online-sft", "bounds.pos": [0, 2]}, "pos: the weight of this sign is constant"),
        ({"bounds.pos": [2.0, 1.0]}, "w_min must be finite"),
        ({"task.sources": "A"}, "task.sources = 'A': want a list of strings"),
        ({"task.sources": ["nowhere.jsonl"]}, "nowhere.jsonl"),
        ({"task.sources": ["AA"]}, "'AA'"),
    ],
)
def test_a_mistake_in_the_configuration_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, object], message: str
) -> None:
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    assert cli(["train", "--run-dir", str(tmp_path / "run"), *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not list(tmp_path.glob("run/segments/*"))
