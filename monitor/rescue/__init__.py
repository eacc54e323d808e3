"""The rescue plan of a critical alert: where to go back to, under which bounds, how, and what it costs.

    from regimescope.monitor.rescue import plans     # read.py: of all alerts of a run that need one
    told(plan)                                       # lines.py: as (label, text) for card, check and report

Nothing here acts: a person copies a command, or clicks the rollback of a living trainer. docs/rescue.md.
"""

from regimescope.monitor.rescue.lines import as_json, told
from regimescope.monitor.rescue.plan import RescuePlan, plan
from regimescope.monitor.rescue.read import hours_since, plan_of, plans

__all__ = ["RescuePlan", "as_json", "hours_since", "plan", "plan_of", "plans", "told"]
