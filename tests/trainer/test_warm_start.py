"""The warm-start command on a few steps, and what is promised about the shipped ones."""

import hashlib
from pathlib import Path

import pytest
import torch

from regimescope.trainer.policy import load_policy, new_tiny_policy, token_logps
from regimescope.trainer.task import TASKS
from regimescope.trainer.warm_start import NAMED_STAGE, Stage, learning_rate, main, measure, train_stage

GOLDEN_LOGP = -1.351529
"Sum over `3+5=8;8-2=6;#6` and the end token after `3+5-2=`, shipped A, nats."


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_quick_command_is_deterministic_and_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        assert main(["A", "-o", str(tmp_path / name), "--quick"]) == 0
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert set(digests(tmp_path / "one")) == {
        f"A/{name}"
        for name in (
            "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        )
    }  # fmt: skip
    assert load_policy(tmp_path / "one" / "A").parameter_count == 99_904
    assert "sampled" in capsys.readouterr().out


def test_all_names_by_default_and_another_seed_gives_other_weights(tmp_path: Path) -> None:
    main(["-o", str(tmp_path / "one"), "--quick", "--seed", "1"])
    main(["A", "-o", str(tmp_path / "two"), "--quick", "--seed", "2"])
    one, two = digests(tmp_path / "one"), digests(tmp_path / "two")
    assert one["A/model.safetensors"] != one["B/model.safetensors"]
    assert one["A/model.safetensors"] != two["A/model.safetensors"]
    assert one["A/tokenizer.json"] == two["A/tokenizer.json"]


def test_an_unknown_name_is_a_users_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["C", "-o", str(tmp_path)])
    assert caught.value.code == 2
    assert "no warm start 'C': there is A, B" in capsys.readouterr().err


def test_training_learns() -> None:
    policy = new_tiny_policy(0)
    stage = Stage(steps=40, rows=16, lr=3e-3)
    losses = [train_stage(policy, TASKS["base"], stage, seed=seed, title="test") for seed in (0, 1)]
    assert losses[1] < losses[0] < 2.9  # a guess among 18 tokens costs 2.89 nats


def test_learning_rate_rises_stays_and_falls() -> None:
    rates = [learning_rate(NAMED_STAGE, step) / NAMED_STAGE.lr for step in (1, 50, 100, 489, 490, 595, 700)]
    assert rates == pytest.approx([0.01, 0.5, 1, 1, 1, 0.5, 0.05])


@pytest.mark.parametrize("name", ["A", "B"])
def test_shipped_warm_starts_answer_as_stated(name: str) -> None:
    policy = load_policy(f"warm:{name}")
    assert 0.43 <= measure(policy, TASKS[name], count=512, temperature=1.0) <= 0.62
    assert measure(policy, TASKS[name], count=128, temperature=0.0) > 0.9


def test_shipped_weights_give_the_pinned_logps() -> None:
    """A golden value: the shipped files are the ones that were measured."""
    policy = load_policy("warm:A")
    prompt = policy.encode("3+5-2=")
    row = [*prompt, *policy.encode("3+5=8;8-2=6;#6"), policy.eos_id]
    with torch.no_grad():
        total = token_logps(policy, [row], [len(prompt)]).logp.sum().item()
    assert total == pytest.approx(GOLDEN_LOGP, abs=1e-3)
