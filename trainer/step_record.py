"""What is recorded of a step besides its updates: the numbers of its responses, for the step line, and the lines of
every task, histograms and events.

    metrics = record.metrics(batch)
    record.write(step, batch, totals, dead_steps)

A rank records its share of the problems, rank 0 also what does not add over ranks (`step_metrics.OF_THE_WHOLE`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regimescope.monitor.record import Recorder
from regimescope.trainer.advantages import GroupAdvantages
from regimescope.trainer.answers.verifier import Verifier
from regimescope.trainer.buffer import infer_of
from regimescope.trainer.config import RecordSection
from regimescope.trainer.loss.mismatch import mismatch_metrics
from regimescope.trainer.ranks import Ranks
from regimescope.trainer.responses import Metric
from regimescope.trainer.rollout_record import Sampled
from regimescope.trainer.step_metrics import (
    OF_THE_WHOLE,
    length_counts,
    of_rank,
    rollout_metrics,
    whole_rollout_metrics,
)
from regimescope.trainer.update import UpdateTotals


class StepRecord:
    """Writes them through one recorder; remembers what the verifier had failed at before."""

    def __init__(
        self, config: RecordSection, recorder: Recorder, verifier: Verifier, envs: Sequence[str], ranks: Ranks
    ) -> None:
        """`envs`: values of the slice `env`; fewer than two make no slices."""
        self._config = config
        self._recorder = recorder
        self._verifier = verifier
        self._envs = envs if len(envs) > 1 else ()
        self._ranks = ranks
        self._speaks_for_all = ranks.size > 1 and ranks.rank == 0
        self._failed_before: dict[str, int] = {}

    def metrics(self, batch: Sampled) -> dict[str, Metric]:
        """Of all responses of the step."""
        groups = range(len(batch.judged.rewards))
        metrics = self._of_responses(batch, groups) | _mismatch(batch, batch.mine)
        if self._speaks_for_all:
            whole = _mismatch(batch, groups)
            metrics |= {name: value for name, value in whole.items() if name in OF_THE_WHOLE}
        return metrics

    def write(self, step: int, batch: Sampled, totals: UpdateTotals | None, dead_steps: int) -> None:
        """Everything but the step line. `totals`: None = no update in this step."""
        for env in self._envs:
            self._write_task(step, batch, env)
        if totals is not None and totals.stats is not None:
            self._recorder.ratio_hist(step, totals.stats)
            for name, stats in totals.slices.items():
                self._recorder.ratio_hist(step, stats, slice=name)
        own = batch.judged.of_groups(batch.mine)
        self._recorder.hist(step, "response_length", length_counts(own.responses), "len1")
        if dead_steps and self._ranks.rank == 0:
            self._recorder.event("dead_step", {"in_a_row": dead_steps}, step=step)
        failed = {**self._verifier.failures, "timeout": self._verifier.timeouts}
        new = {kind: n - self._failed_before.get(kind, 0) for kind, n in failed.items()}
        if any(new.values()):  # those responses count in infra_failed_frac
            self._recorder.event("verifier_failed", {kind: n for kind, n in new.items() if n}, step=step)
        self._failed_before = failed

    def _write_task(self, step: int, batch: Sampled, env: str) -> None:
        groups = batch.judged.groups_of(env)
        metrics = of_rank(self._of_responses(batch, groups), self._ranks.rank)
        if metrics:
            self._recorder.step(step, metrics, slice=("env", env))
        own = _common(groups, batch.mine)
        if own:
            counts = length_counts(batch.judged.of_groups(own).responses)
            self._recorder.hist(step, "response_length", counts, "len1", slice=("env", env))

    def _of_responses(self, batch: Sampled, groups: Sequence[int]) -> dict[str, Metric]:
        """Of those of some groups, of this rank's share of them."""
        own = _common(groups, batch.mine)
        advantages = GroupAdvantages(advantages=batch.groups.advantages[own], usable=batch.groups.usable[own])
        metrics = rollout_metrics(
            batch.judged.of_groups(own),
            advantages,
            batch.old.entropy[batch.judged.rows_of(own)],
            short_tokens=self._config.short_tokens,
            sure_run=self._config.sure_run,
        )
        return metrics | whole_rollout_metrics(batch.judged.of_groups(groups)) if self._speaks_for_all else metrics


def _common(groups: Sequence[int], mine: Sequence[int]) -> list[int]:
    return [group for group in groups if group in mine]


def _mismatch(batch: Sampled, groups: Sequence[int]) -> dict[str, Metric]:
    rows = batch.judged.rows_of(groups)
    if not rows:
        return {}
    infer = torch.cat([infer_of(batch.judged.responses[i]) for i in rows])
    return mismatch_metrics(torch.cat([batch.old.logps[i] for i in rows]), infer)
