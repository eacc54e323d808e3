"""Env slices: more evidence on each, one alarm budget for the run, what the whole shows is dimmed."""

import gc
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.detectors import Event, Slices, Suite, load_rules, slice_inputs
from regimescope.detectors.slices import slice_rules

TASKS = ("proofs", "sums", "units", "words")


def length_of(step, onset=40):
    return 300.0 + step % 3 if step < onset else max(3.0, 300.0 * 0.5 ** (step - onset + 1))


def row(length, accuracy=0.6):
    return {"response_length_mean": length, "accuracy": accuracy, "accuracy.n": 64.0, "entropy_mean": 0.5}


def replayed(steps, parts, whole_row=None, events=None):
    """Findings of the whole and of the slices. `parts(step)`: the slices; the whole is their mean unless given."""
    whole = Suite()
    slices = Slices(whole)
    told = []
    for step in range(steps):
        rows = parts(step)
        mean = {name: sum(r[name] for r in rows.values()) / len(rows) for name in row(1.0)} if rows else {}
        happened = (events or {}).get(step, ())
        whole.update(step, whole_row(step) if whole_row else mean, happened)
        told += [(step, finding) for finding in slices.update(step, rows, happened)]
    return whole.findings(), slices.findings(), told


def test_a_slice_needs_more(rules) -> None:
    raised = slice_rules(rules)
    on = {rule.name for rule in raised if rule.enabled}
    assert {"length_collapse", "repetition_collapse", "exploration_decay", "entropy_collapse", "infra_failed"} <= on
    assert not on & {"bounds_r3", "mismatch_k1", "nonfinite", "early_r4", "repetition_share", "truncation_saturated"}
    for name in on:
        for severity, level in raised[name].levels.items():
            plain = rules[name].levels[severity]
            assert level.points > plain.points
            assert level.effect > plain.effect or not plain.effect
            assert level.evidence > plain.evidence or not plain.evidence
            assert level.evidence < 2 * rules.core["h"], f"{name} {severity} could never speak"
    assert raised["infra_failed"].levels["warning"].value == 0.2
    assert {"accuracy", "entropy_mean", "rep4_mean", "R4.clip_low_frac"} <= slice_inputs(rules)
    assert not {"loss", "R4.tokens"} & slice_inputs(rules)


def test_false_alarms_are_counted_per_run(slice_benchmark, traces) -> None:
    """<= .05 warnings per 1,000 steps of the RUN, no critical, with 1, 4 and 16 slices."""
    for k, steps in ((1, 900), (4, 600), (16, 250)):
        count, total = Counter(), 0
        for seed, (phi, tails) in enumerate((phi, tails) for phi in (0.0, 0.6, 0.8) for tails in traces.TAILS):
            rows = slice_benchmark.healthy(k, steps, 100 * k + seed, traces.Noise(phi=phi, tails=tails))
            total += len(rows)
            _, found = slice_benchmark.findings(rows)
            count.update(finding.severity for finding in found if finding.inhibited_by is None)
        assert count["critical"] == 0 and count["warning"] <= 0.05 * total / 1000, (k, count)


def test_a_task_that_fails_alone_is_found(slice_benchmark) -> None:
    named = {"length": "length_collapse", "repetition": "repetition_collapse"}
    for kind, signature in named.items():
        for onset in (30, 120):
            rows = slice_benchmark.failing(kind, 16, True, onset, onset + 50, onset)
            whole, found = slice_benchmark.findings(rows)
            first = next(f for f in found if f.signature == signature)
            assert first.slice == "task00" and onset <= first.step_detected <= onset + 25, (kind, onset)
            assert first.inhibited_by is None
            assert kind != "length" or not any(f.signature == signature for f in whole)  # a 16th hardly moves the mean
            assert {f.slice for f in found} == {"task00"}


def test_what_the_whole_shows_is_dimmed_on_the_slices() -> None:
    whole, found, _ = replayed(70, lambda step: {task: row(length_of(step)) for task in TASKS})
    assert [f.signature for f in whole if f.severity == "critical"] == ["length_collapse"]
    assert {f.slice for f in found} == set(TASKS) and all(f.inhibited_by == "length_collapse" for f in found)
    assert {f.incident for f in found} == {f.incident for f in whole if f.signature == "length_collapse"}


