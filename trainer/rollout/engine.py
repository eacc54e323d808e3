"""The protocol that every rollout engine speaks, and the one place that makes engines by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from torch import Tensor

from regimescope.trainer.errors import EngineError
from regimescope.trainer.policy import Policy
from regimescope.trainer.rollout.transformers_engine import TransformersEngine
from regimescope.trainer.rollout.types import EngineCapabilities, EngineHealth, Rollout, SamplingSpec, SyncReport

ENGINES = ("transformers",)


class RolloutEngine(Protocol):
    """Produces responses with the policy's current weights. Ids only; texts are the caller's business."""

    @property
    def capabilities(self) -> EngineCapabilities:
        """What this engine can do."""
        ...

    def generate(self, prompts: Sequence[Sequence[int]], spec: SamplingSpec) -> list[Rollout]:
        """`spec.n` rollouts per prompt, grouped by prompt. Raises EngineError; never returns fewer."""
        ...

    def sync(self, weights: Iterable[tuple[str, Tensor]], weight_version: int) -> SyncReport:
        """Load `weights` as number `weight_version`, which never goes back (EngineError). Shared weights: no more."""
        ...

    def health(self) -> EngineHealth:
        """Whether it can be asked now; never raises."""
        ...

    def close(self) -> None:
        """Release what it holds; a second call does nothing."""
        ...


def make_engine(name: str, policy: Policy, *, weight_version: int = 0) -> RolloutEngine:
    """The engine of that name over `policy`, its weights numbered `weight_version`. EngineError lists the names."""
    if name not in ENGINES:
        raise EngineError(f"unknown rollout engine {name!r}: there is {', '.join(ENGINES)}")
    return TransformersEngine(policy, weight_version=weight_version)
