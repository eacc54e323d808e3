"""Errors of the trainer. Each message names what was wrong, where, and what to do.

RegimescopeError              (regimescope.monitor.errors)
├── ConfigError               a configuration, scenario or option that makes no sense
├── ShapeError                tensors whose shapes or types disagree
├── PolicyError               a model folder that cannot be used: missing, no tokenizer, vocabulary mismatch
├── SamplingError             sampling settings that would make every importance ratio wrong, or no sense at all
├── EngineError               a rollout engine that is unknown, closed, or cannot produce what was asked
├── LabError                  the lab: an output folder of other code, a training that failed
├── CheckpointError           a checkpoint that is missing, incomplete or of another configuration
└── RanksError                several ranks: one is gone, late, or has other weights
    └── RankZeroError         what rank 0 failed at and has told, on the others
"""

from __future__ import annotations

from regimescope.monitor.errors import RegimescopeError


class ConfigError(RegimescopeError, ValueError):
    pass


class ShapeError(RegimescopeError, ValueError):
    pass


class PolicyError(RegimescopeError):
    pass


class SamplingError(RegimescopeError, ValueError):
    pass


class EngineError(RegimescopeError):
    pass


class CheckpointError(RegimescopeError):
    pass


class LabError(RegimescopeError):
    pass


class RanksError(RegimescopeError):
    pass


class RankZeroError(RanksError):
    pass
