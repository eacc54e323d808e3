"""`regimescope check RUN|LOG [--json] [--fail-on critical|warning]`: the detectors over a finished or running run, or
over a log of any trainer, for people and for CI.

Exit code 0: no critical alert; 1: one (or, with --fail-on warning, a warning); 2: the run cannot be read. Reported and
without a say: what the bounds alone tell (the lint), alerts of a stretch that a later launch repeated, alerts that
another one explains, those that a person called false or snoozed (never a critical one). Reads the segments into a
private index and writes nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any

from regimescope.detectors import Blind
from regimescope.detectors.advice import attribution
from regimescope.monitor import query
from regimescope.monitor.imports.command import add_options, request_of
from regimescope.monitor.imports.either import read_either
from regimescope.monitor.imports.write import Imported
from regimescope.monitor.private import RunView
from regimescope.monitor.rescue import RescuePlan, as_json, plans
from regimescope.monitor.troubles import troubles
from regimescope.monitor.ui.verdict import is_snoozed
from regimescope.monitor.way_back import relax, way_back
from regimescope.monitor.wire import plain

LINT = "bounds_lint"
_FAILING = {"critical": ("critical",), "warning": ("critical", "warning")}
_RANK = {"critical": 0, "warning": 1, "info": 2}
_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `check` found; `--json` prints these fields."""

    run: str
    "Path below the root."
    status: str
    "running | ended | crashed | imported"
    steps: int
    "Steps that were finished and count."
    last_step: int | None
    warming: tuple[int, int]
    "Points seen (at most those needed) and points needed before the rules without fixed limits speak."
    verdict: str
    "critical | warning | info | ok: the worst alert that counts."
    alerts: list[dict[str, object]]
    "Those that count first; worst first, then by onset."
    lint: list[dict[str, object]]
    "What the bounds alone tell."
    blind: list[dict[str, object]]
    "Rules that could not speak, or not fully, or not yet, with the reason."
    lost: int
    "Records missing from the segments."
    bad_lines: int
    troubles: list[str]
    "What is wrong with the files, in sentences."
    log: dict[str, object] | None
    "Of a foreign log: format, framework, launches, which key fed which name, what was left out."

    def fails(self, fail_on: str) -> bool:
        """Whether an alert of that severity or a higher one counts."""
        return self.verdict in _FAILING[fail_on]


def main(argv: list[str]) -> int:
    """Print the report; exit code 0 or 1. Raises RunError."""
    options = _parser().parse_args(argv)
    with read_either(options.run, options.root, request_of(options), rollouts=False) as (view, log):
        report = make_report(view, log)
    print(json.dumps(plain(asdict(report)), indent=2, ensure_ascii=False) if options.json else as_text(report))
    return int(report.fails(options.fail_on))


def make_report(view: RunView, log: Imported | None = None) -> Report:
    """The report of a run that was read; log: what was made of the foreign log that it came from."""
    key = view.run.run_key
    with view.monitor.store.cursor() as con:
        alerts = query.alerts(con, key)
        bounds = query.bounds_in_force(con, key)
        segments = query.segments(con, key)
        steps = query.step_count(con, key)
        rescue = plans(con, view.run, view.folder, alerts, alive=view.run.status == "running")
        found_wrong = [f"{t.text}: {t.advice}" for t in troubles(con, key)]
    found_wrong += [f"{path}: {why}" for path, why in view.monitor.problems.items()]
    last = view.run.last_step
    ordered = sorted(
        alerts, key=lambda a: (a.superseded, not _counts(a, last), _RANK[a.severity], a.step_onset, a.rule)
    )
    found = [a for a in ordered if a.signature != LINT]
    counted = [a.severity for a in found if _counts(a, last)]
    return Report(
        run=view.run.path,
        status=view.run.status,
        steps=steps,
        last_step=last,
        warming=view.monitor.warming(key),
        verdict=min(counted, key=lambda severity: _RANK[severity], default="ok"),
        alerts=[_alert(a, last) | _advice(view, a, bounds, rescue.get(a.alert_id)) for a in found],
        lint=[_alert(a, last) for a in ordered if a.signature == LINT and not a.superseded],
        blind=[_blind(b) for b in view.monitor.blind(key) if b.status != "ok"],
        lost=sum(s.lost for s in segments),
        bad_lines=sum(s.bad_lines for s in segments),
        troubles=found_wrong,
        log=None if log is None else {k: v for k, v in asdict(log).items() if k != "folder"},
    )


def _counts(a: query.AlertRow, last: int | None) -> bool:
    """As on the page: not history, explained by no other, not called false, not asleep."""
    return not (a.superseded or a.inhibited_by or a.mark == "false_alarm" or is_snoozed(a, last))


