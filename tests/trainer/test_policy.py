"""Loading policies, what is said about folders that are none, and the log-probabilities of their tokens."""

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, PreTrainedTokenizerFast

from regimescope.monitor.errors import RegimescopeError
from regimescope.trainer.errors import PolicyError, ShapeError
from regimescope.trainer.loss.effect import effect_sample, entropy_effect
from regimescope.trainer.policy import (
    WARM_FOLDER,
    Policy,
    load_policy,
    new_tiny_policy,
    save_policy,
    token_logps,
    warm_names,
)
from regimescope.trainer.tokenizer import CHARACTERS, EOS_ID, PAD_ID

SEQUENCES = ([5, 12, 7, 14, 17, 10, 1], [5, 13, 3, 14, 17, 4, 1], [9, 12, 9, 12, 9, 14, 17, 4, 9, 1, 1])
STARTS = [4, 4, 6]


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return new_tiny_policy(0)


@pytest.fixture
def folder(tiny: Policy, tmp_path: Path) -> Path:
    save_policy(tiny, tmp_path / "model")
    return tmp_path / "model"


def test_the_tiny_policy_has_the_stated_size_and_repeats(tiny: Policy) -> None:
    before = torch.get_rng_state()
    again = new_tiny_policy(0)
    assert torch.equal(torch.get_rng_state(), before)
    assert tiny.parameter_count == 99_904
    assert all(torch.equal(a, b) for a, b in zip(tiny.model.parameters(), again.model.parameters(), strict=True))
    other = new_tiny_policy(1).model.parameters()
    assert not all(torch.equal(a, b) for a, b in zip(tiny.model.parameters(), other, strict=True))


def test_save_and_load(tiny: Policy, folder: Path) -> None:
    loaded = load_policy(folder)
    assert (loaded.pad_id, loaded.eos_id, loaded.never_ids) == (PAD_ID, EOS_ID, (PAD_ID,))
    assert loaded.name == str(folder)
    assert not loaded.model.training
    assert all(parameter.dtype == torch.float32 for parameter in loaded.model.parameters())
    ours, theirs = (token_logps(policy, SEQUENCES, STARTS).logp for policy in (tiny, loaded))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["warm:A", "warm:B"])
def test_shipped_warm_starts_load_by_name(name: str) -> None:
    policy = load_policy(name)
    assert policy.name == name
    assert policy.parameter_count == 99_904
    assert policy.decode(policy.encode("3+5=8;#8")) == "3+5=8;#8"


