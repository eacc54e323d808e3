"""Log-probability, entropy and sum p^2 of tokens straight from logits, in chunks of rows.

    seen = token_distribution(logits, tokens, rows=rows)    # in the loss (with gradient) or under no_grad

The logits are read a chunk at a time, in float32, and never copied as a whole: memory is the logits, their gradient and
two chunks. The backward pass computes the softmax again instead of keeping it. The same pass gives the entropy effect
of the tokens in `sampled` (`effect.py` says which ones those are). Not here: fused linear layers, sharded vocabularies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regimescope.trainer.errors import ConfigError, ShapeError

CPU_CHUNK = 1 << 19
"Logits per chunk on a CPU: two such chunks in float32 (4 MiB) stay in its caches."
DEVICE_CHUNK = 1 << 24
"Logits per chunk elsewhere: large enough that starting a kernel costs nothing beside running it."
FLOOR = -1e4
"Stands for log p = -inf where it is multiplied by p = 0; e to its power is 0 in float32 and float64."


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDistribution:
    """What N tokens look like under the distributions they were drawn from; float32, or float64 for such logits."""

    logp: Tensor
    "[N], nats: log-probability of the token; differentiable. -inf for an id in `never_ids`."
    entropy: Tensor
    "[N], nats: H of the distribution, at least 0; differentiable."
    sum_p2: Tensor
    "[N] in (0, 1], no gradient: sum over the vocabulary of p^2. NaN where it was not asked for."
    effect: Tensor
    "[N], nats, no gradient: entropy effect of a unit step on the token (see `effect.py`); 0 where not sampled."


def token_distribution(
    logits: Tensor,
    tokens: Tensor,
    *,
    rows: Tensor | None = None,
    temperature: float = 1.0,
    never_ids: Sequence[int] = (),
    sum_p2: bool = True,
    sampled: Tensor | None = None,
) -> TokenDistribution:
    """Evaluate `tokens` [N] under softmax(logits / temperature).

    `logits`: [R, V], any floating type. `rows`: [N], strictly increasing, the row of each token; None: N = R, row i is
    token i's. Rows that no token uses get a zero gradient. `never_ids` have probability 0. `sampled`: [N] bool, the
    tokens whose entropy effect is wanted. A logit of -inf is a probability of 0; a row with NaN or +inf gives NaN.
    With d = (logits - their maximum) / temperature: H = log sum e^d - sum e^d d / sum e^d. Raises ShapeError or
    ConfigError; they name the argument.
    """
    _check(logits, tokens, rows, temperature, never_ids, sampled)
    if rows is not None and len(rows) == len(logits):
        rows = None  # they increase strictly: each is there
    ask = _Ask(
        tokens=tokens,
        parts=_parts(logits, len(tokens), rows, sampled),
        temperature=float(temperature),
        never=torch.tensor(list(never_ids), device=logits.device) if never_ids else None,
        sum_p2=sum_p2 or sampled is not None,
        sampled=sampled,
    )
    logp, entropy, squares, effect = _Evaluate.apply(logits, ask)  # type: ignore[no-untyped-call]
    return TokenDistribution(logp=logp, entropy=entropy, sum_p2=squares, effect=effect)


def logit_gradient_norm(logp: Tensor, sum_p2: Tensor) -> Tensor:
    """Norm of d logp / d logits, sqrt(1 - 2 p + sum p^2), of any shape; in [0, sqrt 2].

    The exact form of the quantity that arXiv 2602.15620 (STAPO) bounds with the entropy.
    """
    return (1 - 2 * logp.exp() + sum_p2).clamp(min=0).sqrt()


# --------------------------------------------------------------------------------------------------------- chunks
@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One chunk: n tokens and their rows."""

    span: slice
    "Which of the N tokens."
    at: slice | Tensor
    "Which rows of the logits; a slice, which needs no copy, wherever they are neighbours."
    picks: Tensor | None
    "Which of the n rows have their effect measured; None for none."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """The arguments of `token_distribution` that are no logits."""

    tokens: Tensor
    parts: list[_Part]
    temperature: float
    never: Tensor | None
    sum_p2: bool
    sampled: Tensor | None


