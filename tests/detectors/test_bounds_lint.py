"""What the configuration alone tells, at start and at every revision."""

import pytest

from regimescope.detectors import Event, Suite


def lint(**data):
    suite = Suite()
    data = {
        "objective": "dispo",
        "pos.w_min": 0.8,
        "pos.w_max": 11.0,
        **{k.replace("_w", ".w", 1): v for k, v in data.items()},
    }
    suite.update(0, {}, [Event(kind="start", step=0, data=data)])
    return {f.rule: f.severity for f in suite.findings()}


@pytest.mark.parametrize(
    ("w_min", "w_max", "found"),
    [
        (0.0, 101.0, {}),
        (0.0, float("inf"), {}),
        (0.0, 5.0, {"bounds_r3": "info"}),
        (0.0, 1.3, {"bounds_r3": "warning"}),
        (0.2, 101.0, {"bounds_r4": "info"}),
        (0.7, 101.0, {"bounds_r4": "warning"}),
        (1.0, 6.0, {"bounds_r3": "info", "bounds_r4": "warning"}),  # SkyRL's shipped default for ten months
        (
            0.2,
            0.2,
            {"bounds_r3": "warning", "bounds_r4": "info"},
        ),  # TRL's CISPO without epsilon_high: 0.2 for every token
        (0.0, 0.0, {}),  # nothing of A<0 is trained on
    ],
)
def test_levels(w_min, w_max, found):
    assert lint(neg_w_min=w_min, neg_w_max=w_max) == found


def test_other_objectives():
    assert lint(objective="grpo", neg_w_min=0.8, neg_w_max=float("inf")) == {}
    assert lint(objective="dapo", neg_w_min=0.8, neg_w_max=3.0) == {"bounds_r3": "info"}  # verl's dual clip
    assert lint(objective="gspo", neg_w_min=0.9, neg_w_max=1.1) == {}
    assert lint(objective=None, neg_w_min=1.0, neg_w_max=1.0) == {}
    assert lint(objective="dispo", neg_w_min=1.0, neg_w_max=1.0, **{"neg.base": "1"}) == {}


def test_it_resolves_at_the_revision_that_repairs_it_and_comes_back():
    suite = Suite()
    seen = []
    for step, w_min in enumerate((1.0, 1.0, 0.0, 0.0, 0.9)):
        kind = "start" if step == 0 else "bounds_changed"
        data = {"objective": "dispo", "neg.w_min": w_min, "neg.w_max": 101.0, "revision": step}
        events = [Event(kind=kind, step=step, data=data)] if step in (0, 2, 4) else []
        seen += [(step, f.state, f.ordinal) for f in suite.update(step, {}, events)]
    assert seen == [(0, "firing", 0), (2, "resolved", 0), (4, "firing", 1)]


def test_it_proposes_the_bound_and_keeps_to_itself():
    suite = Suite()
    start = Event(kind="start", step=0, data={"objective": "cispo", "neg.w_min": 1.0, "neg.w_max": 101.0})
    for step in range(12):
        suite.update(step, {"response_length_mean": 40.0 if step < 4 else 3.0}, [start] if step == 0 else ())
    found, collapse = suite.findings()
    assert (found.signature, found.remedy.bound, found.remedy.direction, found.remedy.target) == (
        "bounds_lint",
        "neg.w_min",
        "lower",
        0,
    )
    assert found.incident != collapse.incident and found.inhibited_by is None