def test_a_slice_that_stays_down_comes_back_when_the_whole_recovers() -> None:
    """Its alert was explained by that of the whole; once that one is over, and a little longer, it speaks itself."""

    def parts(step):
        all_fail = 40 <= step < 60
        tasks = (*TASKS, *(f"task{i}" for i in range(12)))
        return {task: row(length_of(step)) if task == "proofs" or all_fail else row(300.0 + step % 3) for task in tasks}

    whole, found, told = replayed(200, parts)
    (one,) = (f for f in whole if f.signature == "length_collapse" and f.severity == "critical")
    assert one.state == "resolved"
    proofs = [(step, f.inhibited_by) for step, f in told if f.slice == "proofs" and f.rule == "length_collapse"]
    dimmed = [step for step, by in proofs if by]
    back = [step for step, by in proofs if by is None]
    assert dimmed and back and max(back) > max(dimmed) + 20
    assert {f.slice for f in found if f.state == "firing"} == {"proofs"}


def test_a_worse_alert_of_a_slice_is_not_dimmed_by_a_milder_one() -> None:
    whole = Suite()
    slices = Slices(whole)
    for step in range(60):
        whole.update(step, row(300.0 + step % 3 if step < 40 else 150.0))
        slices.update(step, {"proofs": row(length_of(step))})
    assert [(f.signature, f.severity) for f in whole.findings()] == [("length_collapse", "warning")]
    (found,) = slices.findings()
    assert (found.severity, found.inhibited_by) == ("critical", None)


def test_slices_say_no_infos() -> None:
    slow = {step: 300.0 * max(0.5, 1 - max(0, step - 60) / 120) for step in range(200)}
    whole = Suite()
    slices = Slices(whole)
    for step in range(200):
        whole.update(step, {"response_length_mean": slow[step]})
        slices.update(step, {"proofs": {"response_length_mean": slow[step]}})
    assert {f.severity for f in whole.findings()} == {"info"} and slices.findings() == []


def test_a_slice_that_comes_late_knows_the_bounds() -> None:
    """Buckets of the slice name the driver; the bound is proposed only where the declared one is not at its target."""
    buckets = {f"R4.{name}": 0.6 for name in ("clip_low_frac", "token_frac", "grad_mass")}
    remedies = []
    for w_min in (0.8, 0.0):
        start = Event(kind="start", step=0, data={"objective": "dispo", "ratio_source": "behaviour", "neg.w_min": 0.8})
        moved = Event(kind="bounds_changed", step=5, data={"neg.w_min": w_min})
        parts = lambda step: {} if step < 20 else {"proofs": row(length_of(step, 60)) | buckets}  # noqa: E731
        _, found, _ = replayed(80, parts, lambda step: row(300.0), {0: [start], 5: [moved]})
        remedies.append(next(f.remedy.bound for f in found if f.signature == "length_collapse"))
    assert remedies == ["neg.w_min", None]


def test_failed_rollouts_of_one_task() -> None:
    """A few failed rollouts are a large share of a slice; many in a row are its sandbox."""
    for share, expected in ((0.1, []), (0.5, ["critical"])):
        _, found, _ = replayed(
            30,
            lambda step: {"proofs": row(300.0) | {"infra_failed_frac": share if 10 <= step < 20 else 0.0}},  # noqa: B023
            lambda step: row(300.0),
        )
        assert [f.severity for f in found] == expected


@settings(max_examples=15)
@given(st.lists(st.sets(st.sampled_from(TASKS)), min_size=60, max_size=80), st.randoms(use_true_random=False))
def test_slices_do_not_touch_each_other_nor_the_whole(present, random) -> None:
    """Whatever slices are there and in which order: each finds what it would alone, the whole what it does without."""

    def parts(step, tasks):
        listed = sorted(tasks)
        random.shuffle(listed)
        return {task: row(length_of(step, 30 if task == "proofs" else 999)) for task in listed if task in present[step]}

    steady = lambda step: row(300.0)  # noqa: E731
    whole, found, _ = replayed(len(present), lambda step: parts(step, TASKS), steady)
    alone = [
        finding
        for task in TASKS
        for finding in replayed(len(present), lambda step: parts(step, [task]), steady)[1]  # noqa: B023
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, alone))
    assert whole == replayed(len(present), lambda step: {}, steady)[0]


def test_memory_is_bounded_per_slice() -> None:
    """The number of objects that the slices hold does not grow with the steps."""

    def held(steps):
        whole = Suite(load_rules())
        slices = Slices(whole)
        for step in range(steps):
            whole.update(step, row(300.0 + step % 5))
            slices.update(step, {f"task{i}": row(300.0 + (step + i) % 5) for i in range(16)})
        seen, todo = set(), [slices]
        while todo:
            item = todo.pop()
            if id(item) not in seen and not isinstance(item, type):
                seen.add(id(item))
                if type(item).__module__.startswith("regimescope.detectors") or isinstance(item, dict | list | tuple):
                    todo += gc.get_referents(item)
        return len(seen)

    assert held(900) <= held(300) + 20
