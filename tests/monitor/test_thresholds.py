"""The numbers of the rules: listed, changed, and written down so that the change can be kept."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.detectors import RulesError, load_rules
from regimescope.detectors.rules import load_table
from regimescope.monitor.errors import RulesFileError
from regimescope.monitor.rules_file import rules_of, rules_path, table_of
from regimescope.monitor.thresholds import changed, optional_rules, thresholds, toml_lines

ALL = {(t.rule, t.key): t for t in thresholds(load_table())}
NUMBERS = sorted(name for name, t in ALL.items() if not isinstance(t.value, bool))


def test_every_rule_has_its_switch_and_its_numbers():
    assert {rule for rule, _ in ALL} == {rule.name for rule in load_rules()}
    assert ALL["length_collapse", "critical.evidence"].value == 10
    assert ALL["length_collapse", "enabled"].value is True
    assert ALL["exploration_decay", "sign_length_twice"].comment == "1.2: counts as two signs"
    assert not any(t.changed for t in ALL.values())


def test_optional_rules_are_those_that_are_off_as_shipped():
    assert {rule.name for rule in load_rules() if not rule.enabled} == optional_rules() != set()


def test_lines_of_a_change_are_a_block_per_rule():
    lines = toml_lines(
        {
            ("length_collapse", "critical.evidence"): 12,
            ("reward_stall", "enabled"): True,
            ("length_collapse", "critical.effect"): 0.9,
            ("length_collapse", "keep_firing"): 5,
        }
    )
    assert lines == (
        '[[rule]]\nname = "length_collapse"\nkeep_firing = 5\ncritical = { evidence = 12, effect = 0.9 }\n\n'
        '[[rule]]\nname = "reward_stall"\nenabled = true'
    )


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(NUMBERS), st.floats(0.001, 1e6), min_size=1, max_size=6))
def test_lines_behind_a_file_give_the_changed_rules(changes):
    table = load_table()
    rules = changed(table, changes)
    for (rule, key), value in changes.items():
        level, _, number = key.rpartition(".")
        if not level:
            assert rules[rule].numbers[number] == value
        elif number != "for":
            assert getattr(rules[rule].levels[level], number) == value
    assert {(t.rule, t.key): t.value for t in thresholds(table)} == {name: t.value for name, t in ALL.items()}


def test_an_unknown_number_is_refused_by_name():
    with pytest.raises(RulesError, match="did you mean 'critical'"):
        changed(load_table(), {("length_collapse", "critcal.evidence"): 12})


def test_a_file_in_the_root_is_in_force_and_marked(tmp_path):
    rules_path(tmp_path).write_text(toml_lines({("length_collapse", "critical.evidence"): 12}))
    assert rules_of(tmp_path)["length_collapse"].levels["critical"].evidence == 12
    assert [(t.rule, t.key) for t in thresholds(table_of(tmp_path)) if t.changed] == [
        ("length_collapse", "critical.evidence")
    ]


def test_lines_may_be_appended_to_a_file_that_names_the_rule_already(tmp_path):
    path = rules_path(tmp_path)
    path.write_text(toml_lines({("length_collapse", "critical.evidence"): 12}) + "\n")
    path.write_text(path.read_text() + "\n" + toml_lines({("length_collapse", "critical.effect"): 0.9}) + "\n")
    level = rules_of(tmp_path)["length_collapse"].levels["critical"]
    assert (level.evidence, level.effect) == (12, 0.9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[rule]]\nname = "lenght_collapse"', "did you mean 'length_collapse'"),
        ("[[rule]", "not valid TOML"),
        ('[[rule]]\nname = "exploration_decay"\nhalf_life = 0', "do not work with these numbers"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, said):
    rules_path(tmp_path).write_text(text)
    with pytest.raises(RulesFileError, match=said) as error:
        rules_of(tmp_path)
    assert str(rules_path(tmp_path)) in str(error.value)


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "elsewhere.toml").write_text("")
    rules_path(tmp_path).symlink_to(tmp_path / "elsewhere.toml")
    with pytest.raises(RulesFileError, match="is a link"):
        rules_of(tmp_path)
