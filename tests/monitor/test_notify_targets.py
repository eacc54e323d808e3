"""The file of targets is strict and keeps its secrets; what falls due, and what a message says."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from regimescope.cli import main
from regimescope.monitor.errors import NotifyFileError
from regimescope.monitor.notify import due
from regimescope.monitor.notify.message import Circumstances, message
from regimescope.monitor.notify.post import masked, post
from regimescope.monitor.notify.targets import Plan, Target, load_plan
from regimescope.monitor.notify.told import told_line
from regimescope.monitor.query import AlertRow

SECRET = "s3cret-part"
URL = f"json://127.0.0.1:9/{SECRET}?+X-Key={SECRET}"
ALERT = AlertRow(
    alert_id="a", incident_id="a", signature="length_collapse", rule="length_collapse", severity="warning",
    state="firing", driver="R4", step_onset=100, step_detected=110, step_last=115, evidence={}, remedy={},
    inhibited_by=None, title="", text="", direction=None, score=None, launch_no=0, ordinal=0, superseded=False,
)  # fmt: skip
HOOK = Target(name="hook", url=URL)


def write(root, text):
    (root / "notify.toml").write_text(text)
    return root


def test_without_a_file_nobody_is_told(tmp_path) -> None:
    assert load_plan(tmp_path, {}) == Plan()


def test_file_and_environment_are_read_together(tmp_path) -> None:
    text = '[[target]]\nname = "ana"\nurl_env = "ANA"\nquiet = "22:00-7:30"\ninterval = 60\non = ["resolve", "open"]\n'
    plan = load_plan(write(tmp_path, f'link = "https://x/"\n{text}'), {"ANA": URL, "REGIMESCOPE_NOTIFY": "a://b c://d"})
    assert plan.link == "https://x" and [t.name for t in plan.targets] == ["ana", "env-1", "env-2"]
    ana = plan.targets[0]
    assert (ana.url, ana.quiet, ana.interval_s, ana.on) == (URL, (1320, 450), 60.0, ("open", "resolve"))
    assert ana.is_quiet(1430) and ana.is_quiet(0) and not ana.is_quiet(450) and not ana.is_quiet(720)
    assert SECRET not in repr(plan)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nmae = 'x'", "did you mean 'name'?"),
        ("severity = 'bad'", "severity: want one of info, warning, critical"),
        ("on = ['opened']", "on: want a list of open, escalate, resolve"),
        ("quiet = '22-7'", 'such as "22:00-07:00"'),
        ("quiet = '25:00-07:00'", 'such as "22:00-07:00"'),
        ("interval = -1", "interval: want seconds"),
        ("url_env = 'NOT_SET'", "give either url, or url_env"),
    ],
)
def test_a_mistake_names_file_target_and_key_and_no_url(tmp_path, line, says) -> None:
    write(tmp_path, f'[[target]]\nname = "ana"\nurl = "{URL}"\n{line}\n')
    with pytest.raises(NotifyFileError) as found:
        load_plan(tmp_path, {})
    assert says in str(found.value) and "notify.toml" in str(found.value) and SECRET not in str(found.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("link = 'x'", "link: want the address of the pages"),
        ("targets = 3", "did you mean 'target'?"),
        ("[target]\nname = 'a'", "write each one as [[target]]"),
        ("[[target]]\nname = 'a'\nurl_env = 'NOT_SET'", "the variable NOT_SET of the environment is not set"),
        ("[[target]]\nname = 'a'\nurl = 'slack'", "its URL is no URL"),
        ("[[target]]\nname = 'a'\nurl = 'a://b'\n" * 2, "two targets are called 'a'"),
        ("[[target", "not valid TOML"),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path, text, says) -> None:
    with pytest.raises(NotifyFileError) as found:
        load_plan(write(tmp_path, text), {})
    assert says in str(found.value)


def test_a_url_that_apprise_does_not_take_is_refused_without_showing_it() -> None:
    """apprise itself logs the token of a URL of Slack."""
    code = f"""
import logging
logging.basicConfig(level=logging.DEBUG)
from regimescope.monitor.notify.post import *
try:
    check(Plan(targets=(Target(name="chat", url="slack://{SECRET}"),)))
except NotifyFileError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "target chat: apprise does not take its URL (slack://…)" in ran.stdout
    assert SECRET not in ran.stdout + ran.stderr


def test_a_shown_url_has_neither_path_nor_options() -> None:
    assert masked(HOOK) == "json://127.0.0.1:9/…"
    shown = masked(Target(name="m", url="mailto://ana:pa55word@example.com?to=bob@example.com"))
    assert shown == "mailto://ana:****@example.com/…"


