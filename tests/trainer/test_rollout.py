"""One contract for every rollout engine: grouping, seeds, ends, log-probabilities, versions, errors."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    Lfm2Config,
    MambaConfig,
    MistralConfig,
    PreTrainedConfig,
)

from regimescope.trainer.errors import EngineError, SamplingError
from regimescope.trainer.policy import Policy, load_policy, new_tiny_policy, token_logps
from regimescope.trainer.rollout import Rollout, RolloutEngine, SamplingSpec, make_engine
from regimescope.trainer.rollout.engine import ENGINES
from regimescope.trainer.tokenizer import EOS_ID, PAD_ID

MakeEngine = Callable[..., RolloutEngine]
TEXTS = ("3+5-2=", "1+2+3+4=", "9-1=", "7+7+7-9+8-1=")
IDS: dict[str, Any] = {"vocab_size": 19, "pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "bos_token_id": None}
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.3,
}
ARCHITECTURES = {
    "absolute positions": GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=128, initializer_range=0.3, **IDS),
    "sliding window": MistralConfig(sliding_window=8, num_key_value_heads=2, **SHAPE, **IDS),
    "convolution": Lfm2Config(layer_types=["conv", "full_attention"], num_key_value_heads=2, **SHAPE, **IDS),
    "recurrent": MambaConfig(hidden_size=32, num_hidden_layers=2, initializer_range=0.3, **IDS),
}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy("warm:A")


@pytest.fixture(scope="module")
def prompts(policy: Policy) -> list[list[int]]:
    return [policy.encode(text) for text in TEXTS]


@pytest.fixture(params=ENGINES)
def make(request: pytest.FixtureRequest) -> MakeEngine:
    def _make(policy: Policy, weight_version: int = 0) -> RolloutEngine:
        return make_engine(request.param, policy, weight_version=weight_version)

    return _make


def spec(**changes: Any) -> SamplingSpec:
    return SamplingSpec(**{"n": 4, "max_tokens": 48, "seed": 11, **changes})


def recompute(
    policy: Policy, prompts: Sequence[Sequence[int]], rollouts: list[Rollout], temperature: float
) -> list[NDArray[np.float32]]:
    """The trainer's own log-probabilities of the rollouts' tokens."""
    rows = [[*prompts[rollout.prompt_index], *rollout.token_ids] for rollout in rollouts]
    with torch.no_grad():
        scored = token_logps(policy, rows, [len(prompts[r.prompt_index]) for r in rollouts], temperature=temperature)
    return [scored.logp[i][scored.valid[i]].numpy() for i in range(len(rollouts))]


def ids(rollouts: list[Rollout]) -> list[tuple[int, ...]]:
    return [rollout.token_ids for rollout in rollouts]


def test_n_rollouts_per_prompt_grouped_by_prompt(make: MakeEngine, policy: Policy, prompts: list[list[int]]) -> None:
    rollouts = make(policy, 5).generate(prompts, spec(n=3))
    assert [rollout.prompt_index for rollout in rollouts] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert {(rollout.weight_version, rollout.engine) for rollout in rollouts} == {(5, "transformers")}
    for rollout in rollouts:
        assert 1 <= len(rollout.token_ids) == len(rollout.logprobs) <= 48
        assert rollout.logprobs.dtype == np.float32
        assert PAD_ID not in rollout.token_ids


def test_the_same_seed_repeats_and_another_does_not(make: MakeEngine, policy: Policy, prompts: list[list[int]]) -> None:
    before = torch.get_rng_state()
    first, again, other = (make(policy).generate(prompts, spec(seed=seed)) for seed in (1, 1, 2))
    assert ids(first) == ids(again)
    assert all(np.array_equal(a.logprobs, b.logprobs) for a, b in zip(first, again, strict=True))
    assert ids(first) != ids(other)
    assert torch.equal(torch.get_rng_state(), before)  # the caller's random state is left alone


def test_the_samples_of_a_prompt_differ(make: MakeEngine, policy: Policy, prompts: list[list[int]]) -> None:
    rollouts = make(policy).generate(prompts[:1], spec(n=16))
    assert len(set(ids(rollouts))) > 4


def test_end_tokens_and_lengths(make: MakeEngine, policy: Policy, prompts: list[list[int]]) -> None:
    rollouts = make(policy).generate(prompts, spec(n=16, max_tokens=20))
    assert {rollout.finish_reason for rollout in rollouts} == {"stop", "length"}
    for rollout in rollouts:
        assert EOS_ID not in rollout.token_ids[:-1]
        assert (rollout.token_ids[-1] == EOS_ID) == (rollout.finish_reason == "stop")
        if rollout.finish_reason == "length":
            assert len(rollout.token_ids) == 20


def test_stop_ids_end_a_response_and_are_kept(make: MakeEngine, policy: Policy, prompts: list[list[int]]) -> None:
    semicolon = policy.encode(";")[0]
    rollouts = make(policy).generate(prompts, spec(n=8, stop_ids=(semicolon,)))
    assert any(rollout.token_ids[-1] == semicolon for rollout in rollouts)
    for rollout in rollouts:
        assert rollout.finish_reason == "stop"
        assert rollout.token_ids[-1] in (semicolon, EOS_ID)
        assert semicolon not in rollout.token_ids[:-1]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
def test_logprobs_are_the_policys_after_temperature(
    make: MakeEngine, policy: Policy, prompts: list[list[int]], temperature: float
) -> None:
    rollouts = make(policy).generate(prompts, spec(n=16, temperature=temperature))
    for rollout, expected in zip(rollouts, recompute(policy, prompts, rollouts, temperature), strict=True):
        np.testing.assert_allclose(rollout.logprobs, expected, atol=1e-5)


def test_greedy_takes_the_likeliest_token(make: MakeEngine, policy: Policy, prompts: list[list[int]]) -> None:
    rollouts = make(policy).generate(prompts, spec(n=2, temperature=0.0))
    assert ids(rollouts)[::2] == ids(rollouts)[1::2]
    for rollout, expected in zip(rollouts, recompute(policy, prompts, rollouts, 1.0), strict=True):
        np.testing.assert_allclose(rollout.logprobs, expected, atol=1e-5)
        prompt = prompts[rollout.prompt_index]
        logits = policy.model(input_ids=torch.tensor([[*prompt, *rollout.token_ids]])).logits[0, len(prompt) - 1 : -1]
        assert tuple(logits.argmax(-1).tolist()) == rollout.token_ids


def test_tokens_come_as_often_as_their_probability(make: MakeEngine) -> None:
    policy = new_tiny_policy(3)
    prompt = policy.encode("1+2=")
    rollouts = make(policy).generate([prompt], SamplingSpec(n=8000, max_tokens=1, seed=0, temperature=0.8))
    counts = np.bincount([rollout.token_ids[0] for rollout in rollouts], minlength=19)
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1] / 0.8
    logits[PAD_ID] = -torch.inf
    expected = 8000 * torch.softmax(logits, -1).numpy()
    assert counts[PAD_ID] == 0
    chi_square = ((counts - expected)[1:] ** 2 / expected[1:]).sum()
    assert chi_square < 42.3  # 17 degrees of freedom, p = 0.0006


def test_a_prompt_is_answered_alike_in_any_company(make: MakeEngine, policy: Policy, prompts: list[list[int]]) -> None:
    alone = make(policy).generate(prompts[:1], spec())
    together = make(policy).generate(prompts, spec())
    assert ids(alone) == ids(together)[:4]


def test_new_weights_are_seen_at_once(make: MakeEngine, prompts: list[list[int]]) -> None:
    policy = new_tiny_policy(0)
    engine = make(policy)
    before = engine.generate(prompts, spec())
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.2)
    report = engine.sync((), 1)
    assert (report.weight_version, report.ok, report.bytes) == (1, True, 0)
    after = engine.generate(prompts, spec())
    assert {rollout.weight_version for rollout in after} == {1}
    assert ids(after) != ids(before)
    np.testing.assert_allclose(after[0].logprobs, recompute(policy, prompts, after, 1.0)[0], atol=1e-5)


def test_weight_versions_never_go_back(make: MakeEngine, policy: Policy) -> None:
    engine = make(policy, 7)
    engine.sync((), 9)
    with pytest.raises(EngineError, match="8 is older than 9"):
        engine.sync((), 8)
    assert engine.health().weight_version == 9


def test_close_twice_and_then_nothing_more(make: MakeEngine, policy: Policy, prompts: list[list[int]]) -> None:
    engine = make(policy)
    assert engine.health().ready
    engine.close()
    engine.close()
    assert not engine.health().ready
    with pytest.raises(EngineError, match="closed"):
        engine.generate(prompts, spec())


@pytest.mark.parametrize("bad", [[], [[]], [[5], []]])
def test_prompts_need_a_token(make: MakeEngine, policy: Policy, bad: list[list[int]]) -> None:
    with pytest.raises(EngineError, match="at least one token"):
        make(policy).generate(bad, spec())


def test_more_tokens_than_positions(make: MakeEngine, policy: Policy, prompts: list[list[int]]) -> None:
    with pytest.raises(EngineError, match=r"268 tokens, warm:A has 256 positions: lower max_tokens"):
        make(policy).generate(prompts, spec(max_tokens=256))


def test_an_unknown_engine(policy: Policy) -> None:
    with pytest.raises(EngineError, match="unknown rollout engine 'vllm': there is transformers"):
        make_engine("vllm", policy)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top_p": 0.9}, "refused"),
        ({"top_k": 50}, "importance ratio"),
        ({"n": 0}, "n=0"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"temperature": -1.0}, "-1.0"),
        ({"temperature": float("nan")}, "nan"),
    ],
)
def test_bad_sampling_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SamplingError, match=message):
        spec(**changes)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_any_causal_model_agrees_with_its_recompute(make: MakeEngine, prompts: list[list[int]], name: str) -> None:
    config: PreTrainedConfig = ARCHITECTURES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
    policy = replace(new_tiny_policy(0), model=model, name=name)
    rollouts = make(policy).generate(prompts, spec(n=8, max_tokens=24))
    assert len({len(rollout.token_ids) for rollout in rollouts}) > 2
    for rollout, expected in zip(rollouts, recompute(policy, prompts, rollouts, 1.0), strict=True):
        np.testing.assert_allclose(rollout.logprobs, expected, atol=3e-5)


def test_pad_as_end_token(make: MakeEngine, prompts: list[list[int]]) -> None:
    policy = replace(new_tiny_policy(0), pad_id=EOS_ID)
    rollouts = make(policy).generate(prompts, spec(n=8))
    for rollout, expected in zip(rollouts, recompute(policy, prompts, rollouts, 1.0), strict=True):
        assert EOS_ID not in rollout.token_ids[:-1]
        np.testing.assert_allclose(rollout.logprobs, expected, atol=1e-5)
