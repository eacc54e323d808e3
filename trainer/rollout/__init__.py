"""Rollouts: the engine protocol with its values, and the engine built on transformers. Token ids in and out, texts are the caller's business."""

from regimescope.trainer.rollout.engine import RolloutEngine, make_engine
from regimescope.trainer.rollout.types import EngineCapabilities, EngineHealth, Rollout, SamplingSpec, SyncReport

__all__ = ["EngineCapabilities", "EngineHealth", "Rollout", "RolloutEngine", "SamplingSpec", "SyncReport", "make_engine"]