def _alert(a: query.AlertRow, last: int | None) -> dict[str, object]:
    return {
        "signature": a.signature, "rule": a.rule, "severity": a.severity, "state": a.state,
        "step_onset": a.step_onset,
        "step_detected": a.step_detected, "step_last": a.step_last, "driver": a.driver, "direction": a.direction,
        "slice": a.slice,
        "title": a.title, "text": a.text, "remedy": dict(a.remedy), "evidence": dict(a.evidence),
        "inhibited_by": a.inhibited_by,
        "superseded": a.superseded, "counts": a.signature != LINT and _counts(a, last), "mark": _mark(a, last),
        "runbook": f"docs/signatures/{a.signature}.md", "alert_id": a.alert_id,
    }  # fmt: skip


def _advice(
    view: RunView, a: query.AlertRow, bounds: query.BoundsInForce | None, rescue: RescuePlan | None
) -> dict[str, object]:
    """What drives it beside what the paper expects, the remedy as commands, and the plan of a critical one."""
    obstacle, commands = way_back(view.folder, view.run, a.remedy, bounds)
    if a.open and a.evidence.get("window") != "closed":
        commands = relax(view.folder, view.run, a.remedy, a.signature)
    cause = attribution(a.driver, a.evidence, view.monitor.rules.texts)
    plan = None if rescue is None else as_json(rescue)
    return {"cause": cause, "obstacle": obstacle, "commands": commands, "rescue": plan}


def _mark(a: query.AlertRow, last: int | None) -> str | None:
    """What a person said, where it keeps the alert from counting."""
    by = f" by {a.mark_actor}" if a.mark_actor else ""
    why = f": {a.mark_text}" if a.mark_text else ""
    if a.mark == "false_alarm":
        return f"called a false alarm{by}{why}"
    return f"snoozed until step {a.until_step}{by}{why}" if is_snoozed(a, last) else None


def _blind(b: Blind) -> dict[str, object]:
    return {"rule": b.rule, "status": b.status, "reason": b.reason, "help": b.help}


def as_text(report: Report) -> str:
    """For people: the verdict first, a block per alert, what the rules could not see last."""
    parts = [_headline(report)]
    if report.log is not None:
        parts.append(_log(report.log))
    dimmed = [a for a in report.alerts if a["slice"] and a["inhibited_by"] and not a["superseded"]]
    parts += [_block(a) for a in report.alerts if a not in dimmed]
    if dimmed:
        parts.append("\n".join(["the same on slices of the run:", *map(_item, _short(dimmed))]))
    if report.lint:
        parts.append(
            "\n".join(
                ["bounds lint (from the configuration, no detection):", *(_item(str(a["text"])) for a in report.lint)]
            )
        )
    if report.lost or report.bad_lines:
        parts.append(
            f"{report.lost} records are missing from the segments, {report.bad_lines} lines could not be read."
        )
    if report.troubles:
        parts.append("\n".join(["wrong with the files:", *map(_item, report.troubles)]))
    if report.blind:
        rest = [b for b in report.blind if b["status"] != "warming"]
        lines = [_item(f"{rules}: {_sentences(reason, advice)}") for rules, reason, advice in grouped(rest)]
        warming = [f"{b['rule']} {str(b['reason']).rpartition(' ')[2]}" for b in report.blind if b not in rest]
        lines += [_item(f"warming up: {', '.join(warming)}.")] if warming else []
        parts.append("\n".join(["not seen in this log:", *lines]))
    return "\n\n".join(parts)


def _log(log: Mapping[str, Any]) -> str:
    """How a foreign log was read, and what stands in the way of a better answer."""
    keys = f"keys of {log['framework']}" if log["framework"] else "keys of no known framework"
    lines = [_item(f"read as {log['format']}, {keys}; {len(log['mapped'])} of its metrics are known")]
    if len(log["launches"]) > 1:
        spans = ", ".join(f"{a} to {b}" for a, b in log["launches"])
        lines.append(
            _item(f"{len(log['launches'])} launches, steps {spans}: of what was done twice the later one counts")
        )
    lines += [_item(f"note: {what}") for what in log["left_out"]]
    if "accuracy" not in log["mapped"]:
        lines.append(_item("no accuracy in it: where a key is the share of right answers, say --map KEY=accuracy"))
    return "\n".join(lines)


