"""The foot of the Alerts page: rules that cannot see all they need."""

from regimescope.detectors import Suite
from regimescope.monitor.ui.views.unseen import summary, table


def blind(*rows):
    suite = Suite()
    for step, row in enumerate(rows):
        suite.update(step, row)
    return suite.blind()


def test_the_worst_come_first_with_the_reason_and_what_to_log():
    found = blind(*[{"response_length_mean": 300.0, "truncated_frac": 0.01}] * 4)
    rows = table(found)
    assert [row["state"] for row in rows] == sorted(
        (row["state"] for row in rows), key=["blind", "without an optional input", "warming up"].index
    )
    by_rule = {row["rule"]: row for row in rows}
    assert by_rule["exploration_decay"]["why"] == "accuracy is not logged"
    assert by_rule["exploration_decay"]["what to log"].startswith("Log accuracy")
    assert by_rule["length_collapse"]["why"] == "warming up 4/10"
    assert "truncation_saturated" not in by_rule
    count = {state: sum(row["state"] == state for row in rows) for state in ("blind", "warming up")}
    assert summary(found).startswith(f"{len(found)} rules: {count['blind']} blind, ")
    assert summary(found).endswith(f"{count['warming up']} warming up")