def test_the_command_lists_masked_targets_and_says_which_test_failed(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("REGIMESCOPE_NOTIFY", raising=False)
    assert main(["notify", "list", "--root", str(tmp_path)]) == 0 and "no targets" in capsys.readouterr().out
    write(tmp_path, f'[[target]]\nname = "ana"\nurl = "{URL}"\n')
    assert main(["notify", "list", "--root", str(tmp_path)]) == 0
    assert main(["notify", "test", "--root", str(tmp_path)]) == 1
    assert main(["notify", "test", "--root", str(tmp_path), "--target", "bob"]) == 2
    said = capsys.readouterr()
    assert "json://127.0.0.1:9/…" in said.out and "ana: not delivered: no connection" in said.out
    assert "no target 'bob'; there is ana" in said.err and SECRET not in said.out + said.err


def test_post_never_raises_and_never_names_the_url() -> None:
    for url in ("", "json://", "://", "bogus://x", URL, "json://[::1"):
        assert SECRET not in (why := post(url, "t", "b")) and why


def history(*notices):
    return due.merge(notices)


def told(alert=ALERT, kind="open", **changes):
    return replace(due.Notice.of_alert(alert, kind, "hook", due.SENT), **changes)


def asked(alert, known=None, target=HOOK, *, is_open=True):
    return due.due(alert, target, known or {}, is_open=is_open)


def test_an_alert_opens_rises_and_resolves_once() -> None:
    critical = replace(ALERT, severity="critical")
    over = replace(critical, state="resolved")
    assert asked(ALERT) == "open" and asked(ALERT, history(told())) == ""
    assert asked(critical, history(told())) == "escalate"
    known = history(told(), told(critical, "escalate"))
    assert asked(critical, known) == "" and asked(over, known, is_open=False) == "resolve"
    assert asked(over, history(told(), told(over, "resolve")), is_open=False) == ""
    assert asked(over, {}, is_open=False) == "", "nobody was told that it opened"


def test_every_rise_is_told_where_info_is_asked_for() -> None:
    target = replace(HOOK, severity="info")
    info, warning, critical = (replace(ALERT, severity=s) for s in ("info", "warning", "critical"))
    known = history(told(info))
    assert asked(warning, known, target) == "escalate"
    known = history(told(info), told(warning, "escalate"))
    assert asked(warning, known, target) == "" and asked(critical, known, target) == "escalate"


def test_a_moved_onset_is_told_nobody_twice_but_a_rise_is() -> None:
    moved = replace(ALERT, alert_id="b", ordinal=1, step_onset=130)
    assert asked(moved, history(told())) == ""
    assert asked(replace(moved, step_onset=131), history(told())) == "open"
    assert asked(replace(moved, slice="env=math"), history(told())) == "open", "another slice"
    assert asked(replace(moved, rule="length_floor"), history(told())) == "open", "another rule"
    assert asked(replace(moved, severity="critical"), history(told())) == "escalate"


def test_a_target_gets_what_it_asks_for() -> None:
    critical = replace(ALERT, severity="critical")
    assert asked(replace(ALERT, severity="info")) == "", "below warning"
    assert asked(critical, {}, replace(HOOK, on=("escalate",))) == "escalate"
    assert asked(ALERT, {}, replace(HOOK, on=("escalate",))) == ""
    false = replace(ALERT, state="resolved", mark="false_alarm")
    assert asked(false, history(told()), is_open=False) == ""
    assert asked(ALERT, history(told(target="mail"))) == "open", "each target by itself"


def test_states_are_ordered_by_how_final_they_are_not_by_a_clock() -> None:
    sent, waiting, failed = (told(state=s) for s in (due.SENT, due.WAITING, due.FAILED))
    assert [n.state for n in history(sent, failed, waiting).values()] == ["sent"]
    assert told_line([waiting, replace(failed, why="it answered 500")], "a") == (
        "Notices: open to hook not delivered yet (it answered 500)"
    )
    assert told_line([waiting, failed, sent], "a") == "Notices: open to hook sent" and told_line([sent], "b") == ""


def test_a_message_has_what_is_needed_and_no_text_of_a_run_calls_anybody() -> None:
    around = Circumstances(
        run="x/<!channel>\r\n@everyone" + 200 * "y",
        verdict="COLLAPSING",
        bound=("neg.w_min", 0.5, 0.0),
        checkpoint=90,
        link="http://127.0.0.1:8501",
    )
    found = message("open", replace(ALERT, slice="env=<@U1>"), around)
    said = found.title + found.body.replace("A<0", "")
    assert "<" not in said and "@everyone" not in said and "@U1" not in said and "\r" not in said
    lines = found.body.splitlines()
    assert {"Move w_min of A<0: 0.5 -> 0", "Last good checkpoint: step 90", "Driver: R4"} < set(lines)
    assert "\n" not in found.title
    assert "Onset step 100, detected step 110" in found.body and "&alert=a" in found.body
    assert "Move" not in message("resolve", ALERT, around).body
    assert "5 min late" in found.delayed(300).body
