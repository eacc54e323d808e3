"""Recording, store, control channel and dashboard. Importing it needs the standard library alone.

`from regimescope.monitor import Recorder` is all that a training process needs; the rest of the names are the values it
passes.
"""

from regimescope.monitor.bounds import Bounds, Limits, SignBounds, SignLimits, SignRule, WeightRule
from regimescope.monitor.record import Recorder
from regimescope.monitor.rollouts import Rollout, RolloutOptions
from regimescope.monitor.token_stats import BUCKETS, RatioHist, TokenStats

__all__ = [
    "BUCKETS",
    "Bounds",
    "Limits",
    "RatioHist",
    "Recorder",
    "Rollout",
    "RolloutOptions",
    "SignBounds",
    "SignLimits",
    "SignRule",
    "TokenStats",
    "WeightRule",
]