def _parts(logits: Tensor, count: int, rows: Tensor | None, sampled: Tensor | None) -> list[_Part]:
    size = max(1, (CPU_CHUNK if logits.device.type == "cpu" else DEVICE_CHUNK) // logits.shape[1])
    spans = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    at: list[slice | Tensor] = list(spans)
    if rows is not None and spans:
        ends = rows[[end for span in spans for end in (span.start, span.stop - 1)]].tolist()
        for i, (low, high, span) in enumerate(zip(ends[::2], ends[1::2], spans, strict=True)):
            neighbours = high - low == span.stop - span.start - 1
            at[i] = slice(low, high + 1) if neighbours else rows[span]
    picks: list[Tensor | None] = [None] * len(spans)
    if sampled is not None:
        found, starts = sampled.nonzero()[:, 0], [span.start for span in spans]
        cuts = torch.searchsorted(found, torch.tensor(starts[1:], dtype=torch.int64, device=found.device)).tolist()
        picks = [
            here - start if len(here) else None for here, start in zip(found.tensor_split(cuts), starts, strict=False)
        ]
    return [_Part(span=s, at=a, picks=p) for s, a, p in zip(spans, at, picks, strict=True)]


def _work_type(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _buffers(logits: Tensor, ask: _Ask, number: int) -> Tensor:
    longest = max((part.span.stop - part.span.start for part in ask.parts), default=0)
    return logits.new_empty((number, longest, logits.shape[1]), dtype=_work_type(logits))


def _load(logits: Tensor, ask: _Ask, part: _Part, out: Tensor, top: Tensor | None = None) -> Tensor:
    """Write (logits - their maximum) / temperature into `out`, -inf for ids that are never drawn; gives the maximum."""
    if isinstance(part.at, slice):
        read = logits[part.at]
    elif logits.dtype == out.dtype:
        read = torch.index_select(logits, 0, part.at, out=out)
    else:
        read = logits.index_select(0, part.at)
    if ask.never is not None:  # before the maximum: a token that is never drawn may have the largest logit
        read = out.copy_(read).index_fill_(1, ask.never, -torch.inf)
    if top is None:
        top = read.amax(1).to(out.dtype)
    torch.sub(read, top[:, None], out=out)
    if ask.temperature != 1.0:
        out.div_(ask.temperature)
    return top


# ----------------------------------------------------------------------------------------------------- evaluation
class _Evaluate(torch.autograd.Function):
    """(logp, entropy, sum p^2, effect), each [N]. Kept for the backward pass: the logits and three numbers a token."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ask: _Ask) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        sums = logits.new_zeros((6, len(ask.tokens)), dtype=_work_type(logits))
        top, own, total, mean, length, cubic = sums.unbind()
        buffers = _buffers(logits, ask, 2)
        most = max((len(part.picks) for part in ask.parts if part.picks is not None), default=0)
        chosen = buffers.new_empty((most, logits.shape[1]))
        for part in ask.parts:
            span = part.span
            shifted, exp = buffers[:, : span.stop - span.start]
            top[span] = _load(logits, ask, part, shifted)
            own[span] = shifted.gather(1, ask.tokens[span, None])[:, 0]
            shifted.clamp_(min=FLOOR)
            total[span] = torch.exp(shifted, out=exp).sum(1)
            mean[span] = shifted.mul_(exp).sum(1)
            if ask.sum_p2:
                length[span] = torch.linalg.vector_norm(exp, dim=1)
            if part.picks is not None:
                count = len(part.picks)
                picked = torch.index_select(exp, 0, part.picks, out=chosen[:count])
                weighted = torch.index_select(shifted, 0, part.picks, out=exp[:count])  # `exp` has done its service
                cubic[span.start + part.picks] = picked.mul_(weighted).sum(1)
        mean /= total
        log_total = total.log()
        logp, entropy = own - log_total, log_total - mean
        sum_p2 = (length / total).square_() if ask.sum_p2 else torch.full_like(total, torch.nan)
        effect = torch.zeros_like(total)
        if ask.sampled is not None:
            effect = torch.where(ask.sampled, _effect(own, total, mean, sum_p2, cubic), effect)
        ctx.save_for_backward(logits, top, total, entropy)
        ctx.ask = ask
        ctx.mark_non_differentiable(sum_p2, effect)
        ctx.set_materialize_grads(False)
        return logp, entropy, sum_p2, effect

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_logp: Tensor | None, of_entropy: Tensor | None, *_: None) -> tuple[Tensor | None, None]:
        """d logp / dz = (onehot - p) / T and dH / dz = -p (log p + H) / T, a chunk at a time into the one gradient."""
        logits, top, total, entropy = ctx.saved_tensors
        ask: _Ask = ctx.ask
        if of_logp is None and of_entropy is None:
            return None, None
        own = torch.zeros_like(top) if of_logp is None else of_logp / ask.temperature
        scale, slope = -own / total, None
        if of_entropy is not None:
            slope = -of_entropy / (ask.temperature * total)
            scale = scale + slope * (entropy - total.log())
        gradient = torch.empty_like(logits) if len(top) == len(logits) else torch.zeros_like(logits)
        buffers = _buffers(logits, ask, 2)
        for part in ask.parts:
            span = part.span
            in_place = isinstance(part.at, slice) and logits.dtype == top.dtype
            piece = gradient[part.at] if in_place else buffers[0, : span.stop - span.start]
            _load(logits, ask, part, piece, top[span])
            if slope is None:
                piece.exp_().mul_(scale[span, None])
            else:
                exp = torch.exp(piece, out=buffers[1, : len(piece)])
                piece.clamp_(min=FLOOR).mul_(slope[span, None]).add_(scale[span, None]).mul_(exp)
            piece.scatter_add_(1, ask.tokens[span, None], own[span, None])
            if isinstance(part.at, Tensor):
                gradient.index_copy_(0, part.at, piece.to(logits.dtype))
            elif not in_place:
                gradient[part.at] = piece
        return gradient, None


def _effect(own: Tensor, total: Tensor, mean: Tensor, sum_p2: Tensor, cubic: Tensor) -> Tensor:
    """-[p_a (log p_a + H) - sum p^2 (log p + H)] (arXiv 2505.22617, Lemma 1), where log p + H = d - `mean`. All [N].

    `own`: d of the token; `total`: sum e^d; `mean`: sum p d; `cubic`: sum e^2d d.
    """
    probability = own.exp() / total
    theirs = cubic / total.square() - mean * sum_p2
    return theirs - probability * (own.clamp(min=FLOOR) - mean)


# ---------------------------------------------------------------------------------------------------------- checks
def _check(
    logits: Tensor,
    tokens: Tensor,
    rows: Tensor | None,
    temperature: float,
    never_ids: Sequence[int],
    sampled: Tensor | None,
) -> None:
    """Everything that would end in a wrong number, or in a message that names a kernel. One read from the device."""
    if logits.dim() != 2 or not logits.is_floating_point():
        raise ShapeError(f"logits: expected floats [R, V], got {_kind(logits)}; flatten [B, T, V] first")
    if tokens.dim() != 1 or tokens.dtype != torch.int64:
        raise ShapeError(f"tokens: expected int64 [N], got {_kind(tokens)}")
    if rows is None and len(tokens) != len(logits):
        raise ShapeError(f"tokens: {len(tokens)} for {len(logits)} rows of logits; say in `rows` which rows they are")
    if rows is not None and (rows.shape != tokens.shape or rows.dtype != torch.int64):
        raise ShapeError(f"rows: expected int64 [{len(tokens)}], one for each token, got {_kind(rows)}")
    if sampled is not None and (sampled.shape != tokens.shape or sampled.dtype != torch.bool):
        raise ShapeError(f"sampled: expected bool [{len(tokens)}], one for each token, got {_kind(sampled)}")
    if not 0 < temperature < float("inf"):
        raise ConfigError(f"temperature: {temperature} must be above 0 and finite")
    if any(not 0 <= i < logits.shape[1] for i in never_ids):
        raise ConfigError(f"never_ids: {list(never_ids)} must lie in 0..{logits.shape[1] - 1}")
    if not len(tokens):
        return
    seen = list(tokens.aminmax())
    if rows is not None:
        gap = (rows[1:] - rows[:-1]).amin() if len(rows) > 1 else torch.ones_like(rows[0])
        seen += [rows[0], rows[-1], gap]
    least, most, *order = torch.stack(seen).tolist()
    if least < 0 or most >= logits.shape[1]:
        raise ConfigError(f"tokens: {least}..{most} must lie in 0..{logits.shape[1] - 1}, the vocabulary of logits")
    if order and (order[2] <= 0 or order[0] < 0 or order[1] >= len(logits)):
        raise ConfigError(f"rows: must increase strictly and lie in 0..{len(logits) - 1}, the rows of logits")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
