"""rules.toml, and a user's file over it."""

import pytest

from regimescope.detectors import Event, RulesError, Suite, load_rules


def user(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_user_file_changes_only_what_it_names(tmp_path, rules):
    mine = load_rules(
        user(tmp_path, '[[rule]]\nname = "length_collapse"\nwarning = { effect = 0.6 }\n[core]\nrecent = 5\n')
    )
    assert mine["length_collapse"].levels["warning"].effect == 0.6
    assert mine["length_collapse"].levels["warning"].evidence == rules["length_collapse"].levels["warning"].evidence
    assert mine.core["recent"] == 5 and mine.core["h"] == rules.core["h"]
    assert mine.version != rules.version


def test_version_is_stable():
    assert load_rules().version == load_rules().version and len(load_rules().version) == 12


def test_switching_a_rule_off_removes_it(tmp_path):
    text = '[[rule]]\nname = "length_floor"\nenabled = false\n[[rule]]\nname = "length_collapse"\nenabled = false\n'
    suite = Suite(load_rules(user(tmp_path, text)))
    for step in range(30):
        suite.update(step, {"response_length_mean": 400.0 if step < 20 else 2.0})
    assert suite.findings() == []
    assert not {"length_floor", "length_collapse"} & {blind.rule for blind in suite.blind()}


def test_guard_works_without_its_shift_rule(tmp_path):
    suite = Suite(load_rules(user(tmp_path, '[[rule]]\nname = "length_collapse"\nenabled = false\n')))
    found = [f for step in range(30) for f in suite.update(step, {"response_length_mean": 400.0 if step < 20 else 2.0})]
    assert [(f.rule, f.severity, f.step_detected) for f in found] == [("length_collapse", "critical", 21)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[rule]]\nname = "lenght_collapse"\n', "unknown rule 'lenght_collapse'; did you mean 'length_collapse'?"),
        ('[[rule]]\nname = "length_collapse"\nkeep_fireing = 3\n', "did you mean 'keep_firing'?"),
        ('[[rule]]\nname = "length_collapse"\nwarning = { efect = 1 }\n', "did you mean 'effect'?"),
        ("[cor]\nh = 3\n", "unknown table 'cor'; did you mean 'core'?"),
        ("[core]\nhh = 3\n", "unknown key 'hh'; did you mean 'h'?"),
        ('[core]\nh = "3"\n', "want a number such as 8.0"),
        ('[[rule]]\nname = "length_collapse"\nenabled = 1\n', "want a true or false such as True"),
        ("[[rule]]\nenabled = false\n", "without name"),
        ("rule = 3\n", "want [[rule]] tables"),
        ("[core\n", "not valid TOML"),
    ],
)
def test_mistakes_name_file_key_and_nearest(tmp_path, text, message):
    with pytest.raises(RulesError) as error:
        load_rules(user(tmp_path, text))
    assert message in str(error.value) and "mine.toml" in str(error.value) and "\n" not in str(error.value)


def test_missing_file(tmp_path):
    with pytest.raises(RulesError, match=r"nowhere\.toml: cannot read the rules"):
        load_rules(tmp_path / "nowhere.toml")


NAMES = [rule.name for rule in load_rules()]


def switched(tmp_path, names, on):
    rows = (f'[[rule]]\nname = "{name}"\nenabled = {str(on).lower()}\n' for name in names)
    return load_rules(user(tmp_path, "".join(rows)))


@pytest.mark.parametrize("name", NAMES)
def test_each_rule_can_be_switched_off_alone(tmp_path, traces, name):
    """The suite runs, no alert carries its texts, and its absence is not reported as blindness."""
    rules = switched(tmp_path, [name], on=False)
    suite = Suite(rules)
    start = Event(kind="start", step=0, data={"objective": "dispo", "neg.w_min": 1.0, "neg.w_max": 11.0})
    for step, row in enumerate(traces.incident("length", 15, 50, 3)):
        suite.update(step, row | {"loss": float("nan") if step == 45 else 0.1}, [start] if step == 0 else ())
    assert name not in {blind.rule for blind in suite.blind()}
    texts = [rule.text for rule in rules if rule.enabled]
    if rules[name].text not in texts:
        assert rules[name].text not in {finding.text for finding in suite.findings()}


@pytest.mark.parametrize("on", [True, False])
def test_all_rules_can_be_on_or_off(tmp_path, traces, on):
    suite = Suite(switched(tmp_path, NAMES, on))
    for step, row in enumerate(traces.incident("length", 15, 50, 3)):
        suite.update(step, row)
    assert bool(suite.findings()) == on and {blind.rule for blind in suite.blind()} == (set(NAMES) if on else set())