def test_shipped_warm_starts_are_small_and_hold_what_the_auto_classes_read() -> None:
    assert warm_names() == ["warm:A", "warm:B"]
    files = [path for path in WARM_FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 2_000_000
    for name in ("A", "B"):
        here = WARM_FOLDER / name
        assert {path.name for path in here.iterdir()} == {
            "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        }  # fmt: skip
        tokenizer = AutoTokenizer.from_pretrained(here, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(here, local_files_only=True)
        assert len(tokenizer) == model.config.vocab_size == 19


def test_errors_are_one_line_and_ours(tmp_path: Path) -> None:
    with pytest.raises(RegimescopeError, match=r"no model folder .*warm:A, warm:B") as caught:
        load_policy(tmp_path / "nowhere")
    assert "\n" not in str(caught.value)


def test_a_warm_start_that_does_not_exist() -> None:
    with pytest.raises(PolicyError, match=r"no warm start 'warm:C': there are warm:A, warm:B"):
        load_policy("warm:C")


def test_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(PolicyError, match=r"no config\.json"):
        load_policy(folder)


def test_broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(PolicyError, match=r"config\.json is not valid JSON"):
        load_policy(folder)


def test_unknown_model_type(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "nonsense"}')
    with pytest.raises(PolicyError, match="cannot"):
        load_policy(folder)


def test_no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(PolicyError, match="a model path without tokenizer"):
        load_policy(folder)


def test_broken_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(PolicyError, match="cannot read the tokenizer"):
        load_policy(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(PolicyError, match="has no weights"):
        load_policy(folder)


def test_broken_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"no tensors at all")
    with pytest.raises(PolicyError, match="cannot load the model"):
        load_policy(folder)


def test_no_end_token(folder: Path) -> None:
    config = folder / "tokenizer_config.json"
    settings = json.loads(config.read_text())
    del settings["eos_token"]
    config.write_text(json.dumps(settings))
    with pytest.raises(PolicyError, match="no end token"):
        load_policy(folder)


def test_vocabulary_mismatch(folder: Path, tmp_path: Path) -> None:
    larger = character_tokenizer("".join(CHARACTERS) + "abc", pad_token="<pad>")
    larger.save_pretrained(folder)
    with pytest.raises(PolicyError, match=r"vocabulary mismatch.* ids up to 21, the model 19 rows"):
        load_policy(folder)


def test_a_tokenizer_that_cannot_write_the_task(folder: Path) -> None:
    character_tokenizer("0123456789").save_pretrained(folder)
    with pytest.raises(PolicyError, match="cannot write"):
        load_policy(folder)
    assert load_policy(folder, must_write="123").encode("321") == [5, 4, 3]


def test_a_model_without_pad_token_uses_its_end_token(folder: Path) -> None:
    character_tokenizer(CHARACTERS).save_pretrained(folder)
    policy = load_policy(folder)
    assert policy.pad_id == policy.eos_id == EOS_ID
    assert policy.never_ids == ()
    logits = policy.model(input_ids=torch.tensor([SEQUENCES[0]])).logits[0, 3:-1]
    expected = torch.log_softmax(logits, -1).gather(-1, torch.tensor(SEQUENCES[0][4:])[:, None])[:, 0]
    torch.testing.assert_close(token_logps(policy, SEQUENCES[:1], STARTS[:1]).logp[0, 3:], expected)


def test_another_architecture_loads(folder: Path, tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=19, n_embd=16, n_layer=1, n_head=2, n_positions=64, eos_token_id=1, bos_token_id=1)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "gpt2")
    for path in folder.glob("tokenizer*"):
        shutil.copy(path, tmp_path / "gpt2")
    policy = load_policy(str(tmp_path / "gpt2"))
    assert token_logps(policy, SEQUENCES, STARTS).valid.sum() == 11


def test_pieces_are_the_tokens_by_themselves(tiny: Policy) -> None:
    ids = tiny.encode("12+3=")
    assert tiny.pieces([*ids, tiny.eos_id]) == ["1", "2", "+", "3", "=", "<eos>"]
    assert tiny.pieces([]) == []


def test_encoding_what_the_vocabulary_lacks(tiny: Policy) -> None:
    with pytest.raises(PolicyError, match="cannot write '3 x'"):
        tiny.encode("3 x")


def test_logps_are_those_of_single_rows_and_sum_to_one(tiny: Policy) -> None:
    scored = token_logps(tiny, SEQUENCES, STARTS)
    assert scored.valid.tolist() == [
        [False] * 3 + [True] * 3 + [False] * 4,
        [False] * 3 + [True] * 3 + [False] * 4,
        [False] * 5 + [True] * 5,
    ]
    for i, (row, start) in enumerate(zip(SEQUENCES, STARTS, strict=True)):
        logits = tiny.model(input_ids=torch.tensor([row])).logits[0, start - 1 : -1]
        logits[:, PAD_ID] = -torch.inf  # never sampled: probability 0
        expected = torch.log_softmax(logits, -1)
        chosen = expected.gather(-1, torch.tensor(row[start:])[:, None])[:, 0]
        entropy = torch.special.entr(expected.exp()).sum(-1)
        torch.testing.assert_close(scored.logp[i][scored.valid[i]], chosen, atol=2e-6, rtol=0)
        torch.testing.assert_close(scored.entropy[i][scored.valid[i]], entropy, atol=5e-6, rtol=0)
    assert (scored.logp[~scored.valid] == 0).all()
    assert (scored.entropy[~scored.valid] == 0).all()
    assert scored.logp.dtype == scored.entropy.dtype == torch.float32


def test_temperature_divides_the_logits(tiny: Policy) -> None:
    scored = token_logps(tiny, SEQUENCES[:1], STARTS[:1], temperature=0.5)
    logits = 2 * tiny.model(input_ids=torch.tensor(SEQUENCES[:1])).logits[0, 3:-1]
    logits[:, PAD_ID] = -torch.inf
    expected = torch.log_softmax(logits, -1)
    torch.testing.assert_close(scored.logp[0, 3:], expected.gather(-1, torch.tensor(SEQUENCES[0][4:])[:, None])[:, 0])
    torch.testing.assert_close(scored.entropy[0, 3:], torch.special.entr(expected.exp()).sum(-1))
    torch.testing.assert_close(scored.sum_p2[0, 3:], expected.exp().square().sum(-1))


def test_the_effect_is_measured_where_it_is_sampled(tiny: Policy) -> None:
    with torch.no_grad():
        valid = token_logps(tiny, SEQUENCES, STARTS).valid
        rows, positions = torch.arange(3)[:, None].expand_as(valid), torch.arange(10)[None].expand_as(valid)
        sampled = effect_sample(rows, positions, every=2, seed=0, update=0)
        scored = token_logps(tiny, SEQUENCES, STARTS, temperature=0.8, sampled=sampled)
        chosen = sampled & valid
        assert 0 < chosen.sum() < valid.sum() and (sampled & ~valid).any()
        assert (scored.effect[~chosen] == 0).all()
        for i, row in enumerate(SEQUENCES):
            logits = tiny.model(input_ids=torch.tensor([row])).logits[0, :-1]
            alone = entropy_effect(logits, torch.tensor(row[1:]), temperature=0.8, never_ids=(PAD_ID,))
            at = chosen[i, : len(row) - 1]
            torch.testing.assert_close(scored.effect[i, : len(row) - 1][at], alone[at], atol=2e-6, rtol=0)
        with pytest.raises(ShapeError, match=r"sampled: \[3, 9\] must be \[3, 10\]"):
            token_logps(tiny, SEQUENCES, STARTS, sampled=sampled[:, 1:])


def test_gradients_flow_through_logp_alone(tiny: Policy) -> None:
    scored = token_logps(tiny, SEQUENCES, STARTS)
    assert scored.logp.requires_grad
    assert not (scored.entropy.requires_grad or scored.sum_p2.requires_grad or scored.effect.requires_grad)
    scored.logp.sum().backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in tiny.model.parameters())
    tiny.model.zero_grad()
    with torch.no_grad():
        assert not token_logps(tiny, SEQUENCES, STARTS).logp.requires_grad


def test_chunks_do_not_change_what_is_said(tiny: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = torch.ones(3, 10, dtype=torch.bool)
    whole = token_logps(tiny, SEQUENCES, STARTS, sampled=sampled)
    monkeypatch.setattr("regimescope.trainer.loss.logprobs.CPU_CHUNK", 2 * 19)
    chunked = token_logps(tiny, SEQUENCES, STARTS, sampled=sampled)
    for field in fields(whole):
        torch.testing.assert_close(getattr(chunked, field.name), getattr(whole, field.name))


def test_what_fills_a_row_does_not_matter(tiny: Policy) -> None:
    """Each row alone has no padding; beside longer ones it is filled."""
    with torch.no_grad():
        together = token_logps(tiny, SEQUENCES, STARTS)
        for i, (row, start) in enumerate(zip(SEQUENCES, STARTS, strict=True)):
            alone = token_logps(tiny, [row], [start])
            for field in fields(alone):
                padded = getattr(together, field.name)[i, : len(row) - 1]
                torch.testing.assert_close(padded, getattr(alone, field.name)[0], atol=2e-6, rtol=0)
        other = token_logps(replace(tiny, pad_id=EOS_ID), SEQUENCES, STARTS)
    assert torch.equal(together.valid, other.valid)


def character_tokenizer(characters: str, pad_token: str | None = None) -> PreTrainedTokenizerFast:
    """A foreign tokenizer of the same kind: end token 1, then the characters, id 0 unused or pad."""
    vocabulary = {token: i for i, token in enumerate(("<pad>", "<eos>", *characters))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token=pad_token)