def _headline(report: Report) -> str:
    words = {"critical": "CRITICAL", "warning": "WARNING", "info": "OK, with notes", "ok": "OK"}
    steps = f"{report.steps} step{'' if report.steps == 1 else 's'}"
    last = "" if report.last_step is None else f", last {report.last_step}"
    seen, needed = report.warming
    warming = f", warming up {seen}/{needed}: only the guards speak so far" if seen < needed else ""
    return f"{words[report.verdict]}: {report.run} ({report.status}, {steps}{last}){warming}"


def _block(a: dict[str, object]) -> str:
    lag = int(str(a["step_detected"])) - int(str(a["step_onset"]))
    notes = [
        f"driver {a['driver']}" if a["driver"] else "",
        f"explained by {a['inhibited_by']}" if a["inhibited_by"] else "",
    ]
    notes.append("in a stretch that a later launch repeated: does not count" if a["superseded"] else "")
    notes.append(str(a["mark"] or ""))
    evidence = a["evidence"]
    every = evidence.get("logged_every") if isinstance(evidence, dict) else None
    notes.append(f"logged every {every} steps, so the onset is no finer" if every else "")
    later = f"{lag} step{'' if lag == 1 else 's'} later"
    where = f"onset {a['step_onset']}, detected {a['step_detected']} ({later}), {a['state']}"
    part = f" ({a['slice']})" if a["slice"] else ""
    head = ", ".join([f"[{a['severity']}] {a['signature']}{part}: {where}", *(n for n in notes if n)])
    lines = [_item(str(a["text"]))] if a["text"] else []
    return "\n".join([head, *lines, *([] if a["inhibited_by"] else _what_to_do(a)), _item(f"runbook: {a['runbook']}")])


def _what_to_do(a: dict[str, object]) -> list[str]:
    """Cause and remedy, and the commands to copy; an alert that another one explains has those of that one."""
    remedy, commands, rescue = a["remedy"], a.get("commands"), a.get("rescue")
    text = str(remedy.get("text") or "") if isinstance(remedy, dict) else ""
    parts = (("cause", a.get("cause")), ("remedy", text), ("but", "" if rescue else a.get("obstacle")))
    lines = [_item(f"{name}: {part}") for name, part in parts if part]
    if isinstance(rescue, dict):
        relaxing = isinstance(remedy, dict) and remedy.get("checkpoint") is None
        return [*lines, *(_copied(commands) if relaxing else []), *_rescue(rescue)]
    return lines + _copied(commands)


def _copied(commands: object) -> list[str]:
    return [f"    {command}" for command in commands] if isinstance(commands, list | tuple) else []


def _rescue(plan: Mapping[str, Any]) -> list[str]:
    """The plan of a critical alert: its words, then what to copy."""
    lines = ["  rescue plan", *(_item(f"{label.lower()}: {text}", 4) for label, text in plan["told"])]
    live, rest = plan["live_command"], _copied(plan["commands"])
    if live:
        return [*lines, f"    {live}", *(["    or, where the process is gone:"] if rest else []), *rest]
    return lines + rest


def _short(dimmed: list[dict[str, object]]) -> list[str]:
    """ "length_collapse, explained by length_floor: env=proofs, env=sums"."""
    by_name: dict[str, list[str]] = {}
    for a in dimmed:
        by_name.setdefault(f"{a['signature']}, explained by {a['inhibited_by']}", []).append(str(a["slice"]))
    return [f"{name}: {', '.join(sorted(set(slices)))}" for name, slices in by_name.items()]


def grouped(blind: Sequence[Mapping[str, object]]) -> list[tuple[str, str, str]]:
    """Rules that could not see, with status, reason and advice; those that lack the same stand together."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for b in blind:
        found.setdefault((str(b["status"]), str(b["reason"]), str(b["help"])), []).append(str(b["rule"]))
    return [(f"{', '.join(rules)} ({status})", reason, text) for (status, reason, text), rules in found.items()]


def _sentences(*parts: object) -> str:
    return " ".join(f"{str(part).rstrip('.')}." for part in parts if part)


def _item(text: str, indent: int = 2) -> str:
    first, rest = " " * indent, " " * (indent + 2)
    return fill(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope check",
        description="Run the detectors over a run, or over a log of any trainer. Exit code 1 on a critical alert, 2 "
        "when it cannot be read.",
    )
    parser.add_argument("run", metavar="RUN|LOG", help="run folder, its path below the root, or a log of any trainer")
    parser.add_argument("--root", help="folder above the runs (default: $REGIMESCOPE_ROOT, else ./runs)")
    parser.add_argument("--json", action="store_true", help="a JSON object instead of text")
    parser.add_argument(
        "--fail-on",
        choices=sorted(_FAILING),
        default="critical",
        help="lowest severity that makes the exit code 1 (default: critical)",
    )
    add_options(parser)
    return parser
