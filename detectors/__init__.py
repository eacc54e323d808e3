"""Streaming detectors: a mapping of metrics in, findings out. Standard library only.

`Suite().update(step, metrics, events)` returns what opened or changed; no clock, no randomness:
a replay finds the same.
"""

from regimescope.detectors.errors import DetectorError, RulesError
from regimescope.detectors.rules import Rules, load_rules
from regimescope.detectors.slices import Slices, slice_inputs
from regimescope.detectors.suite import Suite
from regimescope.detectors.types import Blind, Event, Finding, Remedy

__all__ = [
    "Blind",
    "DetectorError",
    "Event",
    "Finding",
    "Remedy",
    "Rules",
    "RulesError",
    "Slices",
    "Suite",
    "load_rules",
    "slice_inputs",
]
