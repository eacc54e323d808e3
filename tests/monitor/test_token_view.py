"""What the token viewer says of each token is what the training did; what was not recorded is not made up."""

import math
import random
from dataclasses import replace

import pytest
import torch

from regimescope.monitor.bounds import Bounds, SignBounds, SignRule, WeightRule
from regimescope.monitor.query import BucketRow, RolloutRow
from regimescope.monitor.repeats import Loop
from regimescope.monitor.rollout_reader import RolloutTokens
from regimescope.monitor.token_view import bounds_of, clip_sides, log_ratio, matched_texts, token_view
from regimescope.trainer.loss.weights import ValidTokens, token_terms

RULES = {
    "caps": SignRule(cap_low=0.8, cap_high=1.28),
    "no lower cap": SignRule(cap_high=101.0),
    "drops": SignRule(drop_below=0.8, drop_above=1.2),
    "drop above alone": SignRule(drop_above=1.2),
    "1/r": SignRule(base="1/r", cap_low=0.5, cap_high=3.0),
    "sequence": SignRule(base="s", cap_low=0.999, cap_high=1.001),
    "constant": SignRule(base="1"),
    "free": SignRule(),
}


def row(**changes):
    given = {
        "launch_no": 0, "rank": 0, "step": 3, "file": "f", "row_in_file": 0, "sample_id": 4, "group_id": 1, "env": None,
        "reward": 1.0, "advantage": 0.5, "correct": True, "length": 4, "finish_reason": "length", "repetition": 0.0,
        "update": 0, "revision": 0, "weight_version": 0, "lag": 0, "pick": "worst",
    }  # fmt: skip
    return RolloutRow(**given | changes)


def tokens(**changes):
    names = ("prompt", "response", "token_ids", "logp_old", "logp_new", "entropy", "weight", "bucket", "tokens")
    return RolloutTokens(**dict.fromkeys(names) | changes)


@pytest.mark.parametrize("advantage", [0.7, -0.7, 0.0])
@pytest.mark.parametrize("name", RULES)
def test_clipped_is_what_the_training_counted(name, advantage):
    """Against the trainer's own flags, over float32 log-probabilities as they are recorded."""
    draw = random.Random(name)
    old = torch.tensor([draw.uniform(-3, 0) for _ in range(400)])
    new = old + torch.tensor(
        [draw.choice([0.0, draw.gauss(0, 0.3), draw.gauss(0, 3), 25.0, -25.0]) for _ in range(400)]
    )
    other = SignRule(cap_high=2.0)
    rule = WeightRule(pos=RULES[name], neg=other) if advantage >= 0 else WeightRule(pos=other, neg=RULES[name])
    valid = ValidTokens.of(torch.ones(1, 400, dtype=torch.bool))
    terms = token_terms(new, old, torch.full((400,), advantage), valid, rule)
    said = clip_sides(
        log_ratio(tokens(logp_old=tuple(old.tolist()), logp_new=tuple(new.tolist()))), tuple(terms.weight.tolist()),
        advantage, rule,
    )  # fmt: skip
    counted = [
        "high" if high else "low" if low else ""
        for high, low in zip(terms.clip_high.tolist(), terms.clip_low.tolist(), strict=True)
    ]
    assert said == counted
    assert ("high" in said or "low" in said) == (name not in ("constant", "free"))


def test_nothing_is_clipped_where_nothing_was_recorded():
    rule = WeightRule(pos=RULES["caps"], neg=RULES["caps"])
    assert clip_sides(None, (1.0,), 1.0, rule) is None
    assert clip_sides((0.0,), None, 1.0, rule) is None
    assert clip_sides((0.0,), (1.0,), None, rule) is None
    assert clip_sides((0.0,), (1.0,), 1.0, None) is None
    assert clip_sides((None, math.nan, 0.0), (1.0, 1.0, math.nan), 1.0, rule) == ["", "", ""]


def test_texts_are_matched_only_where_one_character_each_is_certain():
    ids = (5, 6, 5, 1)
    ended = row(finish_reason="eos")
    assert matched_texts(ended, tokens(token_ids=ids, response="aba")) == ("a", "b", "a", None)
    assert matched_texts(row(), tokens(token_ids=ids, response="abac")) == ("a", "b", "a", "c")
    assert matched_texts(ended, tokens(token_ids=ids, response="abac")) is None, "one too many"
    assert matched_texts(ended, tokens(token_ids=ids, response="abc")) is None, "one id, two characters"
    assert matched_texts(row(finish_reason="aborted"), tokens(token_ids=ids, response="abac")) is None
    assert matched_texts(row(finish_reason=None), tokens(token_ids=ids, response="abac")) is None
    assert matched_texts(ended, tokens(response="aba")) is None
    assert matched_texts(ended, tokens(token_ids=ids)) is None


def test_a_view_holds_what_was_recorded():
    found = tokens(token_ids=(5, 6, 7, 8), tokens=("a", "b", "", None), logp_old=(-1.0, -1.0, None, math.nan),
                   logp_new=(-0.5, -1.0, -1.0, -1.0), weight=(1.2, 1.0, 1.0, 1.0), response="x")  # fmt: skip
    rule = WeightRule(pos=SignRule(cap_high=1.2), neg=SignRule())
    view = token_view(row(), found, rule=rule, bounds=None)
    assert view.texts == ("a", "b", "", None) and not view.matched
    assert view.log_ratio[:3] == (0.5, 0.0, None) and math.isnan(view.log_ratio[3])
    assert view.clip == ["high", "", "", ""] and view.clipped == (1, 0)
    assert view.entropy is None and view.bucket is None and view.loop is None
    bare = token_view(row(), tokens(), rule=None, bounds=None)
    assert (bare.texts, bare.clip, bare.repeated, bare.clipped, bare.matched) == (None, None, None, (0, 0), False)


def test_the_end_token_does_not_hide_the_loop():
    ids = (*(5, 6) * 12, 1)
    ended = token_view(row(length=25, finish_reason="eos"), tokens(token_ids=ids), rule=None, bounds=None)
    assert ended.loop == Loop(start=0, period=2, covered=24, at_end=True)


def bucket(name, update, low, high):
    empty = dict.fromkeys(BucketRow.__dataclass_fields__)
    return BucketRow(**empty | {"step": 3, "update": update, "bucket": name, "w_min": low, "w_max": high})


def test_the_bounds_are_those_of_the_update():
    rows = [bucket(name, update, 0.8, 11.0 + update) for name in ("R1", "R2", "pos_eq1") for update in (0, 1)]
    rows += [bucket(name, update, 0.0, math.inf) for name in ("R3", "R4", "neg_eq1") for update in (0, 1)]
    rows += [bucket("zero_adv", update, None, None) for update in (0, 1)]
    second = Bounds(pos=SignBounds(w_min=0.8, w_max=12.0), neg=SignBounds(w_min=0.0, w_max=math.inf))
    assert bounds_of(rows, 1) == second
    assert bounds_of(rows, None) is None, "two updates, two bounds"
    assert bounds_of([r for r in rows if r.update == 1], None) == second
    assert bounds_of(rows, 7) is None and bounds_of([], 0) is None
    assert bounds_of([replace(r, w_min=None) for r in rows], 1) is None
