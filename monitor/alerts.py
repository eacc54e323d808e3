"""The alert table of a run: what the detectors found, as rows. Derived, so always replaced as a whole, in one
transaction.

`alert_id` comes from run path, launch, rule (with its slice) and ordinal of the episode: marks still match after a
replay or a rebuilt index. `telemetry_gap` is the one alert without a detector: the monitor's clock finds it, only while
it watches.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regimescope.detectors import Finding
from regimescope.monitor.catalog import json_text
from regimescope.monitor.query import Connection
from regimescope.monitor.timeline import LaunchInfo
from regimescope.monitor.wire import plain

GAP_RULE = "telemetry_gap"

_NAMESPACE = uuid.UUID("6f0d7b1e-6a5b-5c1c-9d0e-3f5b9f6a2c11")

EpisodeKey = tuple[int, str, str | None, int]
"launch_no of the owner, rule, slice, ordinal."


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A finding and the launch that it belongs to."""

    finding: Finding
    launch: LaunchInfo
    incident_id: uuid.UUID
    opened_at: float | None
    partial: bool
    "Some step up to the detection was given before all ranks were through."


@dataclass(slots=True, kw_only=True)
class Gap:
    """A silence that the monitor's clock found."""

    step: int
    silent_s: float
    median_step_s: float


def replace_alerts(
    con: Connection,
    run_key: int,
    path: str,
    launches: Sequence[LaunchInfo],
    episodes: Mapping[EpisodeKey, Episode],
    gap: Gap | None,
    rule_version: str,
) -> None:
    """Write the alerts of a run in place of those that are there. Raises duckdb.Error."""
    found = con.execute("SELECT value, slice_id FROM slice WHERE run_key = ? AND kind = 'env'", [run_key]).fetchall()
    slices: dict[str | None, int] = dict(found)
    superseded_from = {launch.launch_no: launch.superseded_from for launch in launches}
    rows = [
        {**_row(path, episode, superseded_from[key[0]]), "slice_id": slices.get(episode.finding.slice, 0)}
        for key, episode in episodes.items()
    ]
    if gap is not None:
        rows.append({**_gap_row(path, launches[-1], gap), "slice_id": 0})
    con.begin()
    con.execute("DELETE FROM alert WHERE run_key = ?", [run_key]).fetchall()
    for row in rows:
        columns = ", ".join(("run_key", "rule_version", *row))
        marks = ", ".join("to_timestamp(?::DOUBLE)" if name == "opened_at" else "?" for name in row)
        values = [run_key, rule_version, *row.values()]
        con.execute(f"INSERT INTO alert ({columns}) VALUES (?, ?, {marks})", values).fetchall()
    con.commit()


def _row(path: str, episode: Episode, superseded_from: int | None) -> dict[str, object]:
    f, launch, remedy = episode.finding, episode.launch, episode.finding.remedy
    superseded = superseded_from is not None and f.step_detected >= superseded_from
    evidence = {**f.evidence, "partial_steps": True} if episode.partial else dict(f.evidence)
    advice: dict[str, object] = {
        "bound": remedy.bound,
        "direction": remedy.direction,
        "target": remedy.target,
        "text": remedy.text,
    }
    if remedy.checkpoint is not None:
        advice["checkpoint"] = remedy.checkpoint
    return {
        "alert_id": alert_id(path, launch.launch_id, f.rule, f.slice, f.ordinal),
        "incident_id": str(episode.incident_id),
        "launch_no": launch.launch_no,
        "signature": f.signature,
        "rule": f.rule,
        "ordinal": f.ordinal,
        "severity": f.severity,
        "state": "resolved" if superseded else f.state,
        "driver": f.driver,
        "step_onset": f.step_onset,
        "step_detected": f.step_detected,
        "step_last": f.step_last,
        "opened_at": episode.opened_at,
        "score": f.score,
        "direction": f.direction,
        "title": f.title,
        "text": f.text,
        "evidence": json_text(plain(evidence)),
        "remedy": json_text(plain(advice)),
        "inhibited_by": f.inhibited_by,
        "superseded": superseded,
    }


def _gap_row(path: str, launch: LaunchInfo, gap: Gap) -> dict[str, object]:
    """Its ordinal is the step after which the run fell silent: the same after a restart of the monitor."""
    ordinal = gap.step % 65_536
    name = alert_id(path, launch.launch_id, GAP_RULE, None, ordinal)
    text = f"No row for {gap.silent_s:.0f} s after step {gap.step}; a step takes {gap.median_step_s:.1f} s."
    advice = "See whether the training process lives; if not, resume it from its checkpoint."
    return {
        "alert_id": name,
        "incident_id": name,
        "launch_no": launch.launch_no,
        "signature": GAP_RULE,
        "rule": GAP_RULE,
        "ordinal": ordinal,
        "severity": "warning",
        "state": "firing",
        "step_onset": gap.step,
        "step_detected": gap.step,
        "step_last": gap.step,
        "title": "Telemetry gap",
        "text": text,
        "evidence": json_text({"silent_s": round(gap.silent_s, 1), "median_step_s": round(gap.median_step_s, 3)}),
        "remedy": json_text({"bound": None, "direction": None, "target": None, "text": advice}),
    }


def alert_id(path: str, launch_id: str, rule: str, slice_value: str | None, ordinal: int) -> str:
    """The same episode has the same id after every replay, on every machine that sees the run under this path."""
    name = rule if slice_value is None else f"{rule}\0{slice_value}"
    return str(uuid.uuid5(_NAMESPACE, f"{path}\0{launch_id}\0{name}\0{ordinal}"))


def incident_id(path: str, launch_id: str, number: int) -> uuid.UUID:
    """Of the suite's incident with this number that began in this launch."""
    return uuid.uuid5(_NAMESPACE, f"incident\0{path}\0{launch_id}\0{number}")
