"""A text or a clipped token, looked for in the files: what is found, and what is said of the rest."""

from dataclasses import replace

import pytest

from regimescope.monitor import Bounds, Recorder, Rollout, RolloutOptions, SignBounds, WeightRule, query, rollout_search
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.rollout_search import search
from regimescope.monitor.store import Store

BOUNDS = Bounds(pos=SignBounds(w_min=0.8, w_max=2.0), neg=SignBounds(w_min=0.0, w_max=2.0))
RULE = WeightRule.capped(BOUNDS)


@pytest.fixture
def kept(root):
    """A run of four steps with two rows each, the rows newest first."""
    with Recorder(root / "run", rollouts=RolloutOptions(every=1), sync=True, rule=RULE) as recorder:
        for step in range(4):
            arrays = {
                "logp_old": [-2.0, -2.0],
                "logp_new": [-1.0 if step == 1 else -2.0, -2.0],
                "weight": [2.0 if step == 1 else 1.0, 1.0],
            }
            said = Rollout(sample_id=0, length=2, prompt=f"P{step}", response="Straße 4", advantage=1.0, **arrays)
            bare = Rollout(sample_id=1, length=2, prompt="2+2", response=None, advantage=1.0)
            recorder.rollouts(step, [said, bare])
            recorder.step(step, {})
    store = Store.in_memory(root)
    Ingester(store).catch_up()
    with store.cursor() as con:
        yield query.rollouts(con, 1)
    store.close()


def places(found):
    return [(row.step, row.sample_id) for row in found.rows]


def test_a_text_in_prompt_or_response_in_any_case(root, kept):
    assert places(search(root / "run", kept, text="p2")) == [(2, 0)]
    assert places(search(root / "run", kept, text="STRASSE")) == [(3, 0), (2, 0), (1, 0), (0, 0)]
    assert places(search(root / "run", kept, text="2+2")) == [(3, 1), (2, 1), (1, 1), (0, 1)]
    everything = search(root / "run", kept, text=".*")
    assert (places(everything), everything.looked, everything.stopped) == ([], 8, False), "no pattern, a plain text"


def test_a_clipped_token(root, kept):
    assert places(search(root / "run", kept, clipped=True, rule=RULE)) == [(1, 0)]
    assert places(search(root / "run", kept, clipped=True, rule=RULE, text="p2")) == []
    assert places(search(root / "run", kept, clipped=True, rule=None)) == []


def test_what_cannot_be_read_is_counted(root, kept):
    (root / "run" / kept[0].file).unlink()
    found = search(root / "run", kept, text="straße")
    assert (places(found), found.looked, found.unreadable) == ([(2, 0), (1, 0), (0, 0)], 6, 2)
    other = [replace(kept[-1], sample_id=77)]
    assert search(root / "run", other, text="x").unreadable == 1


def test_it_stops_in_time_and_says_so(root, kept, monkeypatch):
    ticks = iter(range(100))
    found = search(root / "run", kept, text="straße", clock=lambda: float(next(ticks)))
    assert found.stopped and (places(found), found.looked) == ([(3, 0), (2, 0)], 4)
    monkeypatch.setattr(rollout_search, "MOST_ROWS", 2)
    found = search(root / "run", kept, text="straße")
    assert found.stopped and (places(found), found.looked) == ([(3, 0)], 2)
