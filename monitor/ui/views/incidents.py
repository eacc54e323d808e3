"""The incidents of a run: alerts that belong together, each with its probable cause and driver. Under the timeline."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.query import AlertRow, IncidentRow
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.texts import plural, signature_text


def incident_list(ctx: Context, facts: RunFacts, shown: Sequence[AlertRow]) -> None:
    """Draw it, where there is more than one alert to put in order."""
    with ctx.monitor.store.cursor() as con:
        found = query.incidents(con, facts.run.run_key)
    rows = incident_rows(found, shown)
    if rows:
        st.dataframe(rows, hide_index=True, height="content", alt="Incidents, the last one first")


def incident_rows(incidents: Sequence[IncidentRow], shown: Sequence[AlertRow]) -> list[dict[str, str]]:
    """A row per incident with an alert that is shown."""
    by_id = {alert.alert_id: alert for alert in shown}
    rows = []
    for incident in incidents:
        alerts = [by_id[alert_id] for alert_id in incident.alerts if alert_id in by_id]
        if not alerts:
            continue
        others = [signature_text(a.signature).title.lower() for a in alerts if a.signature != incident.signature]
        cause = "" if incident.signature is None else signature_text(incident.signature).title
        rows.append(
            {
                "probable cause": cause or "explained by another incident",
                "driver": incident.driver or "–",  # noqa: RUF001 - a dash for "none"
                "steps": f"{incident.step_onset} to {incident.step_last}",
                "state": "repeated since" if incident.superseded else "firing" if incident.firing else "over",
                "alerts": plural(len(alerts), "alert"),
                "with": ", ".join(dict.fromkeys(others)),
            }
        )
    return rows
