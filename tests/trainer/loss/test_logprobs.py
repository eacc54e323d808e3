"""Log-probability, entropy, sum p^2 and entropy effect from logits: values, gradients, memory, and bad input."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regimescope.trainer.errors import ConfigError, ShapeError
from regimescope.trainer.loss import effect, logprobs
from regimescope.trainer.loss.effect import effect_sample, entropy_effect
from regimescope.trainer.loss.logprobs import logit_gradient_norm, token_distribution

GOLDEN = json.loads((Path(__file__).parents[1] / "objectives_golden.json").read_text())["misc"]["entropy"]
V, R = 13, 9
ROWS = torch.tensor([0, 1, 2, 4, 7])


def some_logits(rows: int = R, vocabulary: int = V, dtype: torch.dtype = torch.float64) -> Tensor:
    return (3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(
        dtype
    )


def some_tokens(count: int = R, vocabulary: int = V) -> Tensor:
    return torch.randint(vocabulary, (count,), generator=torch.Generator().manual_seed(1))


def of_p(probabilities: list[float]) -> Tensor:
    """[V, V] logits of one distribution, a row for each token; the offset must not matter."""
    return (torch.tensor(probabilities, dtype=torch.float64).log() + 5).expand(len(probabilities), -1)


@pytest.fixture
def chunk_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "CPU_CHUNK", 2 * V)


# ---------------------------------------------------------------------------------------------------------- values
def test_golden_entropy_and_gradient_norm() -> None:
    uniform = token_distribution(torch.zeros(1, 4), torch.tensor([2]))
    assert uniform.entropy.item() == pytest.approx(GOLDEN["uniform_4"], abs=1e-6)
    assert (uniform.logp.item(), uniform.sum_p2.item()) == pytest.approx((-GOLDEN["uniform_4"], 0.25), abs=1e-6)
    seen = token_distribution(of_p(GOLDEN["p"]), torch.arange(4))
    assert seen.entropy.tolist() == pytest.approx([GOLDEN["entropy_of_p"]] * 4, abs=1e-12)
    norm = logit_gradient_norm(seen.logp, seen.sum_p2)
    assert norm[2].item() == pytest.approx(GOLDEN["logit_grad_norm_of_p_action_2"], abs=1e-12)


def test_golden_entropy_effect() -> None:
    measured = entropy_effect(of_p(GOLDEN["effect_p"]), torch.arange(4))
    assert measured.tolist() == pytest.approx(GOLDEN["entropy_effect_by_action"], abs=1e-9)


@pytest.mark.parametrize("rows", [None, ROWS, torch.arange(2, 6), torch.arange(R)], ids=["all", "some", "run", "each"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_equal_to_log_softmax(rows: Tensor | None, temperature: float) -> None:
    logits = some_logits(dtype=torch.float32)
    tokens = some_tokens(R if rows is None else len(rows))
    seen = token_distribution(logits, tokens, rows=rows, temperature=temperature)
    expected = torch.log_softmax((logits if rows is None else logits[rows]).double() / temperature, 1)
    own = expected.gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(seen.logp.double(), own, atol=2e-6, rtol=0)
    torch.testing.assert_close(seen.entropy.double(), torch.special.entr(expected.exp()).sum(1), atol=2e-6, rtol=0)
    torch.testing.assert_close(seen.sum_p2.double(), (2 * expected).exp().sum(1), atol=2e-6, rtol=0)
    assert seen.logp.dtype == seen.entropy.dtype == seen.sum_p2.dtype == torch.float32


@pytest.mark.parametrize("offset", [-1e4, 1e4])
def test_a_common_offset_costs_no_digits(offset: float) -> None:
    """Offset by a power of two's multiple so that the sum itself is exact; logits near 1e4 lose digits otherwise."""
    logits = some_logits(dtype=torch.float32).mul(64).round().div(64).requires_grad_()
    moved = (logits.detach() + round(offset / 64) * 64).requires_grad_()
    here, there = (token_distribution(z, some_tokens()) for z in (logits, moved))
    assert torch.equal(here.logp, there.logp)
    assert torch.equal(here.entropy, there.entropy)
    ours, theirs = (torch.autograd.grad(seen.logp.sum(), z)[0] for seen, z in ((here, logits), (there, moved)))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("rows", [None, ROWS], ids=["all", "some"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_read_in_float32(dtype: torch.dtype, rows: Tensor | None) -> None:
    half = some_logits(dtype=dtype).requires_grad_()
    single = half.detach().float().requires_grad_()
    tokens = some_tokens(R if rows is None else len(rows))
    ours, theirs = (token_distribution(z, tokens, rows=rows) for z in (half, single))
    assert torch.equal(ours.logp, theirs.logp)
    assert torch.equal(ours.entropy, theirs.entropy)
    for seen in (ours, theirs):
        (seen.logp.sum() + seen.entropy.sum()).backward()
    assert half.grad is not None and single.grad is not None and half.grad.dtype == dtype
    assert torch.equal(half.grad, single.grad.to(dtype))


@pytest.mark.usefixtures("chunk_of_two")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [None, ROWS, torch.arange(1, 6)], ids=["all", "some", "run"])
def test_chunks_never_change_a_result(rows: Tensor | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = some_logits(dtype=dtype).requires_grad_()
    tokens = some_tokens(R if rows is None else len(rows))
    sampled = torch.arange(len(tokens)) % 3 == 1

    def everything() -> list[Tensor]:
        seen = token_distribution(logits, tokens, rows=rows, temperature=0.8, never_ids=(3,), sampled=sampled)
        gradient = torch.autograd.grad((seen.logp * 2 + seen.entropy).sum(), logits)[0]
        return [seen.logp, seen.entropy, seen.sum_p2, seen.effect, gradient]

    chunked = everything()
    monkeypatch.setattr(logprobs, "CPU_CHUNK", 1 << 20)
    for ours, whole in zip(chunked, everything(), strict=True):
        torch.testing.assert_close(ours, whole)


def test_ids_that_are_never_drawn() -> None:
    logits = some_logits()
    logits[:, 3] = 200.0  # the largest logit: as the maximum it would leave the others no digits
    every = torch.ones(R, dtype=torch.bool)
    seen = token_distribution(logits, torch.tensor([0, 3, 5] * 3), never_ids=(3, 12), sampled=every)
    kept = [i for i in range(V) if i not in (3, 12)]
    expected = torch.log_softmax(logits[:, kept], 1)
    torch.testing.assert_close(seen.entropy, torch.special.entr(expected.exp()).sum(1))
    torch.testing.assert_close(seen.sum_p2, (2 * expected).exp().sum(1))
    torch.testing.assert_close(seen.logp[[0, 2]], torch.stack([expected[0, 0], expected[2, 4]]))
    assert (seen.logp[[1, 4, 7]] == -torch.inf).all()
    step = ((2 * expected).exp() * (expected + seen.entropy[:, None])).sum(1)  # a step up of a token with p = 0
    torch.testing.assert_close(seen.effect[[1, 4, 7]], step[[1, 4, 7]])


def test_minus_infinity_is_a_probability_of_zero() -> None:
    logits = some_logits()
    logits[:, 3] = -torch.inf
    logits.requires_grad_()
    tokens = torch.full((R,), 5)
    seen = token_distribution(logits, tokens, sampled=torch.ones(R, dtype=torch.bool))
    named = token_distribution(logits, tokens, never_ids=(3,), sampled=torch.ones(R, dtype=torch.bool))
    for ours, theirs in ((seen.logp, named.logp), (seen.entropy, named.entropy), (seen.effect, named.effect)):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs)
    gradient = torch.autograd.grad((seen.logp + seen.entropy).sum(), logits)[0]
    assert gradient.isfinite().all()
    assert (gradient[:, 3] == 0).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_are_no_numbers_show(bad: float) -> None:
    logits = some_logits()
    logits[4, 2] = bad
    logits.requires_grad_()
    seen = token_distribution(logits, torch.zeros(R, dtype=torch.long), sampled=torch.ones(R, dtype=torch.bool))
    for values in (seen.logp, seen.entropy, seen.sum_p2, seen.effect):
        assert values.isnan().tolist() == [i == 4 for i in range(R)]
    gradient = torch.autograd.grad(seen.logp.sum(), logits)[0]
    assert gradient[4].isnan().all() and gradient[[0, 1, 2, 3, 5, 6, 7, 8]].isfinite().all()


def test_a_row_without_any_token_left_is_no_number() -> None:
    assert token_distribution(torch.full((1, V), -torch.inf), torch.tensor([2])).entropy.isnan().all()


def test_a_sure_distribution_has_no_entropy_and_no_effect() -> None:
    logits = torch.zeros(1, V)
    logits[0, 4] = 500.0
    seen = token_distribution(logits, torch.tensor([4]), sampled=torch.tensor([True]))
    assert (seen.logp.item(), seen.entropy.item(), seen.sum_p2.item(), seen.effect.item()) == (0, 0, 1, 0)
    assert logit_gradient_norm(seen.logp, seen.sum_p2).item() == 0


def test_the_effect_of_the_sampled_tokens_alone() -> None:
    sampled = torch.arange(R) % 3 == 1
    seen = token_distribution(some_logits(), some_tokens(), sampled=sampled, sum_p2=False)
    assert torch.equal(seen.effect, torch.where(sampled, entropy_effect(some_logits(), some_tokens()), 0.0))
    assert seen.effect[sampled].abs().min() > 0


def test_what_was_not_asked_for() -> None:
    seen = token_distribution(some_logits(), some_tokens(), sum_p2=False)
    assert seen.sum_p2.isnan().all()
    assert (seen.effect == 0).all()


# ------------------------------------------------------------------------------------------------------- gradients
@pytest.mark.usefixtures("chunk_of_two")
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("rows", [None, ROWS, torch.arange(3, 8)], ids=["all", "some", "run"])
@pytest.mark.parametrize("output", ["logp", "entropy", "both"])
def test_gradients_are_those_of_finite_differences(output: str, rows: Tensor | None, temperature: float) -> None:
    tokens = some_tokens(R if rows is None else len(rows))
    never = next(i for i in range(V) if i not in tokens)

    def values(logits: Tensor) -> tuple[Tensor, ...]:
        seen = token_distribution(logits, tokens, rows=rows, temperature=temperature, never_ids=(never,))
        return {"logp": (seen.logp,), "entropy": (seen.entropy,), "both": (seen.logp, seen.entropy)}[output]

    assert torch.autograd.gradcheck(values, some_logits().requires_grad_())


def test_logit_gradient_norm_is_the_norm_of_the_gradient() -> None:
    logits = some_logits().requires_grad_()
    seen = token_distribution(logits, some_tokens())
    gradient = torch.autograd.grad(seen.logp.sum(), logits)[0]
    torch.testing.assert_close(logit_gradient_norm(seen.logp, seen.sum_p2), gradient.norm(dim=1))


@pytest.mark.usefixtures("chunk_of_two")
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_entropy_effect_is_that_of_a_small_step(temperature: float) -> None:
    """Logits after the temperature move by e_a - p; a central difference of H in that direction."""
    logits, tokens, step = some_logits()[ROWS], some_tokens(len(ROWS)), 1e-5
    scaled = logits / temperature
    direction = torch.nn.functional.one_hot(tokens, V) - torch.softmax(scaled, 1)
    up, down = (token_distribution(scaled + sign * step * direction, tokens).entropy for sign in (1, -1))
    measured = entropy_effect(some_logits(), tokens, ROWS, temperature=temperature)
    torch.testing.assert_close(measured, (up - down) / (2 * step), atol=1e-8, rtol=1e-6)


def test_no_gradient_where_none_is_wanted() -> None:
    logits = some_logits().requires_grad_()
    seen = token_distribution(logits, some_tokens(), sampled=torch.ones(R, dtype=torch.bool))
    assert (seen.logp.requires_grad, seen.entropy.requires_grad) == (True, True)
    assert (seen.sum_p2.requires_grad, seen.effect.requires_grad) == (False, False)
    assert not entropy_effect(logits, some_tokens()).requires_grad
    with torch.no_grad():
        without = token_distribution(logits, some_tokens())
    assert torch.equal(without.logp, seen.logp) and not without.logp.requires_grad


def test_an_empty_selection() -> None:
    logits = some_logits().requires_grad_()
    none = torch.zeros(0, dtype=torch.long)
    seen = token_distribution(logits, none, rows=none, sampled=none.bool())
    assert [len(x) for x in (seen.logp, seen.entropy, seen.sum_p2, seen.effect)] == [0, 0, 0, 0]
    assert torch.equal(torch.autograd.grad(seen.logp.sum(), logits)[0], torch.zeros(R, V, dtype=torch.float64))


# ---------------------------------------------------------------------------------------------------------- memory
@pytest.mark.usefixtures("chunk_of_two")
def test_the_graph_keeps_the_logits_and_nothing_of_their_size() -> None:
    logits = some_logits(2, 4 * V).view(1, -1, V).requires_grad_()
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        token_distribution(logits.flatten(0, 1), some_tokens(8), sampled=torch.ones(8, dtype=torch.bool))
    large = [tensor for tensor in kept if tensor.numel() > 8]
    assert [tensor.untyped_storage().data_ptr() for tensor in large] == [logits.untyped_storage().data_ptr()]


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Elements of the largest tensors that any operation gives back, the gradient of the logits apart."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        known = {t.untyped_storage().data_ptr() for t in [*args, *(kwargs or {}).values()] if isinstance(t, Tensor)}
        if isinstance(out, Tensor) and out.untyped_storage().data_ptr() not in known:
            self.sizes.append(out.numel())
        return out


@pytest.mark.parametrize("rows", [None, torch.arange(0, 512, 2)], ids=["all", "some"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_second_copy_of_the_logits_is_made(
    dtype: torch.dtype, rows: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logprobs, "CPU_CHUNK", 8 * 8 * V)
    logits = some_logits(512, 8 * V, dtype=dtype).requires_grad_()
    tokens = some_tokens(512 if rows is None else len(rows))
    with Largest() as largest:
        seen = token_distribution(
            logits, tokens, rows=rows, temperature=0.9, never_ids=(1,), sampled=torch.arange(len(tokens)) % 8 == 0
        )
        torch.autograd.grad((seen.logp + seen.entropy).sum(), logits)
    large = [size for size in largest.sizes if size > 8 * 512]  # two chunks, eight numbers a token
    assert large == [512 * 8 * V], "one tensor of the logits' size: their gradient"


# ----------------------------------------------------------------------------------------------------------- sample
KEYS, POSITIONS = torch.arange(400)[:, None], torch.arange(200)[None]


@pytest.mark.parametrize("every", [1, 2, 8, 100])
def test_the_sample_has_the_share_that_was_asked_for(every: int) -> None:
    sampled = effect_sample(KEYS, POSITIONS, every=every, seed=3, update=7)
    count, share = sampled.numel(), 1 / every
    assert sampled.shape == (400, 200)
    assert abs(sampled.double().mean().item() - share) <= 4 * (share * (1 - share) / count) ** 0.5
    if every == 8:  # spread over responses and over positions, not in stripes
        for axis, length in ((0, 400), (1, 200)):
            spread = sampled.double().sum(axis).var().item()
            assert spread == pytest.approx(length * share * (1 - share), rel=0.35)


def test_another_seed_or_update_is_another_sample() -> None:
    first = effect_sample(KEYS, POSITIONS, every=8, seed=3, update=7)
    assert torch.equal(first, effect_sample(KEYS, POSITIONS, every=8, seed=3, update=7))
    for seed, update in ((4, 7), (3, 8), (7, 3), (-3, 7), (3 + 2**40, 7)):
        both = first & effect_sample(KEYS, POSITIONS, every=8, seed=seed, update=update)
        assert both.double().mean().item() == pytest.approx(1 / 64, rel=0.15)  # independent of the first


@given(st.permutations(range(12)), st.integers(1, 11), st.integers(-(2**63), 2**63 - 1))
def test_the_sample_depends_on_no_order_and_no_split(order: list[int], cut: int, seed: int) -> None:
    keys = torch.tensor([2**62, -5, 0, 1, 2, 3] * 2)
    positions = torch.arange(12)
    whole = effect_sample(keys, positions, every=3, seed=seed, update=1)
    pieces = [
        effect_sample(keys[part], positions[part], every=3, seed=seed, update=1) for part in (order[:cut], order[cut:])
    ]
    assert torch.equal(torch.cat(pieces), whole[order])


def test_the_hash_is_splitmix64() -> None:
    """First two outputs for the seed 0, as published with its reference implementation (prng.di.unimi.it)."""
    golden = effect._int64(effect.GOLDEN)
    outputs = effect._mix(torch.tensor([golden, effect._int64(2 * effect.GOLDEN)]))
    assert [x % 2**64 for x in outputs.tolist()] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


# ------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"logits": torch.zeros(2, 3, V)}, ShapeError, r"logits: .*\[2, 3, 13\]"),
        ({"logits": torch.zeros(R, V, dtype=torch.long)}, ShapeError, r"logits: expected floats .*int64"),
        ({"tokens": torch.zeros(R - 1, dtype=torch.long)}, ShapeError, r"tokens: 8 for 9 rows"),
        ({"tokens": torch.zeros(R)}, ShapeError, r"tokens: expected int64 .*float32 \[9\]"),
        ({"tokens": torch.full((R,), V)}, ConfigError, r"tokens: 13\.\.13 must lie in 0\.\.12"),
        ({"tokens": torch.full((R,), -1)}, ConfigError, r"tokens: -1"),
        ({"rows": torch.arange(R - 1)}, ShapeError, r"rows: expected int64 \[9\]"),
        ({"rows": torch.arange(R) + 1}, ConfigError, r"rows: must increase strictly and lie in 0\.\.8"),
        ({"rows": torch.arange(R) - 1}, ConfigError, r"rows: "),
        ({"rows": torch.arange(R) // 2}, ConfigError, r"rows: must increase strictly"),
        ({"temperature": 0.0}, ConfigError, r"temperature: 0\.0"),
        ({"temperature": -1.0}, ConfigError, r"temperature: -1\.0"),
        ({"temperature": float("nan")}, ConfigError, r"temperature: nan"),
        ({"temperature": float("inf")}, ConfigError, r"temperature: inf"),
        ({"never_ids": (V,)}, ConfigError, r"never_ids: \[13\]"),
        ({"sampled": torch.zeros(R - 1, dtype=torch.bool)}, ShapeError, r"sampled: .*bool \[8\]"),
        ({"sampled": torch.zeros(R)}, ShapeError, r"sampled: .*float32"),
    ],
)
def test_bad_input_is_named(change: dict[str, Tensor], error: type[Exception], says: str) -> None:
    arguments = {"logits": some_logits(), "tokens": some_tokens(), **change}
    with pytest.raises(error, match=says) as caught:
        token_distribution(**arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_sample_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="every: 0"):
        effect_sample(KEYS, POSITIONS, every=0, seed=0, update=0)
