"""Rollouts: the engine protocol with its values, and the engine on transformers. Token ids in and out, no texts."""

from regimescope.trainer.rollout.engine import RolloutEngine, make_engine
from regimescope.trainer.rollout.types import EngineCapabilities, EngineHealth, Rollout, SamplingSpec, SyncReport

__all__ = [
    "EngineCapabilities",
    "EngineHealth",
    "Rollout",
    "RolloutEngine",
    "SamplingSpec",
    "SyncReport",
    "make_engine",
]
